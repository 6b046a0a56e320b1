package store

import (
	"fmt"

	"github.com/csi-mpath/csi-mpath/pkg/backend"
)

// Marks say when a pool is too full to promise more. A pool that runs full fails
// the writes of everybody who is in it, so promising ends well before.
type Marks struct {
	// Data and Metadata are how full the pool and its tables may be, 0..1, above
	// which creations are refused.
	Data, Metadata float64
	// Overcommit is how many bytes may be promised for each that there is; for
	// pools whose objects take their space at once it has no meaning.
	Overcommit float64
}

// Or are the marks with those of d where nothing is set.
func (m Marks) Or(d Marks) Marks {
	if m.Data == 0 {
		m.Data = d.Data
	}
	if m.Metadata == 0 {
		m.Metadata = d.Metadata
	}
	if m.Overcommit == 0 {
		m.Overcommit = d.Overcommit
	}
	return m
}

// Check refuses marks that make no sense.
func (m Marks) Check() error {
	for what, v := range map[string]float64{"data limit": m.Data, "metadata limit": m.Metadata} {
		if v <= 0 || v > 1 {
			return fmt.Errorf("%w: %s %v: want more than 0 and at most 1", backend.ErrInvalid, what, v)
		}
	}
	if m.Overcommit < 1 || m.Overcommit > maxOvercommit {
		return fmt.Errorf("%w: overcommit %v: want 1..%d", backend.ErrInvalid, m.Overcommit, maxOvercommit)
	}
	return nil
}

// Judge fills in what may still be promised of a pool of which Total, Used,
// Promised, Metadata and Full are known.
func (m Marks) Judge(u Usage, f Features) Usage {
	limit := int64(m.Data * float64(u.Total))
	u.Filling = u.Full || u.Used >= limit || u.Metadata >= m.Metadata
	u.Available = limit - u.Used
	if f.Thin {
		u.Available = int64(m.Overcommit*float64(u.Total)) - u.Promised
	}
	if u.Filling || u.Available < f.Min {
		u.Available = 0
	}
	u.MaxObject = min(u.Available, f.Max)
	if f.Step > 1 {
		u.MaxObject -= u.MaxObject % f.Step
	}
	return u
}

// Admit refuses to promise more bytes of a pool than Judge left.
func (u Usage) Admit(pool string, more int64) error {
	switch {
	case u.Full:
		return fmt.Errorf("%w: pool %s is full: extend it, or delete what is not needed", backend.ErrNoSpace, pool)
	case u.Filling:
		return fmt.Errorf("%w: pool %s has %d of %d bytes taken (its tables: %.0f%%), which is above its limit: extend it, or delete what is not needed",
			backend.ErrNoSpace, pool, u.Used, u.Total, 100*u.Metadata)
	case more > u.Available:
		return fmt.Errorf("%w: %d bytes, and pool %s may promise %d more: extend it, delete what is not needed, or allow more overcommitment",
			backend.ErrNoSpace, more, pool, u.Available)
	}
	return nil
}
