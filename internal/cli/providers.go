package cli

import (
	"context"
	"fmt"
	"io"
	"regexp"
	"strings"

	"github.com/spf13/cobra"

	"github.com/ephemeral-castle/castle/internal/cluster"
	"github.com/ephemeral-castle/castle/internal/folders"
	"github.com/ephemeral-castle/castle/internal/operation/providers"
	lockfile "github.com/ephemeral-castle/castle/internal/providers"
)

func newProviders(a *app) *cobra.Command {
	return group("providers", "Record, upgrade and mirror the Terraform providers of a cluster",
		`The file clusters/<name>/<platform>/providers.lock.hcl records the versions and checksums
of all Terraform providers of a cluster, in Terraform's own format. So every machine uses
the same ones. The first create writes it; keep it in Git.`,
		newProvidersUpgrade(a), newProvidersLock(a), newProvidersMirror(a))
}

func newProvidersUpgrade(a *app) *cobra.Command {
	return &cobra.Command{
		Use:   "upgrade CLUSTER",
		Short: "Choose the newest providers that the stages allow",
		Long: `Choose the newest version of each provider that the version constraints of all stages
allow, and rewrite providers.lock.hcl with its checksums. castle changes nothing else:
castle plan shows what the new versions would change.`,
		Example:    "  castle providers upgrade blue",
		SuggestFor: []string{"update"},
		Args:       a.oneCluster(),
		RunE:       onLockFile(a, providers.Upgrade),
	}
}

func newProvidersLock(a *app) *cobra.Command {
	return &cobra.Command{
		Use:   "lock CLUSTER",
		Short: "Record the providers of all stages, and their checksums for other platforms",
		Long: `Add to providers.lock.hcl what it lacks: the providers of stages that were never created,
and checksums for linux_amd64, linux_arm64 and darwin_arm64. No recorded version changes.`,
		Example: "  castle providers lock blue",
		Args:    a.oneCluster(),
		RunE:    onLockFile(a, providers.Lock),
	}
}

// onLockFile returns a runE that writes the lock file of a cluster.
func onLockFile(a *app, write func(context.Context, *cluster.Cluster) (*providers.Result, error)) runE {
	return func(cmd *cobra.Command, args []string) error {
		c, err := a.open(cmd.Context(), cluster.Options{Cluster: args[0], AnyPlace: true})
		if err != nil {
			return err
		}
		r, err := write(cmd.Context(), c)
		if err != nil {
			return err
		}
		return a.print(r, func(w io.Writer) { printProviders(w, r) })
	}
}

func printProviders(w io.Writer, r *providers.Result) {
	for _, change := range r.Changes {
		text := change.New
		switch {
		case change.Old == "":
			text += " (new)"
		case change.Old != change.New:
			text = change.Old + " → " + change.New
		case change.Changed:
			text += " (checksum changed)"
		}
		fmt.Fprintf(w, "%s\t%s\t%s\n", change.Provider, text, strings.Join(change.Platforms, " "))
	}
	fmt.Fprintf(w, "wrote %s; keep it in Git\n", r.File)
	if len(r.Missing) > 0 {
		fmt.Fprintf(w, "no checksums of some providers for %s: where Terraform installs them from, "+
			"there are none\n", strings.Join(r.Missing, " and "))
	}
	if r.Next != "" {
		fmt.Fprintf(w, "next: %s\n", r.Next)
	}
}

var platformPattern = regexp.MustCompile(`^[a-z0-9]+_[a-z0-9]+$`)

func newProvidersMirror(a *app) *cobra.Command {
	var platforms []string
	cmd := &cobra.Command{
		Use:   "mirror DIR [CLUSTER…]",
		Short: "Copy providers and Terraform for machines without internet",
		Long: `Copy the providers that the lock files of the repository's clusters record, and the
Terraform that castle runs, into DIR. castle verifies every provider against
providers.lock.hcl, and Terraform's signature.

On the machine without internet, Terraform installs providers from DIR/providers. The
configuration for that is DIR/terraformrc (TF_CLI_CONFIG_FILE). castle finds Terraform on
PATH, in DIR/terraform/<platform>.`,
		Example: `  castle providers mirror /media/usb/castle
  castle providers mirror ./mirror blue --platform linux_amd64`,
		Args: usage(cobra.MinimumNArgs(1)),
		RunE: func(cmd *cobra.Command, args []string) error {
			names := args[1:]
			for _, p := range platforms {
				if !platformPattern.MatchString(p) {
					return usageError(cmd, fmt.Errorf("--platform %q: it is not like %s", p, lockfile.Here()))
				}
			}
			if len(names) == 0 {
				repository, err := folders.Find(a.directory)
				if err != nil {
					return refuse("%v", err)
				}
				if names, err = folders.Clusters(repository); err != nil {
					return err
				}
			}
			var clusters []*cluster.Cluster
			for _, name := range names {
				c, err := a.open(cmd.Context(), cluster.Options{Cluster: name, AnyPlace: true})
				if err != nil {
					return err
				}
				clusters = append(clusters, c)
			}
			if len(clusters) == 0 {
				return refuse("the repository has no cluster")
			}
			m, err := providers.Mirror(cmd.Context(), clusters, args[0], platforms)
			if err != nil {
				return err
			}
			if err := a.print(m, func(w io.Writer) { printMirror(w, m) }); err != nil {
				return err
			}
			if len(m.Missing) > 0 && cmd.Flags().Changed("platform") {
				return fmt.Errorf("%s is not complete", m.Dir)
			}
			return nil
		},
	}
	cmd.Flags().StringSliceVar(&platforms, "platform", lockfile.Platforms(),
		"copy for `PLATFORM`; repeatable")
	return cmd
}

func printMirror(w io.Writer, m *providers.Mirrored) {
	for _, name := range m.Packages {
		fmt.Fprintf(w, "%s\n", name)
	}
	for _, name := range m.Missing {
		fmt.Fprintf(w, "missing: %s\n", name)
	}
	fmt.Fprintf(w, `
On the machine without internet:
  export TF_CLI_CONFIG_FILE=%s
  export PATH=%s:$PATH
If the folder has another path there, change it in %s.
`, m.CLIConfig, m.Dir+"/terraform/"+lockfile.Here(), m.CLIConfig)
}
