// Command csi-mpath is the one binary of the project; its subcommands are its
// roles. It parses flags, wires objects, runs them and stops them in reverse.
package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"

	"github.com/spf13/cobra"
)

// Exit codes, documented in --help.
const (
	exitFailure  = 1 // something went wrong while running
	exitUsage    = 2 // bad flags, names or files
	exitNoPath   = 3 // the volume did not come up
	exitUnsettle = 4 // ended with requests unanswered or writes in doubt
)

// exitError carries an exit code.
type exitError struct {
	code int
	err  error
}

func (e *exitError) Error() string {
	if e.err == nil {
		return ""
	}
	return e.err.Error()
}

func (e *exitError) Unwrap() error { return e.err }

func usage(err error) error {
	if err == nil {
		return nil
	}
	return &exitError{exitUsage, err}
}

// version is set by the build.
var version = "unknown"

func main() { os.Exit(run(os.Args[1:])) }

func run(args []string) int {
	root := &cobra.Command{
		Use:   "csi-mpath",
		Short: "Block devices over several network paths, in one process",
		Long: `csi-mpath builds one block device out of several iSCSI or NVMe/TCP paths, without
iscsid, multipathd or udev, and serves it over NBD: to programs on a socket, without root,
or as a block device of the kernel. It is also a target, to try it with.

Exit codes: 0 done; 1 failure while running; 2 wrong flags, names or files;
3 the volume did not come up; 4 ended with requests unanswered or writes in doubt.`,
		Version:       version,
		SilenceErrors: true,
		SilenceUsage:  true,
	}
	root.SetFlagErrorFunc(func(c *cobra.Command, err error) error {
		return usage(fmt.Errorf("%w; see '%s --help'", err, c.CommandPath()))
	})
	root.AddCommand(attachCommand(), detachCommand(), tuneCommand(), pathsCommand(), discoverCommand(), targetCommand(), agentCommand(), controllerCommand(), nodeCommand(), clusterCommand(), benchCommand())
	root.SetArgs(args)
	err := root.ExecuteContext(context.Background())
	if err == nil {
		return 0
	}
	if text := err.Error(); text != "" {
		fmt.Fprintln(os.Stderr, "csi-mpath:", text)
	}
	var ee *exitError
	if errors.As(err, &ee) {
		return ee.code
	}
	return exitUsage // what cobra itself complains about
}

// defaultStateDir is /run/csi-mpath for root, else the user's runtime directory.
func defaultStateDir() string {
	if os.Geteuid() == 0 {
		return "/run/csi-mpath"
	}
	if base := os.Getenv("XDG_RUNTIME_DIR"); base != "" {
		return filepath.Join(base, "csi-mpath")
	}
	return filepath.Join(os.TempDir(), fmt.Sprintf("csi-mpath-%d", os.Getuid()))
}
