package contract

import (
	"math"
	"regexp"

	"github.com/csi-mpath/csi-mpath/pkg/backend"
)

var volumeChecks = []check{
	{"AVolumeIsWhatWasAskedFor", 0, aVolumeIsWhatWasAskedFor},
	{"ARepeatedCreationFindsTheVolume", 0, aRepeatedCreationFindsTheVolume},
	{"SizesAreRoundedUpAndBounded", 0, sizesAreRoundedUpAndBounded},
	{"ADeletedVolumeIsGone", 0, aDeletedVolumeIsGone},
	{"AVolumeMadeAnewIsAnotherDevice", 0, aVolumeMadeAnewIsAnotherDevice},
	{"ExpansionIsUpToTheSizeAndNeverBack", 0, expansionIsUpToTheSizeAndNeverBack},
	{"TunablesAreCountedWhenTheyChange", 0, tunablesAreCountedWhenTheyChange},
	{"CapacityIsOfThePool", 0, capacityIsOfThePool},
}

var identity = regexp.MustCompile("^[0-9a-f]{32}$")

func aVolumeIsWhatWasAskedFor(r *trial) {
	v := r.create(r.asks("vol", 2))
	want := backend.ID{Pool: r.pool.Name, Object: backend.ObjectName(backend.VolumeObject, r.s.Tenant, "vol")}
	if v.ID != want || v.Name != "vol" || v.Size != r.size(2) || !v.Source.IsZero() || v.Generation != 0 || len(v.Tunables) != 0 {
		r.Errorf("got %s, want volume %s, %d bytes", volumeText(v), want, r.size(2))
	}
	if !identity.MatchString(v.Identity) || v.Created.IsZero() {
		r.Errorf("got identity %q, created %v", v.Identity, v.Created)
	}
	if v.Content != backend.ContentBlank && v.Content != backend.ContentUnknown {
		r.Errorf("content of a new volume: got %q", v.Content)
	}
	found, err := r.b.Volume(r.ctx, v.ID)
	r.ok(err, "finding it")
	r.sameVolume(found, v, "finding it")
	if other := r.create(r.asks("vol2", 1)); other.Identity == v.Identity || other.ID == v.ID {
		r.Errorf("another volume got %s", volumeText(other))
	}
}

func aRepeatedCreationFindsTheVolume(r *trial) {
	first := r.create(r.asks("vol", 2))
	r.sameVolume(r.create(r.asks("vol", 2)), first, "created again")
	limited := r.asks("vol", 1)
	limited.Size.Limit = r.size(3)
	r.sameVolume(r.create(limited), first, "created again with a size that it has")
	_, err := r.b.CreateVolume(r.ctx, r.asks("vol", 3))
	r.want(err, "created larger", backend.ErrConflict)
	limited.Size.Limit = r.size(1)
	_, err = r.b.CreateVolume(r.ctx, limited)
	r.want(err, "created with a limit that it is over", backend.ErrConflict)
	copied := r.asks("vol", 2)
	copied.Source.Volume = r.create(r.asks("source", 2)).ID
	_, err = r.b.CreateVolume(r.ctx, copied)
	r.want(err, "created as a copy", backend.ErrConflict)
	grown, err := r.b.ExpandVolume(r.ctx, first.ID, backend.Size{Required: r.size(3)})
	r.ok(err, "expanding it")
	r.sameVolume(r.create(r.asks("vol", 2)), grown, "created again after it was expanded")
	r.sameVolume(r.create(r.asks("vol", 3)), grown, "created again with the size it was expanded to")
}

func sizesAreRoundedUpAndBounded(r *trial) {
	p := r.pool
	if v := r.create(backend.CreateVolume{Name: "any", Pool: p.Name}); v.Size < max(p.Min, 1) || v.Size%p.Step != 0 {
		r.Errorf("no size asked for: got %d bytes", v.Size)
	}
	ask := r.asks("one more", 1)
	ask.Size.Required++
	if v := r.create(ask); v.Size < ask.Size.Required || v.Size%p.Step != 0 || v.Size-ask.Size.Required >= p.Step {
		r.Errorf("%d bytes asked for in steps of %d: got %d", ask.Size.Required, p.Step, v.Size)
	}
	for what, c := range map[string]struct {
		size backend.Size
		want []error
	}{
		"a limit below what is required":  {backend.Size{Required: r.size(2), Limit: r.size(1)}, []error{backend.ErrRange, backend.ErrInvalid}},
		"a limit below the smallest size": {backend.Size{Limit: 1}, []error{backend.ErrRange}},
		"a negative size":                 {backend.Size{Required: -1}, []error{backend.ErrInvalid}},
		"a negative limit":                {backend.Size{Limit: -1}, []error{backend.ErrInvalid}},
		"more than there can be":          {backend.Size{Required: math.MaxInt64}, []error{backend.ErrRange, backend.ErrNoSpace}},
	} {
		if p.Min <= 1 && c.size.Limit == 1 {
			continue
		}
		_, err := r.b.CreateVolume(r.ctx, backend.CreateVolume{Name: what, Pool: p.Name, Size: c.size})
		r.want(err, what, c.want...)
	}
	if p.Max > 0 && p.Max < math.MaxInt64 {
		_, err := r.b.CreateVolume(r.ctx, backend.CreateVolume{Name: "huge", Pool: p.Name, Size: backend.Size{Required: p.Max + 1}})
		r.want(err, "more than the pool's maximum", backend.ErrRange)
	}
	r.isEmptyBut("any", "one more")
}

// isEmptyBut fails the check unless these are all volumes.
func (r *trial) isEmptyBut(names ...string) {
	r.Helper()
	all := r.volumes()
	if len(all) != len(names) {
		r.Errorf("%d volumes are there, want %d: %v", len(all), len(names), all)
	}
}

func aDeletedVolumeIsGone(r *trial) {
	v := r.create(r.asks("vol", 1))
	for range 2 {
		r.ok(r.b.DeleteVolume(r.ctx, v.ID), "deleting it")
		_, err := r.b.Volume(r.ctx, v.ID)
		r.want(err, "finding it", backend.ErrNotFound)
	}
	r.isEmptyBut()
	r.nothingIsLeft()
}

// nothingIsLeft fails the check if the storage has what it should not.
func (r *trial) nothingIsLeft() {
	r.Helper()
	if r.s.Leftovers == nil {
		return
	}
	for _, what := range r.s.Leftovers(r.TB) {
		r.Errorf("left behind: %s", what)
	}
}

func aVolumeMadeAnewIsAnotherDevice(r *trial) {
	first := r.create(r.asks("vol", 1))
	r.ok(r.b.DeleteVolume(r.ctx, first.ID), "deleting it")
	second := r.create(r.asks("vol", 2))
	if second.ID != first.ID || second.Identity == first.Identity || second.Size != r.size(2) {
		r.Errorf("got %s after %s", volumeText(second), volumeText(first))
	}
}

func expansionIsUpToTheSizeAndNeverBack(r *trial) {
	v := r.create(r.asks("vol", 1))
	for _, c := range []struct{ required, limit, want int64 }{
		{r.size(2), 0, r.size(2)}, {r.size(2), r.size(2), r.size(2)}, {r.size(1), 0, r.size(2)}, {0, 0, r.size(2)}, {r.size(3), r.size(4), r.size(3)},
	} {
		got, err := r.b.ExpandVolume(r.ctx, v.ID, backend.Size{Required: c.required, Limit: c.limit})
		r.ok(err, "expanding it")
		v.Size = c.want
		r.sameVolume(got, v, "expanded")
		found, err := r.b.Volume(r.ctx, v.ID)
		r.ok(err, "finding it")
		r.sameVolume(found, v, "found after it was expanded")
	}
	_, err := r.b.ExpandVolume(r.ctx, v.ID, backend.Size{Required: r.size(3) + 1, Limit: r.size(3) + 1})
	if r.pool.Step > 1 {
		r.want(err, "over the limit", backend.ErrRange)
	}
	_, err = r.b.ExpandVolume(r.ctx, v.ID, backend.Size{Required: -1})
	r.want(err, "to a negative size", backend.ErrInvalid)
	_, err = r.b.ExpandVolume(r.ctx, v.ID, backend.Size{Required: math.MaxInt64})
	r.want(err, "to more than there can be", backend.ErrRange, backend.ErrNoSpace)
	found, err := r.b.Volume(r.ctx, v.ID)
	r.ok(err, "finding it")
	r.sameVolume(found, v, "after what was refused")
}

func tunablesAreCountedWhenTheyChange(r *trial) {
	ask := r.asks("vol", 1)
	ask.Tunables = map[string]string{"mergeDeadline": "auto"}
	v := r.create(ask)
	if v.Generation != 1 || v.Tunables["mergeDeadline"] != "auto" || len(v.Tunables) != 1 {
		r.Errorf("created: got %s", volumeText(v))
	}
	r.sameVolume(r.create(ask), v, "created again")
	for _, c := range []struct {
		to   map[string]string
		want int64
	}{
		{map[string]string{"mergeDeadline": "auto"}, 1}, {map[string]string{"polling": "adaptive"}, 2}, {map[string]string{"polling": "adaptive"}, 2},
		{map[string]string{"polling": "off", "minPaths": "2"}, 3}, {nil, 4}, {map[string]string{}, 4}, {map[string]string{"minPaths": ""}, 5},
	} {
		got, err := r.b.TuneVolume(r.ctx, v.ID, c.to)
		r.ok(err, "tuning it")
		v.Tunables, v.Generation = c.to, c.want
		r.sameVolume(got, v, "tuned")
		found, err := r.b.Volume(r.ctx, v.ID)
		r.ok(err, "finding it")
		r.sameVolume(found, v, "found after it was tuned")
	}
	r.sameVolume(r.create(ask), v, "created again after it was tuned")
}

func capacityIsOfThePool(r *trial) {
	c, err := r.b.Capacity(r.ctx, r.pool.Name)
	r.ok(err, "capacity")
	if c.Available < r.size(16) || c.MaxVolume <= 0 || c.MaxVolume > c.Available || c.MinVolume > r.size(1) || c.Total <= 0 || c.Used < 0 || c.Used > c.Total {
		r.Errorf("got %+v", c)
	}
	_, err = r.b.Capacity(r.ctx, "no-such-pool")
	r.want(err, "of a pool that does not exist", backend.ErrNotFound)
	if c.MaxVolume < r.pool.Max-r.pool.Step {
		ask := backend.CreateVolume{Name: "vol", Pool: r.pool.Name, Size: backend.Size{Required: r.pool.Max / r.pool.Step * r.pool.Step}}
		_, err = r.b.CreateVolume(r.ctx, ask)
		r.want(err, "a volume larger than the room", backend.ErrNoSpace)
	}
}
