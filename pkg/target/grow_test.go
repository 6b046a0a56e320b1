package target

import "testing"

// Under the race detector: what runs beside the machine does not look at the
// store's memory while it is replaced.
func TestHolesAreLookedForWhileTheStoreGrows(t *testing.T) {
	r := NewRAM(1 << 20)
	if err := r.WriteAt(make([]byte, ramPage), 512<<10); err != nil {
		t.Fatal(err)
	}
	done := make(chan error)
	go func() {
		for range 200 {
			if _, _, err := r.Mapped(0); err != nil {
				done <- err
				return
			}
		}
		done <- nil
	}()
	for size := uint64(2); size < 12; size++ {
		if err := r.Grow(size << 20); err != nil {
			t.Error(err)
		}
	}
	if err := <-done; err != nil {
		t.Fatal(err)
	}
	if n, hole, err := r.Mapped(0); err != nil || !hole || n != 512<<10 {
		t.Fatal(n, hole, err)
	}
}
