package cli

import (
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
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
rehearse. On a terminal castle asks one question after the other: Enter takes the answer
in brackets, < goes back. After Ctrl-C, the same command goes on with the answers so far.
--set and --answers give answers in advance; without a terminal, those that castle cannot
know are required. castle proposes addresses and VM ids that no other cluster of the
repository uses. It contacts nothing: check yourself that no other host (a DHCP server,
a printer) uses them. Nothing is overwritten, and castle writes no configuration that
castle check refuses.

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
		Args: usage(func(cmd *cobra.Command, args []string) error {
			if len(args) == 0 {
				return errors.New("no name for the cluster given")
			}
			return cobra.ExactArgs(1)(cmd, args)
		}),
		RunE: func(cmd *cobra.Command, args []string) error {
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
			if isTerminal(a.stdin) {
				return interview(cmd.Context(), a, c, given, gitops, options)
			}
			chosen, err := c.Fill(given)
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

// interview asks for the answers and writes the cluster. It keeps the answers in a file until the cluster is
// written: whatever ends castle before, the same command goes on with them.
func interview(ctx context.Context, a *app, c *scaffold.NewCluster, given map[string]string, folder string,
	o cluster.Options) error {
	file := filepath.Join(o.Repository, ".new-"+c.Name+"-"+c.Platform+".hcl")
	resume := a.interrupts.command + "\n  the answers so far are in " + file
	kept := map[string]string{}
	switch _, err := os.Lstat(file); {
	case err == nil:
		if kept, err = readAnswers(nil, file); err != nil {
			return errors.Join(err,
				refuse("%s has the answers of an earlier castle new; delete it to begin anew", file))
		}
		fmt.Fprintf(a.stderr, "Going on with the answers in %s; delete it to begin anew.\n", file)
		a.interrupts.update(func(i *interrupts) { i.resume = resume })
	case !errors.Is(err, fs.ErrNotExist):
		return err
	}
	fmt.Fprintln(a.stderr, "Enter takes the answer in [brackets], "+scaffold.Back+
		" goes back, Ctrl-C keeps the answers.")
	ask := func(q scaffold.Question) (string, error) {
		if ctx.Err() != nil {
			return "", context.Cause(ctx)
		}
		return askQuestion(a, q)
	}
	err := c.Interview(given, kept, ask, func(answers map[string]string) error {
		err := scaffold.KeepAnswers(file, c.Label(), answers)
		if err == nil {
			a.interrupts.update(func(i *interrupts) { i.resume = resume })
		}
		return err
	})
	switch {
	case errors.Is(err, errNoAnswer):
		return interruptedError{a.interrupts.resume}
	case err != nil:
		return nothingWritten(err)
	}
	if err := writeCluster(a, c, nil, folder, o); err != nil {
		return errors.Join(err, refuse("the answers are in %s; the same command asks for the last one "+
			"again, and %s goes back", file, scaffold.Back))
	}
	return os.Remove(file)
}

// askQuestion asks one question of an interview.
func askQuestion(a *app, q scaffold.Question) (string, error) {
	width := ui.Columns(a.stderr, 80)
	text := "\n"
	if q.Problem != "" {
		text += "  " + strings.Join(wrap(q.Problem, width-2), "\n  ") + "\n"
	}
	number := fmt.Sprintf("%d/%d  ", q.Number, q.Of)
	indent := strings.Repeat(" ", len(number))
	text += number + q.Text
	if q.Proposal != "" {
		text += " [" + q.Proposal + "]"
	}
	return a.prompt(text + "\n" + indent + q.Why + "\n" + indent + "> ")
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
	wrong, err := printProblems(a, o, c.Label())
	if err != nil {
		return err
	}
	if wrong {
		return refuse("castle check refuses this configuration (see above); nothing was written")
	}
	if err := placeDraft(a, draft, repository); err != nil {
		return err
	}
	result := map[string]any{
		"cluster": c.Label(), "template": c.Template, "files": draft.Files, "next": draft.Commands(),
	}
	if draft.GitOps != "" {
		result["gitops_files"] = draft.GitOpsFiles
	}
	return a.print(result, func(w io.Writer) {
		if len(chosen) > 0 {
			all := strings.Join(chosen, "\n  ")
			has := strings.Contains(all, "addresses = ") || strings.Contains(all, "vip = ") // not in a cloud
			fmt.Fprintf(w, "Chosen by castle, unused by the repository's other clusters%s:\n  %s\n",
				textIf(has, " (keep the addresses out of the router's DHCP range)"), all)
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

// printProblems checks a cluster, prints the problems, and reports whether there is an error.
func printProblems(a *app, o cluster.Options, label string) (bool, error) {
	report, err := cluster.Check(o, label)
	if err != nil {
		return false, err
	}
	_, err = ui.WriteDiagnostics(a.commands, report.Diagnostics, report.Files, coloured(a, a.stderr))
	return report.Diagnostics.HasErrors(), err
}

// placeDraft moves a cluster into place, and warns of secrets that Git would take.
func placeDraft(a *app, draft *scaffold.Draft, repository string) error {
	if err := draft.Place(); err != nil {
		return refuse("%v", err)
	}
	lines, err := scaffold.Unignored(repository)
	if err == nil && len(lines) > 0 {
		a.interrupts.say("castle: warning: " + ignoreProblem(repository, lines) +
			"; `castle init` adds the missing lines")
	}
	return err
}
