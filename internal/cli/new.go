package cli

import (
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/hashicorp/hcl/v2"
	"github.com/spf13/cobra"

	"github.com/ephemeral-castle/castle/internal/castle"
	"github.com/ephemeral-castle/castle/internal/config"
	"github.com/ephemeral-castle/castle/internal/scaffold"
)

func newNew(a *app) *cobra.Command {
	var o struct {
		template string
		set      []string
		answers  string
		gitops   string
	}
	cmd := &cobra.Command{
		Use:   "new CLUSTER[/PLATFORM]",
		Short: "Make a cluster's configuration from a template",
		Long: `Make clusters/<cluster>/<platform> from a template: checked, and ready to be
rehearsed. What cannot be known is asked for on a terminal; --set and --answers
answer beforehand, and without a terminal they must. Addresses and VM ids are
proposed that no other cluster of the repository claims. Nothing is contacted, so
whether something else has them (a DHCP server, a printer) is for you to know.
Nothing is overwritten, and what castle check would refuse is not made.

With --gitops DIR, the repository that Flux reads begins there, too: Traefik,
cert-manager, an example, and which of it the cluster takes, in order. DIR is new,
empty, a fresh clone of git_url, or has all this from another cluster: then only
the cluster's own folder is added. cluster.hcl names DIR, so that castle check sees
what both Flux and a stage would own.

Keys (a template asks for those that it mentions):

` + scaffold.Usage() + `
An answers file holds lines KEY = VALUE, in HCL. No key is a secret.`,
		Example: `  castle new green
  castle new green --set workers=1 --set git_url=https://github.com/me/green
  castle new green --answers green.hcl
  castle new green --gitops ../green-gitops`,
		Args: usage(func(_ *cobra.Command, args []string) error {
			if len(args) != 1 {
				return fmt.Errorf("needs one cluster, not %d", len(args))
			}
			return nil
		}),
		RunE: func(_ *cobra.Command, args []string) error {
			given, err := a.givenAnswers(o.set, o.answers)
			if err != nil {
				return err
			}
			options, err := a.complete(castle.Options{})
			if err != nil {
				return err
			}
			order, err := scaffold.Begin(config.Options{
				Repository: options.Repository, Library: options.Library, Templates: options.Templates, CastleVersion: options.Version,
				Gates: castle.GateTypes(), Preflights: castle.PreflightTypes(), Exists: castle.ExistsTypes(),
			}, args[0], o.template)
			if err != nil {
				return &castle.UsageError{Message: err.Error()}
			}
			if o.gitops != "" {
				if err := order.GitOps(o.gitops); err != nil {
					return &castle.UsageError{Message: err.Error() + "\ncastle: nothing was made"}
				}
			}
			chosen, err := a.answer(order, given)
			if err != nil {
				return err
			}
			return a.make(order, chosen, o.gitops, options)
		},
	}
	f := cmd.Flags()
	f.StringVar(&o.template, "template", "proxmox-talos", "make it from the template `NAME`")
	f.StringArrayVar(&o.set, "set", nil, "answer `KEY=VALUE`; may be repeated")
	f.StringVar(&o.answers, "answers", "", "read answers from `FILE`; --set wins")
	f.StringVar(&o.gitops, "gitops", "", "write the skeleton of the repository that Flux reads into `DIR`, or the cluster's part into one that has it")
	return cmd
}

// givenAnswers are those of the command line.
func (a *app) givenAnswers(set []string, file string) (map[string]string, error) {
	given := map[string]string{}
	if file != "" {
		answers, files, diags := scaffold.ReadAnswers(file)
		if diags.HasErrors() {
			return nil, &castle.ConfigError{Diagnostics: diags, Files: files}
		}
		given = answers
	}
	for _, s := range set {
		key, value, ok := strings.Cut(s, "=")
		if !ok {
			return nil, &castle.UsageError{Message: fmt.Sprintf("--set %s: write it as KEY=VALUE", s)}
		}
		given[key] = value
	}
	return given, nil
}

// answer answers every key: with what was given, with what the user types, or with
// what castle proposes. It returns which were castle's own choice, and all that is
// missing or wrong at once.
func (a *app) answer(order *scaffold.Order, given map[string]string) (chosen []string, err error) {
	var missing, wrong []string
	keys := order.Keys()
	var names []string
	for _, k := range keys {
		names = append(names, k.Name)
	}
	for _, name := range slices.Sorted(maps.Keys(given)) {
		if !slices.Contains(names, name) {
			wrong = append(wrong, fmt.Sprintf("%s: template %s does not ask for it%s", name, order.Template, config.DidYouMean(name, names)))
		}
	}
	asks := isTerminal(a.stdin)
	if asks && len(wrong) > 0 { // not after a dozen questions
		return nil, &castle.UsageError{Message: strings.Join(wrong, "\ncastle: ")}
	}
	questions := a.questions()
	for _, k := range keys {
		text, is := given[k.Name]
		if !order.Wants(k) {
			if is {
				wrong = append(wrong, fmt.Sprintf("%s: an answer is needed with secrets = %s alone", k.Name, k.Place))
			}
			continue
		}
		proposal := order.Propose(k)
		switch {
		case is:
		case asks && !k.Quiet:
			if err := questions.ask(order, k, proposal); err != nil {
				return nil, err
			}
			continue
		case proposal == "":
			if order.Misses(k) {
				missing = append(missing, fmt.Sprintf("  %-22s  %s", k.Name, k.Asks))
			}
			continue
		default:
			text = proposal
			if !k.Quiet {
				chosen = append(chosen, fmt.Sprintf("%s = %s", k.Name, text))
			}
		}
		if err := order.Answer(k, text); err != nil && !scaffold.Undecided(err) {
			if asks {
				return nil, &castle.UsageError{Message: err.Error() + "; nothing was made"}
			}
			wrong = append(wrong, err.Error())
		}
	}
	if len(missing) > 0 {
		wrong = append(wrong, order.Label()+" needs answers:\n"+strings.Join(missing, "\n")+
			"\n  give each with --set KEY=VALUE, all in a file with --answers FILE, or on a terminal")
	}
	if len(wrong) > 0 {
		return nil, &castle.UsageError{Message: strings.Join(wrong, "\ncastle: ") + "\ncastle: nothing was made"}
	}
	return chosen, nil
}

// make writes the cluster, checks it beside the others and puts it in its place; folder
// is where Flux's repository goes.
func (a *app) make(order *scaffold.Order, chosen []string, folder string, o castle.Options) (err error) {
	draft, err := order.Write()
	if err != nil {
		return &castle.UsageError{Message: err.Error() + "\ncastle: nothing was made"}
	}
	defer func() { err = errors.Join(err, draft.Close()) }()
	repository := o.Repository
	o.Repository, o.GitOps = draft.Repository, draft.GitOps
	report, err := castle.Check(o, order.Label())
	if err != nil {
		return err
	}
	if err := a.writePlaced(report); err != nil {
		return err
	}
	if slices.ContainsFunc(report.Diagnostics, func(d *hcl.Diagnostic) bool { return d.Severity == hcl.DiagError }) {
		return &castle.UsageError{Message: "castle check refuses what these answers make (above); nothing was made"}
	}
	if err := draft.Place(); err != nil {
		return &castle.UsageError{Message: err.Error()}
	}
	if err := a.warnUnignored(repository); err != nil {
		return err
	}
	if a.output == "json" {
		made := map[string]any{"cluster": order.Label(), "template": order.Template, "files": draft.Files, "next": draft.Commands()}
		if draft.GitOps != "" {
			made["gitops_files"] = draft.GitOpsFiles
		}
		return a.printJSON(made)
	}
	if len(chosen) > 0 {
		fmt.Fprintf(a.stdout, "Chosen by castle, beside the repository's other clusters (keep the addresses out of the router's DHCP range):\n  %s\n", strings.Join(chosen, "\n  "))
	}
	fmt.Fprintf(a.stdout, "%s is made and checked: %s\n", order.Label(), strings.Join(draft.Files, ", "))
	if draft.GitOps != "" {
		fmt.Fprintf(a.stdout, "What Flux reads is in %s: %s\nCommit and push it to git_url before the cluster is created; a rehearsal reads the folder as it lies there.\n", folder, strings.Join(draft.GitOpsFiles, ", "))
	}
	_, err = fmt.Fprint(a.stdout, draft.Next)
	return err
}
