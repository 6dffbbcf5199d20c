package cli

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"slices"
	"strings"

	"github.com/spf13/cobra"

	"github.com/ephemeral-castle/castle/internal/cluster"
	"github.com/ephemeral-castle/castle/internal/fleet"
	"github.com/ephemeral-castle/castle/internal/foreign"
	"github.com/ephemeral-castle/castle/internal/operation/changed"
	"github.com/ephemeral-castle/castle/internal/process"
	"github.com/ephemeral-castle/castle/internal/report"
	"github.com/ephemeral-castle/castle/internal/scaffold"
)

func newChanged(a *app) *cobra.Command {
	since, choose := "", ""
	cmd := &cobra.Command{
		Use:   "changed --since REF",
		Short: "List the clusters that a change in Git touches",
		Long: `List the clusters that a change touches: castle compares the working tree, with what is not
committed, with the commit that REF and HEAD share (the merge base). A cluster depends on

  - its folder, castle.hcl, both files common.tfvars, and texts that it reads with file
  - the folders in stages/ of the stages that its cluster.hcl lists, with modules and charts
  - what Flux reads for it from git_path on, if that is in the same Git repository

castle contacts nothing, and the configuration need not be valid. A file that was renamed
counts with both names. A cluster that is not there any more is deleted: castle destroy
works from its record.

The exit code is 0 with any number of clusters, and 2 if there is no such commit, as in a
shallow clone. In a job of GitHub Actions, castle sets outputs for the jobs of a matrix:
clusters, and wave-NAME for each wave of fleet.hcl.`,
		Example: `  castle changed --since main
  castle changed --since HEAD~1 --select env=staging -o json`,
		Args: usage(cobra.NoArgs),
		RunE: func(cmd *cobra.Command, _ []string) error {
			if since == "" {
				return usageError(cmd, fmt.Errorf("name a commit, branch or tag with --since"))
			}
			o, err := a.complete(cluster.Options{})
			if err != nil {
				return err
			}
			chosen, err := fleet.ParseSelector(choose)
			if err != nil {
				return refuse("--%s: %v", selectFlag, err)
			}
			r, err := changed.Run(cmd.Context(), o, since, chosen)
			if err != nil {
				return err
			}
			err = a.print(r, func(w io.Writer) { printChanged(a, w, r) })
			return errors.Join(err, tellMatrices(a, o, r))
		},
	}
	cmd.Flags().StringVar(&since, "since", "", "the `REF` where the change began: a branch, tag or commit")
	cmd.Flags().StringVarP(&choose, selectFlag, "l", "", "only clusters whose labels the `SELECTOR` "+
		"chooses, such as env=staging,site!=rome")
	return cmd
}

// tellMatrices gives a job of GitHub the clusters that are touched, as the matrices of later jobs.
func tellMatrices(a *app, o cluster.Options, r *changed.Report) error {
	if findPipeline(a) != report.GitHub {
		return nil
	}
	f, diags := fleet.Load(o.Repository)
	if diags.HasErrors() {
		return &cluster.ConfigError{Diagnostics: diags, Files: f.Files}
	}
	all := fleet.Names(slices.Concat(f.Clusters(), f.Unassigned))
	var lines strings.Builder
	add := func(name string, clusters []fleet.Cluster) error {
		matrix, err := json.Marshal(scaffold.Legs(clusters, all))
		fmt.Fprintf(&lines, "%s=%s\n", name, matrix)
		return err
	}
	untouched := func(c fleet.Cluster) bool { return !r.Touches(c.Name) }
	err := add("clusters", slices.DeleteFunc(f.Clusters(), untouched))
	for _, p := range f.Parts(r.Touches) {
		err = errors.Join(err, add("wave-"+p.Name, p.Clusters))
	}
	return errors.Join(err, appendTo(process.Getenv(a.environ, "GITHUB_OUTPUT"), lines.String()))
}

// mostFiles is how many files a line of castle changed names.
const mostFiles = 3

func printChanged(a *app, w io.Writer, r *changed.Report) {
	if len(r.Clusters) > 0 {
		fmt.Fprintln(w, "cluster\tchange\tfiles")
	}
	for _, c := range r.Clusters {
		files := foreign.OneLine(strings.Join(c.Files[:min(len(c.Files), mostFiles)], ", "))
		if more := len(c.Files) - mostFiles; more > 0 {
			files += fmt.Sprintf(" and %d more", more)
		}
		fmt.Fprintf(w, "%s\t%s\t%s\n", c.Name, c.Change, files)
	}
	fmt.Fprintf(a.stderr, "castle: %s of %d touched since %s (%.12s)%s\n", count(len(r.Clusters), "cluster"),
		r.All, foreign.OneLine(r.Since), r.Base, textIf(len(r.Uncommitted) > 0,
			fmt.Sprintf("; %s not committed", count(len(r.Uncommitted), "file"))))
}
