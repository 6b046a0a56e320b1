package volume

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/csi-mpath/csi-mpath/pkg/durable"
)

// readRecords takes in what an earlier process left. What is of another boot
// goes: no mount and no device is left of it. What cannot be read is kept, and
// told, and refused to be used (broken), until its volume is unstaged.
func (n *Node) readRecords() error {
	entries, err := os.ReadDir(n.cfg.State)
	if err != nil {
		return fmt.Errorf("state directory: %w", err)
	}
	for _, e := range entries {
		name, ok := strings.CutSuffix(e.Name(), recordSuffix)
		if !ok {
			continue
		}
		path := filepath.Join(n.cfg.State, e.Name())
		rec, err := readRecord(path, n.cfg.Boot)
		var st *state
		if err == nil && rec != nil {
			st, err = n.restored(rec)
		}
		switch {
		case err != nil:
			n.broken[name] = err
			n.event(name, Damaged, "%v", err)
		case rec == nil:
			for _, suffix := range []string{secretsSuffix, discardSuffix, recordSuffix} {
				if err := durable.Remove(filepath.Join(n.cfg.State, name+suffix)); err != nil {
					return err
				}
			}
		default:
			n.vols[rec.Volume] = st
		}
	}
	return n.sweepSecrets(entries)
}

// sweepSecrets removes secrets without a record: what would have been written next.
func (n *Node) sweepSecrets(entries []os.DirEntry) error {
	for _, e := range entries {
		name, ok := strings.CutSuffix(e.Name(), secretsSuffix)
		if !ok || slices.ContainsFunc(entries, func(o os.DirEntry) bool { return o.Name() == name+recordSuffix }) {
			continue
		}
		if err := durable.Remove(filepath.Join(n.cfg.State, e.Name())); err != nil {
			return err
		}
	}
	return nil
}

// restored is a record as a state, with the secrets.
func (n *Node) restored(rec *record) (st *state, err error) {
	st = &state{rec: rec, problem: errNotYet}
	if st.attached, err = rec.attached(); err != nil {
		return nil, err
	}
	if st.settings, err = rec.settings(); err != nil {
		return nil, err
	}
	st.secrets, err = n.vault.get(rec.Volume)
	return st, err
}

// errNotYet: Recover has not come to it.
var errNotYet = errors.New("the node plugin starts")

// Recover brings back what was served before (I8): call it before anybody can
// call the rest. It waits up to recoverWithin; what takes longer, because no path
// of it works, goes on coming back, and is in the error. I/O waits meanwhile.
func (n *Node) Recover(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, recoverWithin)
	defer cancel()
	var all []string
	n.mu.Lock()
	for id, st := range n.vols {
		if st.comesBack() {
			all = append(all, id)
		}
	}
	n.mu.Unlock()
	slices.Sort(all)
	back, slots := make(chan struct{}), make(chan struct{}, recoverAtOnce)
	var wg sync.WaitGroup
	for _, id := range all {
		wg.Add(1)
		n.wg.Go(func() {
			slots <- struct{}{}
			release := sync.OnceFunc(func() { <-slots; wg.Done() })
			defer release()
			defer context.AfterFunc(ctx, release)() // those that hang make way for others
			n.bringBack(id)
		})
	}
	go func() { wg.Wait(); close(back) }()
	select {
	case <-back:
	case <-ctx.Done():
	}
	return n.notBack(all)
}

// comesBack: there is, or may be, a block device with users.
func (st *state) comesBack() bool {
	return st.dev == nil && st.rec.Phase != phaseDetached && st.rec.Revoked == ""
}

func (n *Node) notBack(all []string) error {
	n.mu.Lock()
	defer n.mu.Unlock()
	var errs []error
	for _, id := range all {
		if st := n.vols[id]; st != nil && st.comesBack() {
			errs = append(errs, fmt.Errorf("volume %s: %w: %w", id, ErrUnavailable, st.problem))
		}
	}
	return errors.Join(errs...)
}

// bringBack opens a volume that was served before, for as long as it takes. It
// makes way for Unstage.
func (n *Node) bringBack(volume string) {
	for pause := backFirst; ; pause = min(2*pause, backMost) {
		o, err := n.wait(n.ctx, volume)
		if err != nil {
			return
		}
		ctx, cancel := context.WithCancel(n.ctx)
		o.abandon(cancel)
		again := n.comeBack(ctx, volume)
		cancel()
		n.end(o)
		if !again {
			return
		}
		select {
		case <-n.ctx.Done():
			return
		case <-time.After(pause):
		}
	}
}

// comeBack is one attempt; again: another may help.
func (n *Node) comeBack(ctx context.Context, volume string) (again bool) {
	st, err := n.find(volume)
	if err != nil || st == nil || !st.comesBack() {
		return false
	}
	st, err = n.opened(ctx, st, true)
	if err != nil {
		n.event(volume, NotRecovered, "%v", err)
		return true
	}
	if err := n.apply(st); err != nil {
		n.event(volume, NotTuned, "%v", err)
	}
	return false
}
