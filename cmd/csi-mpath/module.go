package main

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"time"

	"github.com/spf13/cobra"

	"github.com/csi-mpath/csi-mpath/pkg/program"
)

// loadWithin bounds modprobe.
const loadWithin = time.Minute

func loadModuleCommand() *cobra.Command {
	return &cobra.Command{
		Use:   "load-module",
		Short: "Load the kernel module nbd, if it is not there",
		Long: `load-module is for an init container: it needs CAP_SYS_MODULE and the node's
/lib/modules, and nothing else. That it cannot load the module is said, and no failure:
the node plugin itself says so, and is not registered.`,
		Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			fmt.Fprintln(cmd.OutOrStdout(), loadModule(cmd.Context(), "/sys", program.Run))
			return nil
		},
	}
}

// loadModule says what it did.
func loadModule(ctx context.Context, sys string, run program.Runner) string {
	if _, err := os.Stat(filepath.Join(sys, "module/nbd")); err == nil {
		return "nbd is there"
	}
	ctx, cancel := context.WithTimeout(ctx, loadWithin)
	defer cancel()
	r, err := run(ctx, program.Call{Name: "modprobe", Args: []string{"nbd"}})
	if err == nil {
		err = r.Failed("modprobe nbd")
	}
	if err != nil {
		return fmt.Sprintf("nbd is not loaded: %v: load it at boot, docs/nbd-module.md says how", err)
	}
	return "nbd is loaded"
}
