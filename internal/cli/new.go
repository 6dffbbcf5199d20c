package cli

import (
	"errors"
	"fmt"
	"io"
	"os"
	"strings"

	"github.com/hashicorp/hcl/v2"
	"github.com/hashicorp/hcl/v2/hclsyntax"
	"github.com/spf13/cobra"
	"github.com/zclconf/go-cty/cty"
	"github.com/zclconf/go-cty/cty/convert"

	"github.com/ephemeral-castle/castle/internal/cluster"
	"github.com/ephemeral-castle/castle/internal/scaffold"
	"github.com/ephemeral-castle/castle/internal/ui"
)

func newNew(a *app) *cobra.Command {
	var template, answers, gitops string
	var set []string
	cmd := &cobra.Command{
		Use:   "new CLUSTER[/PLATFORM]",
		Short: "Generate a cluster's configuration from a template",
		Long: `Generate clusters/<cluster>/<platform> from a template, validated and ready to
rehearse. On a terminal castle asks for the answers that it cannot know; --set and
--answers give them in advance, and without a terminal they are required. castle
proposes addresses and VM ids that no other cluster of the repository uses. It contacts
nothing: check yourself that no other host (a DHCP server, a printer) uses them.
Nothing is overwritten, and castle writes no configuration that castle check refuses.

With --gitops DIR, castle also generates the repository that Flux reads: Traefik,
cert-manager, an example, and the cluster's selection of them, in c. DIR is new,
empty, a fresh clone of git_url, or was generated for another cluster: then castle
adds only the cluster's folder. cluster.hcl refers to DIR, so that castle check finds
objects that both Flux and a stage own.

Keys (a template asks for those that it mentions):

` + scaffold.Usage() + `
An answers file holds lines KEY = VALUE, in HCL. No key is a secret.`,
		Example: `  castle new green
  castle new green --set workers=1 --set git_url=https://github.com/me/green
  castle new green --answers green.hcl
  castle new green --gitops ../green-gitops`,
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
			c, err := scaffold.Begin(options.Config(), args[0], template)
			if err != nil {
				return refuse("%v", err)
			}
			c.Command = a.interrupts.command
			if gitops != "" {
				if err := c.GitOps(gitops); err != nil {
					return nothingWritten(err)
				}
			}
			var ask scaffold.Ask
			if isTerminal(a.stdin) {
				ask = a.prompt
			}
			chosen, err := c.Fill(given, ask)
			if err != nil {
				return nothingWritten(err)
			}
			return writeCluster(a, c, chosen, gitops, options)
		},
	}
	f := cmd.Flags()
	f.StringVar(&template, "template", "proxmox-talos", "use the template `NAME`")
	f.StringArrayVar(&set, "set", nil, "answer `KEY=VALUE`; repeatable")
	f.StringVar(&answers, "answers", "", "read answers from `FILE`; --set wins")
	f.StringVar(&gitops, "gitops", "", "also write the repository that Flux reads to `DIR`, or add the "+
		"cluster to it")
	return cmd
}

func nothingWritten(err error) error { return errors.Join(err, refuse("nothing was written")) }

// readAnswers reads the answers of the command line.
func readAnswers(set []string, file string) (map[string]string, error) {
	given := map[string]string{}
	if file != "" {
		const form = "An answer is a text, a number, or a list of these."
		err := readTexts("--answers", file, false, form, func(name string, v cty.Value) (ok bool) {
			given[name], ok = asText(v)
			return ok
		})
		if err != nil {
			return nil, err
		}
	}
	return given, setPairs(given, "--set %s: write it as KEY=VALUE", set)
}

// asText returns a text or a number as text, and a list of these with commas.
func asText(v cty.Value) (string, bool) {
	if !v.IsNull() && v.Type().IsTupleType() {
		var all []string
		for _, e := range v.AsValueSlice() {
			text, ok := asText(e)
			if !ok {
				return "", false
			}
			all = append(all, text)
		}
		return strings.Join(all, ","), true
	}
	text, err := convert.Convert(v, cty.String)
	if err != nil || text.IsNull() || !text.IsKnown() {
		return "", false
	}
	return text.AsString(), true
}

// readTexts reads a file of lines NAME = VALUE, in HCL, which a flag names. store reports whether a value
// has this form. Diagnostics do not quote a private file.
func readTexts(flag, file string, private bool, form string,
	store func(name string, v cty.Value) bool) error {
	text, err := os.ReadFile(file)
	if err != nil {
		return refuse("%s: %v", flag, err)
	}
	f, diags := hclsyntax.ParseConfig(text, file, hcl.InitialPos)
	attributes := hcl.Attributes{}
	if !diags.HasErrors() {
		attributes, diags = f.Body.JustAttributes()
	}
	for name, attr := range attributes {
		v, more := attr.Expr.Value(nil)
		diags = append(diags, more...)
		if !more.HasErrors() && !store(name, v) {
			diags = append(diags, &hcl.Diagnostic{Severity: hcl.DiagError, Subject: attr.NameRange.Ptr(),
				Summary: name + ": invalid value", Detail: form})
		}
	}
	if private {
		f = &hcl.File{}
	}
	if diags.HasErrors() {
		return &cluster.ConfigError{Diagnostics: diags, Files: map[string]*hcl.File{file: f}}
	}
	return nil
}

// writeCluster writes the cluster, checks it beside the others and moves it into place;
// folder is the directory of the repository that Flux reads.
func writeCluster(a *app, c *scaffold.NewCluster, chosen []string, folder string,
	o cluster.Options) (err error) {
	draft, err := c.Write()
	if err != nil {
		return nothingWritten(err)
	}
	defer func() { err = errors.Join(err, draft.Close()) }()
	repository := o.Repository
	o.Repository, o.GitOps = draft.Repository, draft.GitOps
	report, err := cluster.Check(o, c.Label())
	if err != nil {
		return err
	}
	_, err = ui.WriteDiagnostics(a.stderr, report.Diagnostics, report.Files, coloured(a, a.stderr))
	if err != nil {
		return err
	}
	if report.Diagnostics.HasErrors() {
		return refuse("castle check refuses this configuration (see above); nothing was written")
	}
	if err := draft.Place(); err != nil {
		return refuse("%v", err)
	}
	lines, err := scaffold.Unignored(repository)
	if err != nil {
		return err
	}
	if len(lines) > 0 {
		a.interrupts.say("castle: warning: " + ignoreProblem(repository, lines) +
			"; `castle init` adds the missing lines")
	}
	result := map[string]any{
		"cluster": c.Label(), "template": c.Template, "files": draft.Files, "next": draft.Commands(),
	}
	if draft.GitOps != "" {
		result["gitops_files"] = draft.GitOpsFiles
	}
	return a.print(result, func(w io.Writer) {
		if len(chosen) > 0 {
			fmt.Fprintf(w, "Chosen by castle, unused by the repository's other clusters "+
				"(keep the addresses out of the router's DHCP range):\n  %s\n", strings.Join(chosen, "\n  "))
		}
		fmt.Fprintf(w, "Wrote and checked %s: %s\n", c.Label(), strings.Join(draft.Files, ", "))
		if draft.GitOps != "" {
			fmt.Fprintf(w, "Wrote the repository that Flux reads, %s: %s\nCommit and push it to "+
				"git_url before you create the cluster; a rehearsal reads the folder itself.\n", folder,
				strings.Join(draft.GitOpsFiles, ", "))
		}
		fmt.Fprint(w, draft.Next)
	})
}
