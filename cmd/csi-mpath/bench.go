package main

import (
	"context"
	"fmt"
	"io"
	"os"
	"os/signal"
	"strings"
	"syscall"
	"time"

	"github.com/spf13/cobra"

	"github.com/csi-mpath/csi-mpath/pkg/bench"
)

func benchCommand() *cobra.Command {
	c := &cobra.Command{
		Use:   "bench",
		Short: "Measure the datapath",
		Args:  cobra.NoArgs,
	}
	c.AddCommand(benchSeedsCommand(), benchVolumeCommand(), benchChildCommand())
	return c
}

// benchChildCommand is a helper process of seeds.
func benchChildCommand() *cobra.Command {
	return &cobra.Command{
		Use: bench.ChildCommand[1] + " KIND", Hidden: true, Args: cobra.ExactArgs(1),
		RunE: func(c *cobra.Command, args []string) error {
			if err := bench.Child(args[0], os.Stdin, c.OutOrStdout()); err != nil {
				return &exitError{exitFailure, err}
			}
			return nil
		},
	}
}

func benchSeedsCommand() *cobra.Command {
	var o bench.Options
	var asJSON, silent bool
	c := &cobra.Command{
		Use:   "seeds",
		Short: "Measure the founding ideas, each against the design it replaced",
		Long: `seeds runs each founding idea of the project beside the design it replaced, both
compiled in, interleaved in one process (ABBA), over paths in memory, S5 over
loopback TCP. It needs no other program. Each side checks its own work: every tag
unique, every request answered once, every block in its place.

RATIO is the median of the paired ratios, SPREAD the smallest and largest of
them. A/A measures the same side against itself: a claim is VOID when that leaves
1.00 +-0.05, and is measured again first, up to three times, while --limit
allows it. A quiet machine
helps. GOMAXPROCS says how many CPUs are used.

Rare events (context switches) are counted per round instead: each has to meet the
goal, and A/A means nothing.

Exit code 1: a check failed, or a claim is void or not met.`,
		Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			ctx, stop := signal.NotifyContext(cmd.Context(), syscall.SIGINT, syscall.SIGTERM)
			defer stop()
			if !silent {
				o.Progress = os.Stderr
			}
			return benchSeeds(ctx, cmd.OutOrStdout(), o, asJSON)
		},
	}
	c.Flags().BoolVar(&asJSON, "json", false, "one JSON object per claim instead of the table")
	c.Flags().StringSliceVar(&o.Suites, "claim", nil, "which ideas: "+strings.Join(bench.SuiteNames(), ", ")+" (default all)")
	c.Flags().IntVar(&o.Rounds, "rounds", bench.MinRounds, "rounds of each experiment")
	c.Flags().DurationVar(&o.Limit, "limit", 15*time.Minute, "longest time for everything; 0: none")
	c.Flags().StringVar(&o.Plot, "plot", "", "folder for one SVG per idea")
	c.Flags().BoolVar(&o.Quick, "quick", false, "run everything for a moment: the checks only, no goal counts")
	c.Flags().BoolVarP(&silent, "silent", "q", false, "no progress on stderr")
	return c
}

func benchSeeds(ctx context.Context, out io.Writer, o bench.Options, asJSON bool) error {
	claims, err := bench.Seeds(ctx, o)
	print := bench.WriteTable
	if asJSON {
		print = bench.WriteJSON
	}
	err = firstError(err, print(out, claims))
	if err == nil && !o.Quick {
		err = bench.Verdict(claims)
	}
	if err != nil {
		return &exitError{exitFailure, fmt.Errorf("bench seeds: %w", err)}
	}
	return nil
}
