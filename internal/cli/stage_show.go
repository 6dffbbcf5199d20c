package cli

import (
	"fmt"
	"io"
	"io/fs"
	"maps"
	"slices"
	"strings"

	"github.com/spf13/cobra"

	"github.com/ephemeral-castle/castle/internal/castle"
	"github.com/ephemeral-castle/castle/internal/config"
)

func newStageShow(a *app) *cobra.Command {
	return &cobra.Command{
		Use:   "show LAYER/STAGE [FILE]",
		Short: "Show a stage's inputs, outputs, providers and gates, or a file of it",
		Long: `Show what a stage is for, its inputs with their types and where their values come
from, its outputs, the providers it requires, what is asked before it and what is
proved after it. Inputs that are not wired are set in terraform.tfvars, or in
inputs in cluster.hcl. With the name of one of its files, that is printed as it is.`,
		Example: "  castle stage show networking/metallb\n  castle stage show secrets/vault vault-policy.hcl | vault policy write castle -",
		Args: usage(func(_ *cobra.Command, args []string) error {
			if len(args) == 0 || len(args) > 2 {
				return fmt.Errorf("needs one stage, LAYER/STAGE, and at most one of its files, not %d arguments", len(args))
			}
			return nil
		}),
		RunE: func(_ *cobra.Command, args []string) error {
			s, err := a.libraryStage(args[0])
			if err != nil {
				return err
			}
			if len(args) == 2 {
				return a.printFile(s, args[1])
			}
			if s.Problems.HasErrors() {
				return &castle.ConfigError{Diagnostics: s.Problems}
			}
			if a.output == "json" {
				return a.printJSON(s)
			}
			p := page{a.stdout, a.columns()}
			p.stage(s)
			return nil
		},
	}
}

func (a *app) printFile(s *config.LibraryStage, name string) error {
	if !slices.Contains(s.Files, name) {
		return &castle.UsageError{Message: fmt.Sprintf("%s has no file %q%s\n  it has %s", s.Source, name, config.DidYouMean(name, s.Files), strings.Join(s.Files, ", "))}
	}
	text, err := fs.ReadFile(s.Folder, name)
	if err != nil {
		return err
	}
	_, err = a.stdout.Write(text)
	return err
}

// page writes paragraphs that are set in by two steps.
type page struct {
	w       io.Writer
	columns int
}

func (p page) line(in int, text string) {
	for _, part := range broken(text, p.columns-in) {
		fmt.Fprintf(p.w, "%s%s\n", strings.Repeat(" ", in), part)
	}
}

// list writes a heading and an entry for each item: its name and facts, and
// below it what is to be said of it.
func list[T any](p page, heading string, items []T, entry func(T) (head string, below []string)) {
	if len(items) == 0 {
		return
	}
	fmt.Fprintf(p.w, "\n%s\n", heading)
	for _, item := range items {
		head, below := entry(item)
		p.line(2, head)
		for _, text := range below {
			if text != "" {
				p.line(6, text)
			}
		}
	}
}

func (p page) stage(s *config.LibraryStage) {
	fmt.Fprintf(p.w, "%s (%s): %s\n", s.Source, whence(s), s.Summary)
	if s.EndsCluster {
		p.line(0, "ends_cluster: what is inside the cluster ends with it")
	}
	if s.Persistent {
		p.line(0, "persistent: a destroy leaves it, unless --all is given")
	}
	if s.Volatile {
		p.line(0, "volatile: it is read again whenever something that needs it will run")
	}
	if len(s.Needs) > 0 {
		p.line(0, "needs "+strings.Join(s.Needs, ", "))
	}
	list(p, "inputs", s.Inputs, input)
	list(p, "outputs", s.Outputs, func(o config.LibraryOutput) (string, []string) {
		return o.Name + sensitive(o.Sensitive), []string{oneLine(o.Description)}
	})
	list(p, "providers", s.Providers, func(v config.LibraryProvider) (string, []string) {
		head := strings.TrimSpace(v.Source + " " + v.Versions)
		if v.Wired {
			head += ", configured by castle from platform.kubeconfig"
		}
		return head, nil
	})
	list(p, "preflights, before anything is changed", s.Preflights, checkLines)
	list(p, "adopts what exists already", s.Adopts, func(x config.LibraryAdopt) (string, []string) {
		return x.Address, []string{"id " + oneLine(x.ID)}
	})
	list(p, "gates, all open before the stage counts as ready", s.Gates, checkLines)
	list(p, "files, printed by castle stage show "+s.Source+" FILE", []string{strings.Join(s.Files, ", ")}, func(all string) (string, []string) { return all, nil })
}

func input(in config.LibraryInput) (string, []string) {
	head, from, kind := in.Name, "", ""
	if len(in.Type) < 40 {
		head += "  " + in.Type
	} else {
		kind = "type " + in.Type
	}
	head += sensitive(in.Sensitive)
	switch {
	case in.Wired != "":
		from = "wired to " + oneLine(in.Wired)
		if len(in.From) > 0 {
			from += ", from " + strings.Join(in.From, " or ")
		}
	case in.Required:
		head += ", required"
	case in.Default != nil:
		head += ", default " + string(in.Default)
	}
	return head, []string{oneLine(in.Description), from, kind}
}

func checkLines(c config.LibraryCheck) (string, []string) {
	head := c.Name + ": " + c.Proves
	if len(c.Needs) > 0 {
		head += "; judged late, after " + strings.Join(c.Needs, ", ")
	}
	var arguments []string
	for _, name := range slices.Sorted(maps.Keys(c.Arguments)) {
		if text := c.Arguments[name]; !strings.Contains(text, "\n") {
			arguments = append(arguments, name+" = "+text)
		}
	}
	return head, []string{c.Why, strings.Join(arguments, ", ")}
}

func sensitive(is bool) string {
	if is {
		return ", sensitive"
	}
	return ""
}

func oneLine(s string) string { return strings.Join(strings.Fields(s), " ") }
