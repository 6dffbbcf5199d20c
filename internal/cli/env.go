package cli

import (
	"context"
	"fmt"
	"io"

	"github.com/spf13/cobra"

	"github.com/ephemeral-castle/castle/internal/cluster"
	"github.com/ephemeral-castle/castle/internal/operation/status"
	"github.com/ephemeral-castle/castle/internal/process"
)

func newEnv(a *app) *cobra.Command {
	return a.valueFlags(&cobra.Command{
		Use:   "env CLUSTER",
		Short: "Print shell exports for kubectl and talosctl",
		Long:  "Print shell exports for kubectl and talosctl: eval \"$(castle env blue)\".",
		Example: `  eval "$(castle env blue)"
  castle env blue -o json`,
		Args: a.oneCluster(),
		RunE: a.onCluster(nil, func(ctx context.Context, c *cluster.Cluster, _ []string) error {
			kubeconfig, talosconfig, err := status.Configs(ctx, c)
			if err != nil {
				return err
			}
			all := map[string]string{"KUBECONFIG": kubeconfig, "TALOSCONFIG": talosconfig}
			return a.print(all, func(io.Writer) {
				fmt.Fprintf(values(a), "export KUBECONFIG=%s\nexport TALOSCONFIG=%s\n",
					process.Quote(kubeconfig), process.Quote(talosconfig))
			})
		}),
	})
}
