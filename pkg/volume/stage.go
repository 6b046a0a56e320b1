package volume

import (
	"context"
	"errors"
	"fmt"
	"slices"

	"github.com/csi-mpath/csi-mpath/pkg/backend"
	"github.com/csi-mpath/csi-mpath/pkg/faultpoint"
	"github.com/csi-mpath/csi-mpath/pkg/mount"
	"github.com/csi-mpath/csi-mpath/pkg/tunable"
	"github.com/csi-mpath/csi-mpath/pkg/volume/attrs"
)

// Stage makes a volume usable on this node, in numbered steps:
//
//  1. the request is checked, and compared with what is there;
//  2. what is going to be is written down, and the secrets are;
//  3. the device is opened: portals, identity (I1), block device;
//  4. its file system is checked or made (I7), mounted, and grown;
//  5. it is written down that this is done.
//
// Whoever comes again goes on where the last call stopped.

// StageRequest asks for a volume.
type StageRequest struct {
	Volume  string
	Staging string // path
	Block   bool   // raw, no file system
	// FSType is ext4 (also if empty) or xfs; Options are those of mount.
	FSType  string
	Options []string
	// ReadOnly: no write leaves this node. Exclusive: no other node has it.
	ReadOnly, Exclusive bool
	PublishContext      map[string]string
	VolumeContext       map[string]string
	Secrets             Secrets
}

// wanted is a request, checked.
type wanted struct {
	use      use
	attached attrs.Attachment
	context  map[string]string // canonical
	settings tunable.Settings
	secrets  Secrets
}

func (r *StageRequest) wanted() (w wanted, err error) {
	if w.attached, err = attrs.Attached(r.PublishContext, r.VolumeContext); err != nil {
		return w, err
	}
	traits, err := attrs.ParseVolumeContext(r.VolumeContext)
	if err != nil {
		return w, err
	}
	if traits.Transport != "" && traits.Transport != w.attached.Transport {
		return w, fmt.Errorf("%w: the volume was asked for over %s, and is published over %s", ErrInvalid, traits.Transport, w.attached.Transport)
	}
	if w.context, err = attrs.PublishContext(w.attached); err != nil {
		return w, err
	}
	if w.settings, err = tunable.Parse(w.attached.Tunables); err != nil {
		return w, fmt.Errorf("%w: %w", ErrInvalid, err)
	}
	w.secrets = r.Secrets
	w.use = use{Staging: r.Staging, Block: r.Block, ReadOnly: r.ReadOnly || w.attached.ReadOnly || slices.Contains(r.Options, "ro"), Exclusive: r.Exclusive}
	w.use.FSType = r.FSType
	w.use.Options = slices.DeleteFunc(slices.Clone(r.Options), func(o string) bool { return o == "ro" })
	if !r.Block {
		w.use.Mkfs = traits.Mkfs
		if w.use.FSType == "" {
			w.use.FSType = mount.Ext4
		}
	}
	return w, errors.Join(w.use.check(), w.secrets.check())
}

// Stage is step 1 to 5. A call that ends while the file system is made or checked
// leaves that going on: a later one finds it done.
func (n *Node) Stage(ctx context.Context, r StageRequest) error {
	o, err := n.begin(r.Volume)
	if err != nil {
		return err
	}
	handed := false
	defer func() {
		if !handed {
			n.end(o)
		}
	}()
	w, err := r.wanted()
	if err != nil {
		return of(r.Volume, "stage", err)
	}
	handed, err = n.stage(ctx, o, w)
	return of(r.Volume, "stage", err)
}

func (n *Node) stage(ctx context.Context, o *op, w wanted) (handed bool, err error) {
	st, err := n.find(o.volume)
	if err == nil && st != nil {
		st, err = n.former(ctx, st, w)
	}
	if err == nil && st == nil {
		st, err = n.newcomer(o.volume, w)
	}
	if err != nil {
		return false, err
	}
	if st, err = n.opened(ctx, st, false); err != nil {
		return false, n.abort(ctx, st, err)
	}
	faultpoint.Here("volume.stage.opened")
	if st.rec.Use.Block {
		return false, n.staged(st, mount.Report{})
	}
	return n.filesystem(ctx, o, st)
}

// former compares a volume that is there with what is wanted: nil, and no error,
// if it is in the way and was taken away.
func (n *Node) former(ctx context.Context, st *state, w wanted) (*state, error) {
	if st.attached.Epoch != w.attached.Epoch && st.rec.Revoked == "" {
		st = n.revoke(st, fmt.Sprintf("its publication %s was revoked: it is published anew as %s", st.attached.Epoch, w.attached.Epoch))
	}
	st = n.lost(st)
	if st.rec.Revoked != "" || st.rec.Phase == phaseUnstaging || st.rec.Phase == phaseDetached {
		return nil, n.tearDown(ctx, st)
	}
	if diff := st.rec.Use.differs(w.use); diff != "" {
		return st, fmt.Errorf("%w: it is staged with %s: unstage it first", ErrConflict, diff)
	}
	a, b := st.attached, w.attached
	if a.Transport != b.Transport || a.Target != b.Target || a.LUN != b.LUN || a.NSID != b.NSID || a.WWID != b.WWID {
		return st, fmt.Errorf("%w: it is staged from %s: unstage it first", ErrConflict, a.Target)
	}
	st, err := n.renewed(st, w.secrets)
	if err != nil {
		return st, err
	}
	return n.tuned(st, w.attached.Generation, w.attached.Tunables)
}

// newcomer is step 2.
func (n *Node) newcomer(volume string, w wanted) (*state, error) {
	if err := n.room(volume, w.use.Staging); err != nil {
		return nil, err
	}
	rec := &record{Version: recordVersion, Boot: n.cfg.Boot, Volume: volume, Phase: phaseStaging, Use: w.use, Context: w.context,
		Generation: w.attached.Generation, Tunables: w.attached.Tunables}
	if err := n.vault.put(volume, w.secrets); err != nil {
		return nil, err
	}
	if err := rec.write(n.cfg.State); err != nil {
		return nil, err
	}
	faultpoint.Here("volume.stage.recorded")
	if w.attached.Fencing == attrs.FencingNone {
		n.event(volume, Unfenced, "fencing is off: nothing keeps an earlier node from writing to it")
	}
	return n.keep(&state{rec: rec, attached: w.attached, settings: w.settings, secrets: w.secrets, fresh: true}), nil
}

// room refuses one volume more than can be, and a path that another has.
func (n *Node) room(volume, staging string) error {
	n.mu.Lock()
	defer n.mu.Unlock()
	if len(n.vols) >= maxVolumes {
		return fmt.Errorf("%w: this node has %d volumes, which is the limit", ErrState, len(n.vols))
	}
	for id, st := range n.vols {
		if id != volume && st.rec.Use.Staging == staging {
			return fmt.Errorf("%w: volume %s is staged at %s", ErrConflict, clip(id), clip(staging))
		}
	}
	return nil
}

// opened is step 3. again: its users wait for it.
func (n *Node) opened(ctx context.Context, st *state, again bool) (*state, error) {
	if st.dev != nil {
		return st, nil
	}
	again = again || st.problem != nil
	dev, err := n.cfg.Devices.Open(ctx, DeviceConfig{Volume: st.rec.Volume, Attached: st.attached, Settings: st.settings,
		ReadOnly: st.rec.Use.ReadOnly, Exclusive: st.rec.Use.Exclusive, Secrets: st.secrets, Again: again})
	if err != nil {
		if again {
			err = fmt.Errorf("%w: it was served before, and is not back yet: %w", ErrUnavailable, err)
			return n.with(st, func(s *state) { s.problem = err }), err
		}
		return st, err
	}
	return n.with(st, func(s *state) { s.dev, s.problem, s.fresh = dev, nil, false }), nil
}

// filesystem is step 4; handed: it goes on without its caller, and ends o itself.
func (n *Node) filesystem(ctx context.Context, o *op, st *state) (handed bool, err error) {
	alone, cancel := context.WithTimeout(context.WithoutCancel(ctx), filesystemWithin)
	type outcome struct {
		report mount.Report
		err    error
	}
	done := make(chan outcome, 1)
	go func() {
		report, err := n.cfg.Mounts.Stage(alone, st.mountRequest())
		done <- outcome{report, err}
	}()
	finish := func(r outcome) error {
		cancel()
		if r.err != nil {
			return n.abort(ctx, st, r.err)
		}
		return n.staged(st, r.report)
	}
	select {
	case r := <-done:
		return false, finish(r)
	case <-ctx.Done():
	}
	o.abandon(cancel)
	n.wg.Go(func() {
		defer n.end(o)
		select {
		case r := <-done:
			_ = finish(r) // the next call meets the same
		case <-n.ctx.Done():
			cancel()
			<-done
		}
	})
	return true, fmt.Errorf("its file system is being checked or made, which goes on: try again: %w", ctx.Err())
}

// mountRequest: a device may be formatted that nobody wrote to, as far as
// anybody knows, and that reads as zeros (I7).
func (st *state) mountRequest() mount.Request {
	u, c := &st.rec.Use, st.attached.Content
	return mount.Request{Volume: st.rec.Volume, Device: st.dev.Path(), Target: u.Staging, FSType: u.FSType, MkfsOptions: u.Mkfs,
		MountOptions: u.Options, ReadOnly: u.ReadOnly, Blank: !u.ReadOnly && (c == backend.ContentBlank || c == backend.ContentUnknown)}
}

// staged is step 5.
func (n *Node) staged(st *state, r mount.Report) error {
	if r.Repaired {
		n.event(st.rec.Volume, FilesystemRepaired, "errors of its file system were corrected: %v", r.Messages)
	}
	if r.Formatted {
		n.event(st.rec.Volume, FilesystemMade, "%s was made on it", st.rec.Use.FSType)
	}
	faultpoint.Here("volume.stage.mounted")
	if st.rec.Phase == phaseStaged {
		return nil
	}
	_, err := n.record(st, func(r *record) { r.Phase = phaseStaged })
	faultpoint.Here("volume.stage.staged")
	return err
}

// abort clears up after a Stage that failed for good: its caller may take that
// for "nothing is there" and never unstage. What may pass keeps what was reached.
func (n *Node) abort(ctx context.Context, st *state, cause error) error {
	if st.rec.Phase != phaseStaging || st.problem != nil || st.dev != nil && passing(classify(cause)) {
		return cause
	}
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), cleanupWithin)
	defer cancel()
	if err := n.tearDown(ctx, st); err != nil {
		return fmt.Errorf("%w; and it could not be cleared up, unstage it: %w: %w", cause, ErrUnavailable, err)
	}
	return cause
}
