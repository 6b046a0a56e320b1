package main

import (
	"fmt"
	"io"
	"os"
	"os/signal"
	"syscall"
	"text/tabwriter"
	"time"

	"github.com/spf13/cobra"

	"github.com/csi-mpath/csi-mpath/pkg/agent"
	"github.com/csi-mpath/csi-mpath/pkg/agent/config"
	"github.com/csi-mpath/csi-mpath/pkg/agent/keeper"
	"github.com/csi-mpath/csi-mpath/pkg/agent/pki"
	"github.com/csi-mpath/csi-mpath/pkg/durable"
	"github.com/csi-mpath/csi-mpath/pkg/faultpoint"
)

func agentCommand() *cobra.Command {
	var file string
	var check, example bool
	c := &cobra.Command{
		Use:   "agent {--config FILE [--check] | --example}",
		Short: "Make this machine's disks a storage backend of clusters",
		Long: `agent runs on a plain Linux server. It makes volumes in LVM thin pools or
directories, and serves them over iSCSI and NVMe/TCP by the kernel's targets or its
own, to exactly the nodes that the controllers of clusters publish them to. It
listens for controllers with gRPC over mutual TLS 1.3; each cluster is a tenant,
named by its certificate, and sees its own volumes only.

What was published is restored at start, identically. The log is JSON lines on
stderr; each call that changes something is one with "msg":"audit". SIGTERM or
Ctrl-C waits for the calls that run, up to 30 s; a second signal ends at once. What
the kernel serves goes on without the agent.

docs/agent.md is the way from a plain server to a backend.`,
		Example: `  csi-mpath agent init --dir /etc/csi-mpath/tls --host storage-1.example --host 192.0.2.10 --tenant prod
  csi-mpath agent --example >/etc/csi-mpath/agent.yaml
  csi-mpath agent --config /etc/csi-mpath/agent.yaml --check
  csi-mpath agent --config /etc/csi-mpath/agent.yaml`,
		Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			if example {
				_, err := io.WriteString(cmd.OutOrStdout(), config.Example)
				return err
			}
			cfg, err := readAgent(file)
			if err != nil {
				return usage(err)
			}
			if check {
				fmt.Fprintf(cmd.OutOrStdout(), "%s is right: %s\n", file, plural(len(cfg.Pools), "pool"))
				return nil
			}
			faultpoint.Arm()
			signals := make(chan os.Signal, 4)
			signal.Notify(signals, syscall.SIGINT, syscall.SIGTERM)
			defer signal.Stop(signals)
			return runAgent(cmd.ErrOrStderr(), cfg, signals)
		},
	}
	c.Flags().StringVarP(&file, "config", "c", "", "configuration, YAML")
	c.Flags().BoolVar(&check, "check", false, "read and check the configuration and its certificates, serve nothing")
	c.Flags().BoolVar(&example, "example", false, "print a configuration with comments")
	c.MarkFlagsOneRequired("config", "example")
	c.MarkFlagsMutuallyExclusive("config", "example")
	c.AddCommand(agentInitCommand(), agentStatusCommand(), agentOrphansCommand(), agentFenceCommand(), agentUnfenceCommand(), agentFencedCommand())
	return c
}

// readAgent reads a configuration, and the certificates that it names.
func readAgent(path string) (*config.Config, error) {
	b, err := durable.Read(path, config.MaxFile)
	if err != nil {
		return nil, err
	}
	c, err := config.Parse(b)
	if err != nil {
		return nil, fmt.Errorf("%s: %w", path, err)
	}
	if _, err := pki.Open(certificates(c), nil); err != nil {
		return nil, fmt.Errorf("%s: tls: %w; 'csi-mpath agent init' makes a first set", path, err)
	}
	return c, nil
}

func certificates(c *config.Config) pki.Files {
	return pki.Files{Cert: c.TLS.Cert, Key: c.TLS.Key, CA: c.TLS.ClientCA}
}

func agentInitCommand() *cobra.Command {
	var dir, tenant string
	var hosts []string
	var clientOnly bool
	c := &cobra.Command{
		Use:   "init --dir DIR --tenant NAME {--host NAME|IP ... | --client-only}",
		Short: "Make a certificate authority and certificates for a first trial",
		Long: `init makes in a directory a certificate authority (ca), a certificate for the agent
(server), and one for the clients of a tenant (client-TENANT), each a .crt and a .key
file, the keys readable for their owner only. Nothing is ever overwritten.

The agent needs server.crt, server.key and ca.crt; the cluster's controller needs
client-TENANT.crt, client-TENANT.key and ca.crt. Keep ca.key somewhere else: whoever
has it can be any tenant. --client-only makes a certificate for one more tenant, by
the authority that is there. Certificates are valid for two years, and are read
again when their files change.`,
		Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			var made []string
			var err error
			if clientOnly {
				made, err = pki.AddClient(dir, tenant, time.Now())
			} else {
				made, err = pki.Init(dir, hosts, tenant, time.Now())
			}
			for _, f := range made {
				fmt.Fprintln(cmd.OutOrStdout(), f)
			}
			return usage(err)
		},
	}
	c.Flags().StringVar(&dir, "dir", "", "where the files go")
	c.Flags().StringVar(&tenant, "tenant", "", "the cluster's name at this agent: a-z, 0-9 and hyphens")
	c.Flags().StringArrayVar(&hosts, "host", nil, "a DNS name or address that controllers reach the agent by (repeated)")
	c.Flags().BoolVar(&clientOnly, "client-only", false, "only a certificate for one more tenant")
	_ = c.MarkFlagRequired("dir")
	_ = c.MarkFlagRequired("tenant")
	c.MarkFlagsOneRequired("host", "client-only")
	c.MarkFlagsMutuallyExclusive("host", "client-only")
	return c
}

func socketFlag(c *cobra.Command) *string {
	return c.Flags().String("socket", config.DefaultAdmin, "the agent's socket, 'admin' in its configuration")
}

func agentStatusCommand() *cobra.Command {
	c := &cobra.Command{
		Use:   "status",
		Short: "Show how the agent of this machine is",
		Long: `status shows pools, publications, sessions and problems of the agent that runs on
this machine, of all tenants. It exits with 1 if there are problems.`,
		Args: cobra.NoArgs,
	}
	socket := socketFlag(c)
	c.RunE = func(cmd *cobra.Command, _ []string) error {
		var st agent.Status
		if err := agent.Ask(cmd.Context(), *socket, "status", &st); err != nil {
			return &exitError{exitFailure, err}
		}
		printAgent(cmd.OutOrStdout(), &st)
		if n := len(st.Problems); n > 0 {
			return &exitError{exitFailure, fmt.Errorf("%s", plural(n, "problem"))}
		}
		return nil
	}
	return c
}

func printAgent(out io.Writer, st *agent.Status) {
	fmt.Fprintf(out, "agent %s, up %s, %s of clients\n", st.Version, time.Since(st.Started).Round(time.Second), plural(st.Connections, "connection"))
	fmt.Fprintf(out, "%s published to nodes %s, %d being revoked, %s, %s fenced\n", plural(st.Stats.Volumes, "volume"),
		plural(st.Stats.Publications, "time"), st.Stats.Revoking, plural(st.Stats.Sessions, "session"), plural(st.Stats.Fenced, "node"))
	w := tabwriter.NewWriter(out, 0, 4, 2, ' ', 0)
	fmt.Fprintln(w, "POOL\tTOTAL\tUSED\tPROMISED\tAVAILABLE\tSTATE")
	for _, name := range sorted(st.Pools) {
		u, state := st.Pools[name], "ok"
		switch {
		case u.Full:
			state = "full"
		case u.Filling:
			state = "filling"
		}
		fmt.Fprintf(w, "%s\t%s\t%s\t%s\t%s\t%s\n", name, sizeText(uint64(max(0, u.Total))), sizeText(uint64(max(0, u.Used))), //nolint:gosec // not negative
			sizeText(uint64(max(0, u.Promised))), sizeText(uint64(max(0, u.Available))), state) //nolint:gosec // not negative
	}
	_ = w.Flush()
	for _, p := range st.Problems {
		fmt.Fprintln(out, "problem:", p)
	}
}

func agentOrphansCommand() *cobra.Command {
	c := &cobra.Command{
		Use:   "orphans",
		Short: "List what nothing refers to at the agent of this machine",
		Long: `orphans lists exports, unfinished volumes, publications and files of the journal of
the agent on this machine that nothing refers to, and how to be rid of each. Nothing
is removed: docs/agent.md says what is safe.`,
		Args: cobra.NoArgs,
	}
	socket := socketFlag(c)
	c.RunE = func(cmd *cobra.Command, _ []string) error {
		var all []keeper.Orphan
		if err := agent.Ask(cmd.Context(), *socket, "orphans", &all); err != nil {
			return &exitError{exitFailure, err}
		}
		w := tabwriter.NewWriter(cmd.OutOrStdout(), 0, 4, 2, ' ', 0)
		fmt.Fprintln(w, "KIND\tTENANT\tPOOL\tNAME\tSINCE\tWHY")
		for _, o := range all {
			fmt.Fprintf(w, "%s\t%s\t%s\t%s\t%s\t%s\n", o.Kind, o.Tenant, o.Pool, o.Name, o.Since.Format(time.RFC3339), o.Why)
		}
		return w.Flush()
	}
	return c
}
