package cli

import (
	"cmp"
	"context"
	"fmt"
	"io"
	"os"
	"path"
	"path/filepath"
	"slices"
	"strings"

	"github.com/siderolabs/gen/xslices"
	"github.com/spf13/cobra"

	"github.com/ephemeral-castle/castle/internal/cluster"
	"github.com/ephemeral-castle/castle/internal/config"
	"github.com/ephemeral-castle/castle/internal/fleet"
	"github.com/ephemeral-castle/castle/internal/folders"
	"github.com/ephemeral-castle/castle/internal/operation/changed"
	"github.com/ephemeral-castle/castle/internal/process"
	"github.com/ephemeral-castle/castle/internal/scaffold"
	"github.com/ephemeral-castle/castle/internal/store/location"
)

const mainBranch = "main"

func newCI(a *app) *cobra.Command {
	p, many, since := scaffold.Pipeline{}, false, ""
	cmd := &cobra.Command{
		Use:   "ci github|gitlab [CLUSTER…]",
		Short: "Write a pipeline for GitHub Actions or GitLab CI/CD",
		Long: `Write .github/workflows/castle.yml or .gitlab-ci.yml for the named clusters, or for all of
the repository:

  - on a pull request, castle check and castle plan, with the plan for review;
  - on the main branch, castle plan and castle create --plan, which applies exactly that
    plan, and nothing if it replaces or destroys a resource;
  - by hand, create with such losses, destroy and recreate;
  - every night, castle status and castle doctor.

The jobs share nothing but the store of the states: castle.hcl or CASTLE_STATE_STORE has to
name one. A saved plan holds secrets, and people who can read the repository can read what a
job keeps. So castle.hcl also has to name recipients of encryption. docs/ci.md describes the
set-up.

The same command updates the file. castle never overwrites a file that it did not write, and
its own one only with --force if somebody has changed it. The jobs use the castle that wrote
the file; a development build cannot be installed, and has to be on the runners' PATH.

With --fleet, the waves of fleet.hcl are the jobs, for the clusters that a change touches
(castle changed): a matrix for each wave, on runners with the label of the cluster's site.
GitHub's file is .github/workflows/castle-fleet.yml. The pipeline of GitLab writes that of
its waves itself, with --since. A pipeline cannot count failures: castle refuses a wave with
max_failures.`,
		Example: "  castle ci github\n  castle ci gitlab blue --runner homelab\n  castle ci github --fleet",
		Args:    usage(cobra.MinimumNArgs(1)),
		RunE: func(cmd *cobra.Command, args []string) error {
			system, err := pipelineSystem(args[0])
			if err != nil {
				return err
			}
			if !cmd.Flags().Changed("runner") {
				p.Runner = system.Runner
			}
			p.Command = "castle ci " + strings.Join(append(args, flagsOf(cmd)...), " ")
			switch {
			case many && len(args) > 1:
				return refuse("--fleet takes no clusters: fleet.hcl has them")
			case since != "" && (!many || system.Name != "gitlab"):
				return refuse("--since is for `castle ci gitlab --fleet`")
			case many:
				p.Fleet = &scaffold.Fleet{Since: since, Child: p.Command}
			}
			return writePipeline(cmd.Context(), a, *system, p, args[1:])
		},
	}
	f := cmd.Flags()
	f.StringVar(&p.Path, "file", "", "write to `FILE` in the Git repository")
	f.StringVar(&p.Branch, "branch", mainBranch, "the branch `NAME` whose configuration the clusters have")
	f.StringVar(&p.Runner, "runner", "", "the `LABEL` or tag of the runners (default for gitlab: castle)")
	f.StringSliceVar(&p.Secrets, "secret", nil, "pass on the secret `NAME`, too; repeatable")
	f.BoolVar(&many, "fleet", false, "write the waves of fleet.hcl as jobs for many clusters")
	f.StringVar(&since, "since", "", "with gitlab --fleet: the jobs of the clusters that the change since "+
		"`REF` touches")
	f.BoolVar(&p.Force, "force", false, "replace a file of castle that somebody has changed")
	return cmd
}

// pipelineSystem returns the system of a name.
func pipelineSystem(name string) (*scaffold.PipelineSystem, error) {
	var names []string
	for _, s := range scaffold.PipelineSystems() {
		if s.Name == name {
			return &s, nil
		}
		names = append(names, s.Name)
	}
	return nil, refuse("no pipelines for %q; choose one of %s%s", name, strings.Join(names, ", "),
		nearestName(name, names))
}

// flagsOf returns the flags that write the same file again.
func flagsOf(cmd *cobra.Command) (words []string) {
	for _, name := range []string{"file", "branch", "runner"} {
		if f := cmd.Flags().Lookup(name); f.Changed {
			words = append(words, "--"+name, cluster.Word(f.Value.String()))
		}
	}
	if cmd.Flags().Changed("fleet") {
		words = append(words, "--fleet")
	}
	secrets, _ := cmd.Flags().GetStringSlice("secret") //nolint:errcheck // it has this type
	for _, name := range secrets {
		words = append(words, "--secret", name)
	}
	return words
}

// writePipeline writes the pipeline of the named clusters, or of all.
func writePipeline(ctx context.Context, a *app, system scaffold.PipelineSystem, p scaffold.Pipeline,
	names []string) error {
	o, err := a.complete(cluster.Options{})
	if err != nil {
		return err
	}
	p.Repository, p.Version = o.Repository, a.version
	if err := pipelineStore(o, &p); err != nil {
		return err
	}
	if p.Clusters, err = pipelineClusters(o, names, p.Fleet != nil && p.Fleet.Since != ""); err != nil {
		return err
	}
	if p.Fleet != nil {
		if err := pipelineFleet(ctx, a, o, p.Fleet); err != nil {
			return err
		}
	}
	lines, err := scaffold.Unignored(o.Repository)
	if err != nil {
		return err
	}
	if len(lines) > 0 {
		return refuse("%s; run `castle init` first", ignoreProblem(o.Repository, lines))
	}
	f, err := scaffold.WritePipeline(system, p)
	if err != nil {
		return refuse("%v", err)
	}
	return a.print(f, func(w io.Writer) { printPipeline(w, system, p, f) })
}

// pipelineFleet cuts the clusters, or those that a change touches, into the parts of their waves.
func pipelineFleet(ctx context.Context, a *app, o cluster.Options, p *scaffold.Fleet) error {
	f, diags := fleet.Load(o.Repository)
	if diags.HasErrors() {
		return &cluster.ConfigError{Diagnostics: diags, Files: f.Files}
	}
	for _, w := range f.Waves {
		if w.MaxFailures > 0 {
			return refuse("wave %s of %s: a pipeline cannot count how many of its jobs fail, and stops at "+
				"the first wave with one: remove max_failures, or run `castle fleet` in one job", w.Name,
				fleet.File)
		}
	}
	if len(f.Unassigned) > 0 {
		fmt.Fprintf(a.stderr, "castle: note: no wave of %s has %s: a change of them starts no job\n",
			fleet.File, strings.Join(fleet.Names(f.Unassigned), ", "))
	}
	touched := f.Clusters()
	if p.Since != "" {
		r, err := changed.Run(ctx, o, p.Since, fleet.Selector{})
		if err != nil {
			return err
		}
		touched = slices.DeleteFunc(touched, func(c fleet.Cluster) bool { return !r.Touches(c.Name) })
	}
	p.Touched = touched
	p.Parts = f.Parts(func(name string) bool { return slices.Contains(fleet.Names(touched), name) })
	// The other jobs, and the keywords of GitLab, which are keys beside the jobs.
	taken := []string{"plan", "summary", "cache", "default", "image", "include", "pages", "services",
		"stages", "variables", "workflow"}
	for _, one := range p.Parts {
		if slices.Contains(taken, one.Name) {
			return refuse("wave %s of %s: its job %s would have the name of another one, or a keyword of "+
				"GitLab; choose another name", one.Wave.Name, fleet.File, one.Name)
		}
		taken = append(taken, one.Name)
	}
	return nil
}

// pipelineStore finds the store of the states and requires what a job needs of it.
func pipelineStore(o cluster.Options, p *scaffold.Pipeline) error {
	configured, files, diags := config.ReadStateStore(config.Options{
		Repository: o.Repository, Environ: o.Environ})
	if diags.HasErrors() {
		return &cluster.ConfigError{Diagnostics: diags, Files: files}
	}
	given := process.Getenv(o.Environ, "CASTLE_STATE_STORE")
	p.Memory = configured.Memory != ""
	p.Store, p.StoreVariable = cmp.Or(configured.URL, given), configured.URL == ""
	switch {
	case p.Store == "" || p.Store == "local":
		return refuse("no store is configured; nothing was written: a job's machine is thrown away with " +
			"the states on it\n  add to castle.hcl: state { store = \"s3://bucket/folder\" }, or set " +
			"CASTLE_STATE_STORE (docs/state.md)")
	case len(configured.Recipients) == 0:
		return refuse("castle.hcl names no recipients of encryption; nothing was written: a saved plan " +
			"holds secrets, and everybody who can read the repository could read those of its jobs\n" +
			"  add to castle.hcl: state { encryption { recipients = [\"age1…\"] } } (docs/state.md)")
	}
	if _, err := location.Parse(p.Store); err != nil {
		return refuse("CASTLE_STATE_STORE: %v", err)
	}
	return nil
}

// pipelineClusters returns the named clusters, or all of the repository. tolerant is for a job that has not
// the secrets of all clusters, so that their configurations are incomplete.
func pipelineClusters(o cluster.Options, names []string, tolerant bool) ([]scaffold.PipelineCluster, error) {
	all, err := folders.Clusters(o.Repository)
	if err != nil {
		return nil, err
	}
	if len(names) == 0 {
		names = all
	}
	if len(names) == 0 {
		return nil, refuse("no clusters: there is no clusters/<name>/<platform>/cluster.hcl in %s; "+
			"`castle new` makes one", o.Repository)
	}
	var clusters []scaffold.PipelineCluster
	for _, name := range names {
		o.Cluster = name
		loaded, err := o.Load()
		if err != nil && !(tolerant && is[*cluster.ConfigError](err)) {
			return nil, err
		}
		c := scaffold.PipelineCluster{Name: loaded.Name + "/" + loaded.Platform}
		c.Reference = scaffold.Reference(c.Name, all)
		for _, s := range loaded.Stages {
			for _, source := range s.Providers {
				c.Providers = append(c.Providers, path.Base(source))
			}
			c.SecretsFile = c.SecretsFile || s.Source == "secrets/local"
		}
		_, err = os.Stat(filepath.Join(loaded.Dir, "secrets.tfvars"))
		c.SecretsFile = c.SecretsFile || err == nil
		if !slices.ContainsFunc(clusters, func(b scaffold.PipelineCluster) bool { return b.Name == c.Name }) {
			clusters = append(clusters, c)
		}
	}
	return clusters, nil
}

func printPipeline(w io.Writer, system scaffold.PipelineSystem, p scaffold.Pipeline,
	f *scaffold.PipelineFile) {
	names := xslices.Map(p.Clusters, func(c scaffold.PipelineCluster) string { return c.Name })
	if f.Unchanged {
		fmt.Fprintf(w, "%s is up to date: %s\n", f.Path, strings.Join(names, ", "))
		return
	}
	fmt.Fprintf(w, "wrote %s for %s: %s\n", f.Path, system.Title, strings.Join(names, ", "))
	fmt.Fprintf(w, "Next:\n  start a runner%s that reaches Proxmox and the nodes\n",
		textIf(p.Runner != "", " with the label "+p.Runner))
	if f.Installs == "" {
		fmt.Fprintf(w, "  install this castle on its PATH: it is a development build (%s), which no job can "+
			"install\n", p.Version)
	}
	if p.StoreVariable {
		fmt.Fprint(w, "  set the variable CASTLE_STATE_STORE there\n")
	}
	fmt.Fprintf(w, "  set the secrets that it passes on: %s\n", strings.Join(f.Secrets, ", "))
	if len(f.Prefixes) > 0 {
		fmt.Fprintf(w, "    for one cluster alone with its prefix: %s\n", strings.Join(f.Prefixes, ", "))
	}
	fmt.Fprintf(w, "  commit and push the file\n")
}
