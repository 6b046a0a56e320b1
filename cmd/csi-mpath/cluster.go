package main

import (
	"context"
	"fmt"
	"strings"
	"time"

	"github.com/spf13/cobra"
	"k8s.io/client-go/kubernetes"

	"github.com/csi-mpath/csi-mpath/pkg/agent/demo"
	"github.com/csi-mpath/csi-mpath/pkg/cluster"
	"github.com/csi-mpath/csi-mpath/pkg/driver"
)

// askWithin bounds what one of these commands asks of the API server.
const askWithin = time.Minute

// kubeconfigFlag is how these commands reach a cluster.
func kubeconfigFlag(c *cobra.Command) *string {
	return c.PersistentFlags().String("kubeconfig", "", "file that says how the cluster is reached; empty: the cluster it runs in")
}

func clusterCommand() *cobra.Command {
	c := &cobra.Command{
		Use:   "cluster {check | in-use | prepare-demo}",
		Short: "Look at the driver's installation in a Kubernetes cluster",
		Long: `These commands are what the chart runs: 'helm test' runs check, 'helm uninstall' asks
in-use first. Outside of a cluster they take --kubeconfig.`,
	}
	kubeconfig := kubeconfigFlag(c)
	c.AddCommand(checkCommand(kubeconfig), inUseCommand(kubeconfig), prepareDemoCommand(kubeconfig))
	return c
}

// withCluster runs what asks a cluster.
func withCluster(cmd *cobra.Command, kubeconfig string, run func(context.Context, kubernetes.Interface) error) error {
	client, err := cluster.Connect(kubeconfig, "csi-mpath/"+version)
	if err != nil {
		return usage(fmt.Errorf("%w: run it in a pod, or with --kubeconfig", err))
	}
	ctx, cancel := context.WithTimeout(cmd.Context(), askWithin)
	defer cancel()
	if err := run(ctx, client); err != nil {
		return &exitError{exitFailure, err}
	}
	return nil
}

func checkCommand(kubeconfig *string) *cobra.Command {
	i := cluster.Installation{Driver: driver.Name}
	c := &cobra.Command{
		Use:   "check",
		Short: "Say whether everything is there that a volume needs",
		Args:  cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			return withCluster(cmd, *kubeconfig, func(ctx context.Context, client kubernetes.Interface) error {
				good, err := i.Check(ctx, client)
				for _, line := range good {
					fmt.Fprintln(cmd.OutOrStdout(), "ok:", line)
				}
				return err
			})
		},
	}
	c.Flags().StringVar(&i.Namespace, "namespace", "csi-mpath", "where the driver is installed")
	c.Flags().StringVar(&i.Controller, "controller", "csi-mpath-controller", "name of the controller's Deployment")
	c.Flags().StringVar(&i.Node, "node", "csi-mpath-node", "name of the node plugin's DaemonSet")
	return c
}

func inUseCommand(kubeconfig *string) *cobra.Command {
	return &cobra.Command{
		Use:   "in-use",
		Short: "Fail while volumes of the driver are attached to nodes",
		Args:  cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			return withCluster(cmd, *kubeconfig, func(ctx context.Context, client kubernetes.Interface) error {
				all, err := cluster.InUse(ctx, client, driver.Name)
				if err == nil && len(all) > 0 {
					err = fmt.Errorf("%s attached: delete the pods that use them first; without the driver nobody detaches them\n  %s", plural(len(all), "volume"), strings.Join(all, "\n  "))
				}
				if err == nil {
					fmt.Fprintln(cmd.OutOrStdout(), "no volume is attached")
				}
				return err
			})
		},
	}
}

func prepareDemoCommand(kubeconfig *string) *cobra.Command {
	var h demo.Host
	c := &cobra.Command{
		Use:   "prepare-demo --dir DIR --namespace NAME --secret NAME {--service NAME | --address IP}",
		Short: "Prepare a storage host in a pod: its certificates and configuration",
		Args:  cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			return withCluster(cmd, *kubeconfig, func(ctx context.Context, client kubernetes.Interface) error {
				return h.Prepare(ctx, client, time.Now())
			})
		},
	}
	c.Flags().StringVar(&h.Dir, "dir", "", "where everything of it is; the agent is started with DIR/agent.yaml")
	c.Flags().StringVar(&h.Namespace, "namespace", "", "of the Secret and the Service")
	c.Flags().StringVar(&h.Secret, "secret", "", "Secret that the certificates are shared by; it must be there, and may be empty")
	c.Flags().StringVar(&h.Service, "service", "", "Service that it is reached by")
	c.Flags().StringVar(&h.Address, "address", "", "address that it is reached by; empty: the Service's")
	for _, f := range []string{"dir", "namespace", "secret"} {
		cobra.CheckErr(c.MarkFlagRequired(f))
	}
	c.MarkFlagsOneRequired("service", "address")
	return c
}
