package cli

import (
	"cmp"
	"fmt"
	"io"
	"strings"

	"github.com/spf13/cobra"

	"github.com/ephemeral-castle/castle/internal/cluster"
	"github.com/ephemeral-castle/castle/internal/foreign"
	"github.com/ephemeral-castle/castle/internal/outdated"
)

func newOutdated(a *app) *cobra.Command {
	return a.valueFlags(&cobra.Command{
		Use:   "outdated CLUSTER",
		Short: "List pinned versions, and newer ones that their sources offer",
		Long: `List the versions of Talos, Kubernetes, charts and Terraform providers that the configuration
of a cluster pins, and the newer ones that their sources offer. castle asks the image factory,
the repositories of the charts, the origins of the providers and a mirror of registry.k8s.io,
each at the address that the configuration names, and no other system. It changes nothing.

  current   the source has no newer release
  outdated  it has one: UPGRADE lists the releases to go through, one after the other
  missing   the repository of the chart has other versions, and not the pinned one
  unknown   castle could not look; the reason follows

Prereleases do not count. The exit code is 0 also if something is outdated or unknown.`,
		Example: `  castle outdated blue
  castle outdated blue -o json`,
		Args: a.oneCluster(),
		RunE: func(cmd *cobra.Command, args []string) error {
			o, err := a.complete(cluster.Options{Cluster: args[0]})
			if err != nil {
				return err
			}
			items, err := outdated.Run(cmd.Context(), o, nil)
			if err != nil {
				return err
			}
			return a.print(map[string]any{"versions": items}, func(w io.Writer) {
				fmt.Fprint(w, "kind\tname\tpinned\tstatus\tupgrade\t\n")
				for _, i := range items {
					fmt.Fprintf(w, "%s\t%s\t%s\t%s\t%s\t%s\n", i.Kind, i.Name, cmp.Or(i.Pinned, "-"),
						i.Status, cmp.Or(strings.Join(i.Path, ", "), "-"), foreign.OneLine(i.Note))
				}
			})
		},
	})
}
