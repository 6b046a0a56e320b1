package main

import (
	"context"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/csi-mpath/csi-mpath/pkg/program"
)

func TestTheModuleIsLoadedOnlyIfItIsNotThere(t *testing.T) {
	sys, calls := t.TempDir(), 0
	run := func(_ context.Context, c program.Call) (program.Result, error) {
		calls++
		if c.Name != "modprobe" || strings.Join(c.Args, " ") != "nbd" {
			t.Errorf("%+v", c)
		}
		return program.Result{}, nil
	}
	if got := loadModule(t.Context(), sys, run); got != "nbd is loaded" || calls != 1 {
		t.Fatal(got, calls)
	}
	if err := os.MkdirAll(filepath.Join(sys, "module/nbd"), 0o755); err != nil {
		t.Fatal(err)
	}
	if got := loadModule(t.Context(), sys, run); got != "nbd is there" || calls != 1 {
		t.Fatal(got, calls)
	}
}

func TestAModuleThatCannotBeLoadedIsSaid(t *testing.T) {
	run := func(context.Context, program.Call) (program.Result, error) {
		return program.Result{Code: 1, Message: "FATAL: Module nbd not found"}, nil
	}
	if got := loadModule(t.Context(), t.TempDir(), run); !strings.Contains(got, "not found") || !strings.Contains(got, "nbd-module.md") {
		t.Fatal(got)
	}
}
