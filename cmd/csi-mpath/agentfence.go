package main

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/spf13/cobra"

	"github.com/csi-mpath/csi-mpath/pkg/agent/pki"
	"github.com/csi-mpath/csi-mpath/pkg/backend"
	"github.com/csi-mpath/csi-mpath/pkg/backend/agentclient"
)

// agentAccess are the flags of commands that ask an agent as a tenant.
type agentAccess struct {
	cfg     agentclient.Config
	timeout time.Duration
}

func (a *agentAccess) register(c *cobra.Command) {
	f := c.Flags()
	f.StringVar(&a.cfg.Address, "address", "", "the agent, host:port")
	f.StringVar(&a.cfg.ServerName, "server-name", "", "the name in the agent's certificate, if not the host of --address")
	f.StringVar(&a.cfg.TLS.Cert, "cert", "", "the tenant's certificate, PEM")
	f.StringVar(&a.cfg.TLS.Key, "key", "", "its key, PEM")
	f.StringVar(&a.cfg.TLS.CA, "ca", "", "the authority of the agent's certificate, PEM")
	f.DurationVar(&a.timeout, "timeout", time.Minute, "how long to wait")
	for _, name := range []string{"address", "cert", "key", "ca"} {
		_ = c.MarkFlagRequired(name)
	}
}

// ask calls f with the agent.
func (a *agentAccess) ask(ctx context.Context, f func(context.Context, backend.Backend) error) error {
	if _, err := pki.Open(a.cfg.TLS, nil); err != nil {
		return usage(err)
	}
	c, err := agentclient.New(a.cfg)
	if err != nil {
		return usage(err)
	}
	ctx, cancel := context.WithTimeout(ctx, a.timeout)
	defer cancel()
	if err := errors.Join(f(ctx, c), c.Close()); err != nil {
		return &exitError{exitFailure, err}
	}
	return nil
}

func agentFenceCommand() *cobra.Command {
	a := &agentAccess{}
	c := &cobra.Command{
		Use:   "fence --address HOST:PORT --cert FILE --key FILE --ca FILE NODE",
		Short: "Cut a node off from all volumes of its cluster, until unfence",
		Long: `fence takes all volumes of the tenant's cluster away from a node, and returns when
nothing that the node ever sent can change one any more. The node is refused from
then on, also after restarts of the agent, until unfence. When it fails, the node may
still write: call it again. It is for a node that does not answer and may still be
running; then its volumes can be used elsewhere.`,
		Args: cobra.ExactArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			return a.ask(cmd.Context(), func(ctx context.Context, b backend.Backend) error {
				if err := b.Fence(ctx, args[0]); err != nil {
					return fmt.Errorf("node %s may still write: %w", args[0], err)
				}
				fmt.Fprintf(cmd.OutOrStdout(), "node %s can write to no volume\n", args[0])
				return nil
			})
		},
	}
	a.register(c)
	return c
}

func agentUnfenceCommand() *cobra.Command {
	a := &agentAccess{}
	c := &cobra.Command{
		Use:   "unfence --address HOST:PORT --cert FILE --key FILE --ca FILE NODE",
		Short: "Let a fenced node in again",
		Args:  cobra.ExactArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			return a.ask(cmd.Context(), func(ctx context.Context, b backend.Backend) error { return b.Unfence(ctx, args[0]) })
		},
	}
	a.register(c)
	return c
}

func agentFencedCommand() *cobra.Command {
	a := &agentAccess{}
	c := &cobra.Command{
		Use:   "fenced --address HOST:PORT --cert FILE --key FILE --ca FILE",
		Short: "List the nodes that are fenced",
		Args:  cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			return a.ask(cmd.Context(), func(ctx context.Context, b backend.Backend) error {
				nodes, err := b.Fenced(ctx)
				for _, n := range nodes {
					fmt.Fprintln(cmd.OutOrStdout(), n)
				}
				return err
			})
		},
	}
	a.register(c)
	return c
}
