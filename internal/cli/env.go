package cli

import (
	"fmt"

	"github.com/spf13/cobra"

	"github.com/ephemeral-castle/castle/internal/operation/status"
	"github.com/ephemeral-castle/castle/internal/process"
)

func newEnv(a *app) *cobra.Command {
	cmd := &cobra.Command{
		Use:   "env CLUSTER",
		Short: "Print shell exports for kubectl and talosctl",
		Long:  "Print shell exports for kubectl and talosctl: eval \"$(castle env blue)\".",
		Args:  a.oneCluster(),
		RunE: func(_ *cobra.Command, args []string) error {
			c, err := a.open(args[0], nil)
			if err != nil {
				return err
			}
			kubeconfig, talosconfig, err := status.Configs(c)
			if err != nil {
				return err
			}
			return a.print(map[string]string{"KUBECONFIG": kubeconfig, "TALOSCONFIG": talosconfig},
				func() error {
					_, err := fmt.Fprintf(a.stdout, "export KUBECONFIG=%s\nexport TALOSCONFIG=%s\n",
						process.Quote(kubeconfig), process.Quote(talosconfig))
					return err
				})
		},
	}
	a.valueFlags(cmd)
	return cmd
}
