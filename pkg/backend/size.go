package backend

import (
	"fmt"
	"math"
)

// Fit is the size that a volume of this pool gets, bytes: what is required,
// rounded up to the pool's step, at least its minimum. A copy is at least as long
// as its source (source bytes, 0 for none), and exactly that if no size is
// required. ErrRange if that is beyond the caller's limit or the pool's.
func (p Pool) Fit(size Size, source int64) (int64, error) {
	if err := size.Check(); err != nil {
		return 0, err
	}
	most := p.Max
	if most <= 0 {
		most = math.MaxInt64
	}
	if size.Required > most {
		return 0, fmt.Errorf("%w: %d bytes, volumes of pool %s have at most %d", ErrRange, size.Required, p.Name, most)
	}
	want, ok := roundUp(max(size.Required, p.Min), p.Step)
	if size.Required == 0 && source > 0 {
		want, ok = source, true
	}
	switch {
	case !ok || want > most:
		return 0, fmt.Errorf("%w: %d bytes, volumes of pool %s have at most %d", ErrRange, size.Required, p.Name, most)
	case want < source:
		return 0, fmt.Errorf("%w: %d bytes are less than the source's %d", ErrRange, size.Required, source)
	case size.Limit > 0 && want > size.Limit:
		return 0, fmt.Errorf("%w: volumes of pool %s come in steps of %d bytes: it would be %d, over the limit of %d", ErrRange, p.Name, p.Step, want, size.Limit)
	}
	return want, nil
}

// Holds reports whether a volume of that many bytes is what size asks for: a
// repeated creation finds it, whatever it was expanded to meanwhile.
func (s Size) Holds(bytes int64) bool {
	return bytes >= s.Required && (s.Limit == 0 || bytes <= s.Limit)
}

// roundUp is n as a multiple of step; ok false: there is none.
func roundUp(n, step int64) (rounded int64, ok bool) {
	if step <= 1 || n%step == 0 {
		return n, true
	}
	up := n/step + 1
	if up > math.MaxInt64/step {
		return 0, false
	}
	return up * step, true
}
