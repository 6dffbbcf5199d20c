package cli

import (
	"cmp"
	"errors"
	"fmt"
	"io"
	"maps"
	"slices"
	"strings"

	"github.com/spf13/cobra"

	"github.com/ephemeral-castle/castle/internal/cluster"
	"github.com/ephemeral-castle/castle/internal/importer"
	"github.com/ephemeral-castle/castle/internal/naming"
	"github.com/ephemeral-castle/castle/internal/scaffold"
)

func newImport(a *app) *cobra.Command {
	return group("import", "Take over the configuration of another tool",
		`Take over the configuration of another tool: clusters of talhelper and of TOPF, and stacks
of Terragrunt. castle reads files alone: it starts no program that they name, decrypts
nothing, evaluates no variable of the environment and contacts nobody. It lists what it
does not take over, each with file, line and what to do. It overwrites nothing.`,
		newImportCluster(a, "talhelper FILE", "Take over a cluster of talhelper",
			`  castle import talhelper talconfig.yaml
  castle import talhelper talconfig.yaml --set network=10.0.0.0/24 --set gateway=10.0.0.1`,
			importer.Talhelper),
		newImportCluster(a, "topf DIR", "Take over a cluster of TOPF",
			`  castle import topf ../cluster --set network=10.0.0.0/24 --set gateway=10.0.0.1
  castle import topf ../cluster --name blue/metal`,
			importer.Topf),
		newImportTerragrunt(a))
}

func newImportTerragrunt(a *app) *cobra.Command {
	var label string
	cmd := &cobra.Command{
		Use:   "terragrunt DIR",
		Short: "Take over a stack of Terragrunt",
		Long: `Take over the units below a folder of Terragrunt as stages: write stages/<layer>/<unit> with
a copy of each local module, and clusters/<cluster>/<platform>/cluster.hcl. Dependencies
become references between stages. castle evaluates locals, inputs and the easy functions from
the files alone; run_cmd, get_env, sops_decrypt_file and get_aws_* are never evaluated.

castle check examines the result. castle writes it also if it finds errors, with exit code 2:
correct them in the new files.`,
		Example: `  castle import terragrunt ../live/blue --name blue/proxmox`,
		Args:    usage(cobra.ExactArgs(1)),
		RunE: func(_ *cobra.Command, args []string) error {
			o, err := a.complete(cluster.Options{})
			if err != nil {
				return err
			}
			name, platform, _ := strings.Cut(label, "/")
			if err := naming.Check("--name "+label, "write CLUSTER/PLATFORM", name, platform); err != nil {
				return err
			}
			found, err := importer.Terragrunt(args[0], label)
			if err == nil {
				err = scaffold.Place(o.Repository, found.Files)
			}
			if err != nil {
				return refuse("%v", err)
			}
			wrong, err := printProblems(a, o, label)
			if err != nil {
				return err
			}
			files := slices.Sorted(maps.Keys(found.Files))
			return imported(a, label, files, found.Gaps, "Next:\n  castle check "+label+"\n", wrong)
		},
	}
	cmd.Flags().StringVar(&label, "name", "", "write the cluster `CLUSTER/PLATFORM`")
	return cmd
}

// newImportCluster makes the command that imports a cluster by read.
func newImportCluster(a *app, use, short, example string,
	read func(string) (*importer.Cluster, error)) *cobra.Command {
	var label, template, answers string
	var set []string
	cmd := &cobra.Command{
		Use: use, Short: short, Example: example,
		Long: short + `: write clusters/<cluster>/<platform> with its machines, versions,
endpoint, networks, network plugin, labels, taints, extensions, mirrors and patches, as
castle new does. Talos' secrets are not taken over: the machines of a cluster that runs must
be reset before castle creates it anew.

The template decides which stages the cluster has. Its questions that the files do not
answer are answered with --set or --answers, as for castle new; an answer replaces what
the files say. castle check examines the result. castle writes it also if it finds errors, with exit
code 2: correct them in the new files.`,
		Args: usage(cobra.ExactArgs(1)),
		RunE: func(_ *cobra.Command, args []string) error {
			given, err := readAnswers(set, answers)
			if err != nil {
				return err
			}
			options, err := a.complete(cluster.Options{})
			if err != nil {
				return err
			}
			found, err := read(args[0])
			if err != nil {
				return refuse("%v", err)
			}
			return importCluster(a, cmp.Or(label, found.Name), template, found, given, options)
		},
	}
	f := cmd.Flags()
	f.StringVar(&label, "name", "", "call the cluster `CLUSTER[/PLATFORM]` instead of what the files call it")
	f.StringVar(&template, "template", "metal-bare", "use the template `NAME`")
	f.StringArrayVar(&set, "set", nil, "answer `KEY=VALUE`; repeatable")
	f.StringVar(&answers, "answers", "", "read answers from `FILE`; --set wins")
	return cmd
}

// importCluster writes an imported cluster, and lists what was not taken over.
func importCluster(a *app, label, template string, found *importer.Cluster, given map[string]string,
	o cluster.Options) (err error) {
	c, err := scaffold.Begin(o.Config(), label, template)
	if err != nil {
		return refuse("%v", err)
	}
	c.Command = a.interrupts.command
	c.Import(found.Nodes, found.Endpoint, slices.DeleteFunc(found.Settings,
		func(s scaffold.Setting) bool { _, is := given[s.Name]; return is }))
	answers := maps.Clone(found.Answers)
	maps.Copy(answers, given)
	chosen, err := c.Fill(answers)
	if err != nil {
		return nothingWritten(err)
	}
	draft, err := c.Write()
	if err != nil {
		return nothingWritten(err)
	}
	defer func() { err = errors.Join(err, draft.Close()) }()
	repository := o.Repository
	o.Repository = draft.Repository
	wrong, err := printProblems(a, o, c.Label())
	if err != nil {
		return err
	}
	if err := placeDraft(a, draft, repository); err != nil {
		return err
	}
	next := ""
	for _, line := range chosen {
		next += "Chosen by castle: " + line + "\n"
	}
	return imported(a, c.Label(), draft.Files, found.Gaps, next+draft.Next, wrong)
}

// imported prints what was written and what was not taken over, and then what to do.
func imported(a *app, label string, files []string, gaps []importer.Gap, next string, wrong bool) error {
	result := map[string]any{"cluster": label, "files": files, "not_taken_over": gaps}
	err := a.print(result, func(w io.Writer) {
		fmt.Fprintf(w, "Wrote %s: %s\n", label, strings.Join(files, ", "))
		if len(gaps) > 0 {
			fmt.Fprintln(w, "Not taken over, or not as it was:")
		}
		for _, g := range gaps {
			fmt.Fprintf(w, "  %s:%d: %s: %s\n    %s\n", g.File, g.Line, g.Subject, g.Reason, g.Fix)
		}
		fmt.Fprint(w, next)
	})
	if err == nil && wrong {
		err = refuse("the files are written, and castle check refuses them (see above); correct them, then: "+
			"castle check %s", label)
	}
	return err
}
