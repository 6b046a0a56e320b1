package lvmthin

import (
	"cmp"
	"context"
	"errors"
	"slices"

	"github.com/csi-mpath/csi-mpath/pkg/agent/store"
)

// Object reads one object.
func (s *Store) Object(ctx context.Context, name string) (store.Object, error) {
	e, err := s.ready(ctx, name)
	if err != nil {
		return store.Object{}, err
	}
	return e.object(), nil
}

// Objects lists what is finished. With an error it has those that could be read.
func (s *Store) Objects(ctx context.Context) ([]store.Object, error) {
	var out []store.Object
	err := s.each(ctx, func(e entry) {
		if e.phase == store.Ready {
			out = append(out, e.object())
		}
	})
	slices.SortFunc(out, func(a, b store.Object) int { return cmp.Compare(a.Name, b.Name) })
	return out, err
}

// Unfinished lists what is not.
func (s *Store) Unfinished(ctx context.Context) ([]string, error) {
	var out []string
	err := s.each(ctx, func(e entry) {
		if e.phase != store.Ready {
			out = append(out, e.name)
		}
	})
	slices.Sort(out)
	return out, err
}

func (s *Store) each(ctx context.Context, f func(entry)) error {
	all, err := s.report(ctx, "")
	if err != nil {
		return err
	}
	var errs []error
	for _, v := range all {
		e, ok, err := s.entry(v)
		if ok {
			f(e)
		}
		errs = append(errs, err)
	}
	return errors.Join(errs...)
}

// Usage is that of the pool.
func (s *Store) Usage(ctx context.Context) (store.Usage, error) {
	all, err := s.report(ctx, "")
	if err != nil {
		return store.Usage{}, err
	}
	return s.usage(all)
}

func (s *Store) usage(all []volume) (store.Usage, error) {
	pool, err := s.pool(all)
	if err != nil {
		return store.Usage{}, err
	}
	u := store.Usage{Total: pool.size, Used: int64(max(pool.data, 0) * float64(pool.size)), Metadata: max(pool.metadata, 0),
		Full: pool.health != "" || pool.data >= 1 || pool.metadata >= 1}
	for _, v := range all {
		if e, ok, _ := s.entry(v); ok {
			u.Promised += e.size
		}
	}
	return s.marks.Judge(u, s.features), nil
}
