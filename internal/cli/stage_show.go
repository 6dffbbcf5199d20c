package cli

import (
	"fmt"
	"io"
	"io/fs"
	"maps"
	"slices"
	"strings"

	"github.com/spf13/cobra"

	"github.com/ephemeral-castle/castle/internal/cluster"
	"github.com/ephemeral-castle/castle/internal/config"
)

func newStageShow(a *app) *cobra.Command {
	return &cobra.Command{
		Use:   "show LAYER/STAGE [FILE]",
		Short: "Show a stage's inputs, outputs, providers and gates, or one of its files",
		Long: `Show a stage's purpose, its inputs with their types and the origin of their values, its
outputs, required providers, preflights and gates. Set inputs that are not wired in
terraform.tfvars, or in inputs in cluster.hcl. With the name of a file, print it.`,
		Example: "  castle stage show networking/metallb\n" +
			"  castle stage show secrets/vault vault-policy.hcl | vault policy write castle -",
		Args: usage(cobra.RangeArgs(1, 2)),
		RunE: func(_ *cobra.Command, args []string) error {
			s, err := a.libraryStage(args[0])
			if err != nil {
				return err
			}
			if len(args) == 2 {
				return printStageFile(a, s, args[1])
			}
			if s.Problems.HasErrors() {
				return &cluster.ConfigError{Diagnostics: s.Problems}
			}
			return a.print(s, func() error {
				page{a.stdout, a.columns()}.stage(s)
				return nil
			})
		},
	}
}

func printStageFile(a *app, s *config.LibraryStage, name string) error {
	if !slices.Contains(s.Files, name) {
		return &cluster.UsageError{Message: fmt.Sprintf("%s has no file %q%s\n  its files: %s", s.Source,
			name,
			config.DidYouMean(name, s.Files), strings.Join(s.Files, ", "))}
	}
	text, err := fs.ReadFile(s.Folder, name)
	if err == nil {
		_, err = a.stdout.Write(text)
	}
	return err
}

// page writes lines, broken at the terminal's width.
type page struct {
	w       io.Writer
	columns int
}

func (p page) line(indent int, text string) {
	for _, part := range wrap(text, p.columns-indent) {
		fmt.Fprintf(p.w, "%s%s\n", strings.Repeat(" ", indent), part)
	}
}

// list writes a heading and an entry for each item: its head, and details below.
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
	fmt.Fprintf(p.w, "%s (%s): %s\n", s.Source, stageOrigin(s), s.Summary)
	if s.EndsCluster {
		p.line(0, "ends_cluster: the resources inside the cluster end with it")
	}
	if s.Persistent {
		p.line(0, "persistent: destroy leaves it unless --all is given")
	}
	if s.Volatile {
		p.line(0, "volatile: castle refreshes it whenever a dependent will run")
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
	list(p, "preflights, before any change", s.Preflights, checkLines)
	list(p, "adopts existing resources", s.Adopts, func(x config.LibraryAdopt) (string, []string) {
		return x.Address, []string{"id " + oneLine(x.ID)}
	})
	list(p, "gates, all open before the stage is ready", s.Gates, checkLines)
	fmt.Fprintf(p.w, "\nfiles, printed by castle stage show %s FILE\n", s.Source)
	p.line(2, strings.Join(s.Files, ", "))
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
		head += "; deferred gate, after " + strings.Join(c.Needs, ", ")
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
