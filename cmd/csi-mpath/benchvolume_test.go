package main

import (
	"bytes"
	"strings"
	"testing"
)

func TestARangeOfBytesIsReadWithUnits(t *testing.T) {
	for s, want := range map[string][2]uint64{"0-4096": {0, 4096}, "1Gi-3Gi": {1 << 30, 3 << 30}, "512Ki-1Ti": {512 << 10, 1 << 40}} {
		if from, to, err := parseRange(s); err != nil || from != want[0] || to != want[1] {
			t.Errorf("%q: %d-%d, %v", s, from, to, err)
		}
	}
	for _, s := range []string{"", "5", "-", "-5", "5-", "5-5", "9-5", "1Gi-", "1Xi-2Xi", "0-99999999Ti", "0x1-0x2", "1--2"} {
		if _, _, err := parseRange(s); err == nil {
			t.Errorf("%q was accepted", s)
		}
	}
}

func TestProgressInAFileIsALinePerTenth(t *testing.T) {
	var b bytes.Buffer
	bar := &progressBar{out: &b}
	for i := range 100 {
		bar.show(i, 100, "x")
	}
	bar.end()
	if n := strings.Count(b.String(), "\n"); n != 10 || strings.Contains(b.String(), "\x1b") {
		t.Errorf("%d lines:\n%s", n, b.String())
	}
}
