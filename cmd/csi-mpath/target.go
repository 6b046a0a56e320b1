package main

import (
	"fmt"
	"io"
	"os"
	"os/signal"
	"strings"
	"syscall"

	"github.com/spf13/cobra"

	"github.com/csi-mpath/csi-mpath/pkg/device"
	"github.com/csi-mpath/csi-mpath/pkg/durable"
	"github.com/csi-mpath/csi-mpath/pkg/target/config"
	"github.com/csi-mpath/csi-mpath/pkg/target/estate"
)

func targetCommand() *cobra.Command {
	var file string
	var check, example bool
	c := &cobra.Command{
		Use:   "target {--config FILE [--check] | --example}",
		Short: "Serve memory and files over iSCSI and NVMe/TCP",
		Long: `target serves the iSCSI targets and NVMe subsystems of a configuration in the
foreground, over any number of portals: memory, files and block devices, with CHAP
or DH-HMAC-CHAP, access lists, ALUA or ANA groups and reservations. 'csi-mpath
target --example' prints a configuration.

SIGHUP reads the configuration again: targets, portals, LUNs and namespaces come and
go, they grow, access states and access change, and what stays is not disturbed. A
mistake in the file changes nothing. SIGTERM or Ctrl-C makes what was written durable and
ends; a second signal ends at once.`,
		Example: `  csi-mpath target --example >demo.yaml
  csi-mpath target --config demo.yaml`,
		Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			out := cmd.OutOrStdout()
			if example {
				_, err := io.WriteString(out, config.Example)
				return err
			}
			cfg, err := readTargets(file)
			if err != nil {
				return usage(err)
			}
			if check {
				fmt.Fprintf(out, "%s is right: %d targets\n", file, len(cfg.Targets))
				return nil
			}
			signals := make(chan os.Signal, 4)
			signal.Notify(signals, syscall.SIGINT, syscall.SIGTERM, syscall.SIGHUP)
			defer signal.Stop(signals)
			return serveTargets(out, file, cfg, signals)
		},
	}
	c.Flags().StringVarP(&file, "config", "c", "", "configuration, YAML")
	c.Flags().BoolVar(&check, "check", false, "read and check the configuration and its secret files, serve nothing")
	c.Flags().BoolVar(&example, "example", false, "print a configuration with comments")
	c.MarkFlagsOneRequired("config", "example")
	c.MarkFlagsMutuallyExclusive("config", "example")
	return c
}

// readTargets reads a configuration and looks into the secret files it names.
func readTargets(path string) (*config.Config, error) {
	b, err := durable.Read(path, config.MaxFile)
	if err != nil {
		return nil, err
	}
	c, err := config.Parse(b)
	if err != nil {
		return nil, fmt.Errorf("%s: %w", path, err)
	}
	if err := lookIntoSecrets(c); err != nil {
		return nil, fmt.Errorf("%s: %w", path, err)
	}
	return c, nil
}

// lookIntoSecrets reads the secret files of a configuration and forgets them.
func lookIntoSecrets(c *config.Config) error {
	chap, dhchap := []config.Auth{c.Discovery}, []config.Auth{c.DiscoveryDHChap}
	for _, t := range c.Targets {
		if !t.NVMe {
			chap = append(chap, t.Auth)
			continue
		}
		dhchap = append(dhchap, t.Auth)
		for _, a := range t.HostAuth {
			dhchap = append(dhchap, a)
		}
	}
	for _, a := range chap {
		if a.SecretFile == "" {
			continue
		}
		if _, err := device.ReadSecretFile(a.SecretFile); err != nil {
			return err
		}
	}
	for _, a := range dhchap {
		if a.SecretFile == "" {
			continue
		}
		if _, err := device.ReadDHChapFiles(a.SecretFile, a.ControllerSecretFile); err != nil {
			return err
		}
	}
	return nil
}

// serveTargets runs until a signal that ends it.
func serveTargets(out io.Writer, file string, cfg *config.Config, signals <-chan os.Signal) error {
	e, err := estate.Open(cfg, estate.Options{Secrets: device.ReadSecretFile, DHChap: device.ReadDHChapFiles})
	if err != nil {
		return &exitError{exitFailure, err}
	}
	printServed(out, "ready", e.Targets())
	for s := range signals {
		if s != syscall.SIGHUP {
			break
		}
		if err := reload(e, file); err != nil {
			fmt.Fprintf(out, "not changed: %v\n", err)
			continue
		}
		printServed(out, "changed", e.Targets())
	}
	fmt.Fprintln(out, "stopping: making durable what was written (a second signal ends it at once)")
	done := make(chan error, 1)
	go func() { done <- e.Close() }()
	select {
	case err = <-done:
	case <-signals:
		err = fmt.Errorf("ended before everything was durable")
	}
	if err != nil {
		return &exitError{exitFailure, err}
	}
	fmt.Fprintln(out, "stopped")
	return nil
}

func reload(e *estate.Estate, file string) error {
	cfg, err := readTargets(file)
	if err != nil {
		return err
	}
	return e.Apply(cfg)
}

// printServed says what is served, and how to get it.
func printServed(out io.Writer, what string, all []estate.Target) {
	seen, portals := map[string]bool{}, []string{}
	for _, t := range all {
		for _, p := range t.Portals {
			if !seen[p] {
				seen[p] = true
				portals = append(portals, p)
			}
		}
	}
	fmt.Fprintf(out, "%s: %s on %s\n", what, plural(len(all), "target"), strings.Join(portals, ", "))
	for _, t := range all {
		for _, l := range t.LUNs {
			printUnit(out, &t, l, strings.Join(t.Portals, ","))
		}
	}
}

// printUnit says how to get one LUN or namespace.
func printUnit(out io.Writer, t *estate.Target, l estate.LUN, portals string) {
	unit, flags, socket, secret := "LUN", fmt.Sprintf("--iscsi %s --target %s --lun %d", portals, t.Name, l.Number), "lun", "--chap-secret-file"
	if t.NVMe {
		unit, flags, socket, secret = "namespace", fmt.Sprintf("--nvme-tcp %s --subsystem %s --nsid %d", portals, t.Name, l.Number), "ns", "--dhchap-secret-file"
	}
	if t.Auth {
		flags += " " + secret + " FILE"
	}
	fmt.Fprintf(out, "  %s %s %d: %s, %s\n    csi-mpath attach %s --socket /tmp/%s%d.sock\n",
		t.Name, unit, l.Number, sizeText(l.Size), l.Store, flags, socket, l.Number)
}

func plural(n int, what string) string {
	if n == 1 {
		return "1 " + what
	}
	return fmt.Sprintf("%d %ss", n, what)
}
