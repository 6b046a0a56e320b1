package main

import (
	"encoding/json"
	"fmt"
	"io"
	"text/tabwriter"
	"time"

	"github.com/spf13/cobra"

	"github.com/csi-mpath/csi-mpath/pkg/datapath"
	"github.com/csi-mpath/csi-mpath/pkg/device"
)

func pathsCommand() *cobra.Command {
	var stateDir, output string
	c := &cobra.Command{
		Use:   "paths",
		Short: "Show the paths of every volume attached on this host",
		Long: `paths asks each attached volume for its path table: state, access state, answer
time, commands in flight, losses, and whether writes of a lost connection are
still in doubt (FENCE).`,
		Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			if output != "table" && output != "json" {
				return usage(fmt.Errorf("-o %q: want table or json", output))
			}
			all, err := device.ReadStatus(stateDir)
			if output == "json" {
				err = firstError(writeJSON(cmd.OutOrStdout(), all), err)
			} else {
				printAll(cmd.OutOrStdout(), all, stateDir)
			}
			if err != nil {
				return &exitError{exitFailure, err}
			}
			return nil
		},
	}
	c.Flags().StringVar(&stateDir, "state-dir", defaultStateDir(), "state directory of the attached volumes")
	c.AddCommand(orderCommands()...)
	c.Flags().StringVarP(&output, "output", "o", "table", "table or json")
	return c
}

func firstError(errs ...error) error {
	for _, err := range errs {
		if err != nil {
			return err
		}
	}
	return nil
}

func writeJSON(out io.Writer, v []datapath.Status) error {
	if v == nil {
		v = []datapath.Status{}
	}
	e := json.NewEncoder(out)
	e.SetIndent("", "  ")
	return e.Encode(v)
}

func printAll(out io.Writer, all []datapath.Status, stateDir string) {
	if len(all) == 0 {
		fmt.Fprintf(out, "no volume is attached with state directory %s\n", stateDir)
		return
	}
	printTable(out, all)
}

// counter counts the lines that pass.
type counter struct {
	w io.Writer
	n int
}

func (c *counter) Write(p []byte) (int, error) {
	for _, b := range p {
		if b == '\n' {
			c.n++
		}
	}
	return c.w.Write(p)
}

// printTable prints volumes and their paths and returns the number of lines.
func printTable(out io.Writer, all []datapath.Status) int {
	c := &counter{w: out}
	for _, st := range all {
		fmt.Fprintf(c, "%s  %s  %s  %s\n", st.Name, sizeText(st.Size), st.Identity.Device, summary(st))
		w := tabwriter.NewWriter(c, 0, 0, 2, ' ', 0)
		fmt.Fprintln(w, "  PATH\tSTATE\tACCESS\tUSE\tLATENCY\tIN FLIGHT\tLOSSES\tFENCE\tFOR\tLAST ERROR")
		for _, p := range st.Paths {
			fmt.Fprintf(w, "  %s\t%s\t%s\t%s\t%s\t%d\t%d\t%s\t%s\t%s\n", p.Name, stateOf(p), dash(p.Access), use(p), latency(p.Latency),
				p.Commands, p.Errors, fence(p), time.Since(p.Since).Round(time.Second), short(p.LastError))
		}
		_ = w.Flush()
	}
	return c.n
}

func summary(st datapath.Status) string {
	s := fmt.Sprintf("%d of %d paths usable", st.Usable, len(st.Paths))
	if st.InDoubt > 0 {
		s += fmt.Sprintf(", %d ranges in doubt", st.InDoubt)
	}
	return s
}

func stateOf(p datapath.PathStatus) string {
	if p.InLine {
		return p.State + " (in line)" // others log in first: see device.Logins
	}
	return p.State
}

func dash(s string) string {
	if s == "" {
		return "-"
	}
	return s
}

// use says whether new I/O goes over the path, and if not why.
func use(p datapath.PathStatus) string {
	switch {
	case p.Group == "":
		return "-"
	case p.InUse:
		return "yes"
	case p.Group == "marginal" || p.Group == "drained":
		return p.Group
	}
	return "standby"
}

func latency(d time.Duration) string {
	if d == 0 {
		return "-"
	}
	return d.Round(time.Microsecond).String()
}

func fence(p datapath.PathStatus) string {
	if p.Fences == 0 {
		return "-"
	}
	return "within " + time.Until(p.FenceAt).Round(100*time.Millisecond).String()
}

func short(s string) string {
	const most = 60
	if r := []rune(s); len(r) > most {
		return string(r[:most-1]) + "…"
	}
	return dash(s)
}
