package contract

import (
	"fmt"
	"slices"
	"strings"

	"github.com/csi-mpath/csi-mpath/pkg/backend"
)

var listChecks = []check{
	{"VolumesAreListedOnceAndInOrder", 0, volumesAreListedOnceAndInOrder},
	{"SnapshotsAreListedOnceAndInOrder", 0, snapshotsAreListedOnceAndInOrder},
	{"PublicationsAreListedByVolumeAndNode", eachTransport, publicationsAreListedByVolumeAndNode},
	{"WhatVanishesBetweenPagesShiftsNothing", 0, whatVanishesBetweenPagesShiftsNothing},
	{"ATokenThatWasNeverGivenIsRefused", 0, aTokenThatWasNeverGivenIsRefused},
}

// pages are all pages of a list, each of at most most entries.
func pages[T any](r *trial, most int, list func(backend.Page) ([]T, string, error)) []T {
	r.Helper()
	var all []T
	page := backend.Page{Max: most}
	for range maxPages {
		some, next, err := list(page)
		r.ok(err, "listing")
		if most > 0 && len(some) > most {
			r.Errorf("a page of at most %d has %d", most, len(some))
		}
		all = append(all, some...)
		if next == "" {
			return all
		}
		page.Token = next
	}
	r.Fatalf("a list has no end after %d pages", maxPages)
	return nil
}

// volumes are all.
func (r *trial) volumes() []backend.Volume {
	r.Helper()
	return pages(r, 0, r.listVolumes)
}

func (r *trial) listVolumes(p backend.Page) ([]backend.Volume, string, error) {
	return r.b.Volumes(r.ctx, p)
}

// snapshots are all.
func (r *trial) snapshots() []backend.Snapshot {
	r.Helper()
	return pages(r, 0, func(p backend.Page) ([]backend.Snapshot, string, error) { return r.b.Snapshots(r.ctx, backend.ID{}, p) })
}

// publications are all.
func (r *trial) publications() []backend.Publication {
	r.Helper()
	return pages(r, 0, func(p backend.Page) ([]backend.Publication, string, error) {
		return r.b.Publications(r.ctx, backend.PublicationFilter{}, p)
	})
}

func volumesAreListedOnceAndInOrder(r *trial) {
	if all := r.volumes(); len(all) != 0 {
		r.Errorf("an empty pool has %v", all)
	}
	var want []string
	for i := range 7 {
		want = append(want, volumeText(r.create(r.asks(fmt.Sprintf("vol %d", i), 1))))
	}
	slices.Sort(want) // they begin with their IDs
	for _, most := range []int{0, 1, 2, 3, 7, 8, 100000} {
		var got []string
		for _, v := range pages(r, most, r.listVolumes) {
			got = append(got, volumeText(v))
		}
		if !slices.Equal(got, want) {
			r.Errorf("in pages of %d: got\n%s\nwant\n%s", most, strings.Join(got, "\n"), strings.Join(want, "\n"))
		}
	}
}

func snapshotsAreListedOnceAndInOrder(r *trial) {
	if !r.pool.Snapshots {
		if all := r.snapshots(); len(all) != 0 {
			r.Errorf("a pool without snapshots has %v", all)
		}
		return
	}
	a, b := r.create(r.asks("a", 1)), r.create(r.asks("b", 1))
	for i := range 6 {
		r.snapshot(fmt.Sprintf("snap %d", i), []backend.ID{a.ID, b.ID}[i%2])
	}
	for _, c := range []struct {
		of   backend.ID
		want int
	}{{backend.ID{}, 6}, {a.ID, 3}, {backend.ID{Pool: r.pool.Name, Object: "v-none"}, 0}} {
		for _, most := range []int{1, 2, 6, 7} {
			got := pages(r, most, func(p backend.Page) ([]backend.Snapshot, string, error) { return r.b.Snapshots(r.ctx, c.of, p) })
			ordered := slices.IsSortedFunc(got, func(x, y backend.Snapshot) int { return strings.Compare(x.ID.String(), y.ID.String()) })
			foreign := slices.ContainsFunc(got, func(s backend.Snapshot) bool { return !c.of.IsZero() && s.Of != c.of })
			if len(got) != c.want || !ordered || foreign {
				r.Errorf("of %v in pages of %d: got %v", c.of, most, got)
			}
		}
	}
}

func publicationsAreListedByVolumeAndNode(r *trial) {
	a, b := r.create(r.asks("a", 1)), r.create(r.asks("b", 1))
	var want []string
	for _, id := range []backend.ID{a.ID, b.ID} {
		for _, node := range []string{"n-1", "n.1", "n1"} {
			r.publish(r.shared(id, node))
			want = append(want, id.String()+" "+node)
		}
	}
	slices.Sort(want)
	for f, keep := range map[backend.PublicationFilter]func(string) bool{
		{}:                          func(string) bool { return true },
		{Volume: a.ID}:              func(s string) bool { return strings.HasPrefix(s, a.ID.String()+" ") },
		{Node: "n.1"}:               func(s string) bool { return strings.HasSuffix(s, " n.1") },
		{Volume: b.ID, Node: "n-1"}: func(s string) bool { return s == b.ID.String()+" n-1" },
		{Node: "nobody"}:            func(string) bool { return false },
	} {
		for _, most := range []int{0, 1, 2, 6} {
			var got []string
			for _, p := range pages(r, most, func(p backend.Page) ([]backend.Publication, string, error) { return r.b.Publications(r.ctx, f, p) }) {
				got = append(got, p.Volume.String()+" "+p.Node)
			}
			if some := slices.DeleteFunc(slices.Clone(want), func(s string) bool { return !keep(s) }); !slices.Equal(got, some) {
				r.Errorf("%+v in pages of %d: got %v, want %v", f, most, got, some)
			}
		}
	}
}

func whatVanishesBetweenPagesShiftsNothing(r *trial) {
	for i := range 8 {
		r.create(r.asks(fmt.Sprintf("vol %d", i), 1))
	}
	all := r.volumes()
	some, next, err := r.b.Volumes(r.ctx, backend.Page{Max: 3})
	r.ok(err, "the first page")
	if len(some) != 3 || next == "" {
		r.Fatalf("the first page of 3: got %d entries, token %q", len(some), next)
	}
	for _, v := range []backend.Volume{all[1], all[2], all[3]} { // given, the last given, not given yet
		r.ok(r.b.DeleteVolume(r.ctx, v.ID), "deleting one")
	}
	rest, last, err := r.b.Volumes(r.ctx, backend.Page{Token: next})
	r.ok(err, "the second page")
	if len(rest) != 4 || last != "" || rest[0].ID != all[4].ID || rest[3].ID != all[7].ID {
		r.Errorf("the second page: got %d entries, token %q", len(rest), last)
	}
}

func aTokenThatWasNeverGivenIsRefused(r *trial) {
	r.create(r.asks("vol", 1))
	for _, token := range []string{"invalid-token", "0", "1", "-1", "\x00", "../", " ", "%s", strings.Repeat("x", 10000)} {
		page := backend.Page{Token: token}
		_, _, err := r.b.Volumes(r.ctx, page)
		r.want(err, fmt.Sprintf("volumes after %.20q", token), backend.ErrToken)
		_, _, err = r.b.Snapshots(r.ctx, backend.ID{}, page)
		r.want(err, fmt.Sprintf("snapshots after %.20q", token), backend.ErrToken)
		_, _, err = r.b.Publications(r.ctx, backend.PublicationFilter{}, page)
		r.want(err, fmt.Sprintf("publications after %.20q", token), backend.ErrToken)
	}
	_, _, err := r.b.Volumes(r.ctx, backend.Page{Max: -1})
	r.want(err, "a page of -1", backend.ErrInvalid)
}
