package cli

import (
	"bufio"
	"cmp"
	"errors"
	"fmt"
	"io"
	"maps"
	"slices"
	"strings"

	"github.com/spf13/cobra"

	"github.com/ephemeral-castle/castle/internal/cluster"
	"github.com/ephemeral-castle/castle/internal/config"
	"github.com/ephemeral-castle/castle/internal/scaffold"
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
			c, err := scaffold.Begin(config.Options{
				Repository: options.Repository, Library: options.Library, Templates: options.Templates,
				CastleVersion: options.Version,
				Gates:         cluster.GateTypes(), Preflights: cluster.PreflightTypes(),
				Exists: cluster.ExistsTypes(),
			}, args[0], template)
			if err != nil {
				return &cluster.UsageError{Message: err.Error()}
			}
			if gitops != "" {
				if err := c.GitOps(gitops); err != nil {
					return nothingWritten(err)
				}
			}
			chosen, err := answerKeys(a, c, given)
			if err != nil {
				return err
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

func nothingWritten(err error) error {
	return &cluster.UsageError{Message: err.Error() + "\ncastle: nothing was written"}
}

// readAnswers reads the answers of the command line.
func readAnswers(set []string, file string) (map[string]string, error) {
	given := map[string]string{}
	if file != "" {
		answers, files, diags := scaffold.ReadAnswers(file)
		if diags.HasErrors() {
			return nil, &cluster.ConfigError{Diagnostics: diags, Files: files}
		}
		given = answers
	}
	for _, s := range set {
		key, value, ok := strings.Cut(s, "=")
		if !ok {
			return nil, &cluster.UsageError{Message: fmt.Sprintf("--set %s: write it as KEY=VALUE", s)}
		}
		given[key] = value
	}
	return given, nil
}

// answerKeys answers every key: from given, from the user or with castle's proposal. It
// returns the proposals that it took, and reports all missing and invalid answers at once.
func answerKeys(a *app, c *scaffold.NewCluster, given map[string]string) (chosen []string, err error) {
	var missing, wrong, names []string
	keys := c.Keys()
	for _, k := range keys {
		names = append(names, k.Name)
	}
	for _, name := range slices.Sorted(maps.Keys(given)) {
		if !slices.Contains(names, name) {
			wrong = append(wrong, fmt.Sprintf("%s: template %s has no such key%s", name, c.Template,
				config.DidYouMean(name, names)))
		}
	}
	interactive := isTerminal(a.stdin)
	if interactive && len(wrong) > 0 { // not after a dozen questions
		return nil, &cluster.UsageError{Message: strings.Join(wrong, "\ncastle: ")}
	}
	input := bufio.NewReader(a.stdin)
	for _, k := range keys {
		text, isGiven := given[k.Name]
		if !c.Uses(k) {
			if isGiven {
				wrong = append(wrong, fmt.Sprintf("%s: only used with secrets = %s", k.Name, k.Store))
			}
			continue
		}
		proposal := c.Propose(k)
		switch {
		case isGiven:
		case interactive && !k.Quiet:
			if err := ask(a, input, c, k, proposal); err != nil {
				return nil, err
			}
			continue
		case proposal == "":
			if c.Requires(k) {
				missing = append(missing, fmt.Sprintf("  %-22s  %s", k.Name, k.Question))
			}
			continue
		default:
			text = proposal
			if !k.Quiet {
				chosen = append(chosen, fmt.Sprintf("%s = %s", k.Name, text))
			}
		}
		if err := c.Answer(k, text); err != nil && !errors.Is(err, scaffold.ErrDependency) {
			if interactive {
				return nil, &cluster.UsageError{Message: err.Error() + "; nothing was written"}
			}
			wrong = append(wrong, err.Error())
		}
	}
	if len(missing) > 0 {
		wrong = append(wrong, c.Label()+" requires answers:\n"+strings.Join(missing, "\n")+
			"\n  give each with --set KEY=VALUE, all in a file with --answers FILE, or on a terminal")
	}
	if len(wrong) > 0 {
		return nil, nothingWritten(errors.New(strings.Join(wrong, "\ncastle: ")))
	}
	return chosen, nil
}

// ask asks for one answer until it is valid. An empty line takes the proposal.
func ask(a *app, input *bufio.Reader, c *scaffold.NewCluster, k *scaffold.Key, proposal string) error {
	defer a.interrupts.prompt()()
	for {
		fmt.Fprint(a.stderr, k.Question)
		if proposal != "" {
			fmt.Fprintf(a.stderr, " [%s]", proposal)
		}
		fmt.Fprint(a.stderr, ": ")
		typed, err := input.ReadString('\n')
		if errors.Is(err, io.EOF) {
			fmt.Fprintln(a.stderr)
			return &cluster.UsageError{Message: "no answer; nothing was written"}
		}
		if err != nil {
			return err
		}
		if err = c.Answer(k, cmp.Or(strings.TrimSpace(typed), proposal)); err == nil {
			return nil
		}
		fmt.Fprintf(a.stderr, "  %s\n", err)
	}
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
	if _, err := writeDiagnostics(a.stderr, report.Diagnostics, report.Files); err != nil {
		return err
	}
	if report.Diagnostics.HasErrors() {
		return &cluster.UsageError{Message: "castle check refuses this configuration (see above); nothing " +
			"was written"}
	}
	if err := draft.Place(); err != nil {
		return &cluster.UsageError{Message: err.Error()}
	}
	if err := warnUnignored(a, repository); err != nil {
		return err
	}
	result := map[string]any{
		"cluster": c.Label(), "template": c.Template, "files": draft.Files, "next": draft.Commands(),
	}
	if draft.GitOps != "" {
		result["gitops_files"] = draft.GitOpsFiles
	}
	return a.print(result, func() error {
		if len(chosen) > 0 {
			fmt.Fprintf(a.stdout, "Chosen by castle, unused by the repository's other clusters "+
				"(keep the addresses out of the router's DHCP range):\n  %s\n", strings.Join(chosen, "\n  "))
		}
		fmt.Fprintf(a.stdout, "Wrote and checked %s: %s\n", c.Label(), strings.Join(draft.Files, ", "))
		if draft.GitOps != "" {
			fmt.Fprintf(a.stdout, "Wrote the repository that Flux reads, %s: %s\nCommit and push it to "+
				"git_url before you create the cluster; a rehearsal reads the folder itself.\n", folder,
				strings.Join(draft.GitOpsFiles, ", "))
		}
		_, err := fmt.Fprint(a.stdout, draft.Next)
		return err
	})
}
