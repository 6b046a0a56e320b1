package rig

import (
	"errors"
	"fmt"
	"testing"
	"time"
)

// Must ends the test on an error.
func Must(t testing.TB, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

// ErrOver marks an error of Wait's f that no patience will mend.
var ErrOver = errors.New("it is over")

// Wait polls f until it has no error. It returns f's last one, with what was
// waited for, when Patience has ended or the error is an ErrOver.
func Wait(what string, f func() error) error {
	tick := time.NewTicker(pollEvery)
	defer tick.Stop()
	late := time.NewTimer(Patience)
	defer late.Stop()
	for {
		err := f()
		if err == nil {
			return nil
		}
		if errors.Is(err, ErrOver) {
			return fmt.Errorf("waiting for %s: %w", what, err)
		}
		select {
		case <-tick.C:
		case <-late.C:
			return fmt.Errorf("waited %v for %s: %w", Patience, what, err)
		}
	}
}
