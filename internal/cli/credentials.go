package cli

import (
	"cmp"
	"context"
	"fmt"
	"io"
	"time"

	"github.com/spf13/cobra"

	"github.com/ephemeral-castle/castle/internal/cluster"
	"github.com/ephemeral-castle/castle/internal/operation/credentials"
	"github.com/ephemeral-castle/castle/internal/operation/status"
	"github.com/ephemeral-castle/castle/internal/run/expiry"
)

func newCredentials(a *app) *cobra.Command {
	return group("credentials", "Renew the kubeconfig and the talosconfig",
		"Renew the administrator's credentials. castle status --certificates lists what expires.",
		newCredentialsRenew(a))
}

func newCredentialsRenew(a *app) *cobra.Command {
	return a.runFlags(a.valueFlags(&cobra.Command{
		Use:   "renew CLUSTER",
		Short: "Renew the kubeconfig and the talosconfig, and prove them",
		Long: `Issue new client certificates for the kubeconfig and the talosconfig of a cluster, also if
those before have expired. Terraform replaces the resources that issue them and nothing
else; then the stages that pass them on are applied, such as the one that writes them to
Infisical. A plan that would do more is refused, and so is a stage that has other changes
to apply: exit code 4. At the end each credential is used once, is valid for longer than
the one before, and stands in the state directory and in the cluster's configs folder.

Nothing is interrupted, so castle does not ask. The credentials before stay valid until
they expire: only new authorities revoke them (castle recreate --rotate).`,
		Example: "  castle credentials renew blue",
		Args:    a.oneCluster(),
		RunE: a.onCluster(a.runReporter, func(ctx context.Context, c *cluster.Cluster, _ []string) error {
			return reporting(a, c, func() error { return credentials.Run(ctx, c) })
		}),
	}))
}

func showCertificates(a *app) action {
	return func(ctx context.Context, c *cluster.Cluster, _ []string) error {
		all, err := status.Certificates(ctx, c)
		if err != nil {
			return err
		}
		return a.print(all, func(w io.Writer) { printCertificates(w, all.Certificates) })
	}
}

// printCertificates prints a row for each credential: its name, when it expires, and what renews it.
func printCertificates(w io.Writer, items []expiry.Item) {
	if len(items) == 0 {
		fmt.Fprintln(w, "nothing is created that expires")
	}
	for _, i := range items {
		when := map[string]string{expiry.Never: "never expires", expiry.NotChecked: "not checked"}[i.State]
		if when == "" {
			when = fmt.Sprintf("%s, in %.0f days", i.Expires.UTC().Format(time.DateOnly),
				time.Until(i.Expires).Hours()/24)
		}
		if i.State == expiry.Expired {
			when = i.Expires.UTC().Format(time.DateOnly) + ", expired"
		}
		more := cmp.Or(i.Reason, textIf(i.Note != "", i.Note+"; ")+i.Fix)
		fmt.Fprintf(w, "%s\t%s\t%s\n", i.Name, when, more)
	}
}
