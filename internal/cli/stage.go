package cli

import (
	"cmp"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"maps"
	"path"
	"slices"
	"strings"

	"github.com/spf13/cobra"

	"github.com/ephemeral-castle/castle/internal/cluster"
	"github.com/ephemeral-castle/castle/internal/config"
	"github.com/ephemeral-castle/castle/internal/foreign"
	"github.com/ephemeral-castle/castle/internal/module"
	"github.com/ephemeral-castle/castle/internal/scaffold"
	"github.com/ephemeral-castle/castle/internal/syntax"
	"github.com/ephemeral-castle/castle/internal/ui"
)

func newStage(a *app) *cobra.Command {
	return group("stage", "Show the stage library, and copy a stage to change it",
		`Show the library of built-in stages, and copy one into the repository to change it. A
stage in the repository's stages/<layer>/<stage> overrides the built-in stage of this
name.`,
		newStageList(a), newStageShow(a), newStageEject(a))
}

// library returns every stage: the built-in ones and those of the repository, if there is one.
func (a *app) library() ([]*config.LibraryStage, error) {
	o, err := a.complete(cluster.Options{Recorded: true})
	if err != nil {
		return nil, err
	}
	return config.ReadLibrary(o.Config()), nil
}

// libraryStage returns the stage with this source.
func (a *app) libraryStage(source string) (*config.LibraryStage, error) {
	all, err := a.library()
	if err != nil {
		return nil, err
	}
	var sources, near []string
	for _, s := range all {
		if s.Source == source {
			return s, nil
		}
		sources = append(sources, s.Source)
		if s.Name() == path.Base(source) {
			near = append(near, s.Source)
		}
	}
	hint := syntax.DidYouMean(source, sources)
	if len(near) > 0 {
		hint = "; did you mean " + strings.Join(near, " or ") + "?"
	}
	return nil, refuse("no stage %q%s\n  `castle stage list` lists all stages", source, hint)
}

func newStageList(a *app) *cobra.Command {
	return &cobra.Command{
		Use:   "list",
		Short: "List all stages",
		Long: `List the built-in stages and those of the repository by layer, with their purpose.
Stages of the repository are marked, with those that override a built-in stage. Outside
a repository: the built-in stages.`,
		Example:    "  castle stage list",
		SuggestFor: []string{"ls"},
		Args:       usage(cobra.NoArgs),
		RunE: func(*cobra.Command, []string) error {
			all, err := a.library()
			if err != nil {
				return err
			}
			return a.print(map[string]any{"stages": all}, func(w io.Writer) {
				fmt.Fprintf(w, "stage\tfrom\t\n")
				for _, s := range all {
					fmt.Fprintf(w, "%s\t%s\t%s\n", s.Source, stageOrigin(s), s.Summary)
					if s.Problems.HasErrors() {
						fmt.Fprintf(a.stderr, "castle: stage %s is invalid; `castle stage show %[1]s` "+
							"shows why\n", s.Source)
					}
				}
			})
		},
	}
}

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
			return a.print(s, func(w io.Writer) { page{w, ui.Columns(a.stdout, 120)}.stage(s) })
		},
	}
}

func printStageFile(a *app, s *config.LibraryStage, name string) error {
	if !slices.Contains(s.Files, name) {
		return refuse("%s has no file %q%s\n  its files: %s", s.Source, name,
			syntax.DidYouMean(name, s.Files), strings.Join(s.Files, ", "))
	}
	text, err := fs.ReadFile(s.Folder, name)
	if err == nil {
		_, err = values(a).Write(text)
	}
	return err
}

// page writes lines, broken at the terminal's width.
type page struct {
	w       io.Writer
	columns int
}

// line writes a text, unless it is empty.
func (p page) line(indent int, text string) {
	if text == "" {
		return
	}
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
			p.line(6, text)
		}
	}
}

func (p page) stage(s *config.LibraryStage) {
	fmt.Fprintf(p.w, "%s (%s): %s\n", s.Source, stageOrigin(s), s.Summary)
	p.line(0, textIf(s.EndsCluster, "ends_cluster: the resources inside the cluster end with it"))
	p.line(0, textIf(s.Persistent, "persistent: destroy leaves it unless --all is given"))
	p.line(0, textIf(s.Volatile, "volatile: castle compares it with its source on each create and plan"))
	p.line(0, listIf("needs ", s.Needs))
	list(p, "inputs", s.Inputs, input)
	list(p, "outputs", s.Outputs, func(o module.Output) (string, []string) {
		return o.Name + textIf(o.Sensitive, ", sensitive"), []string{foreign.OneLine(o.Description)}
	})
	list(p, "providers", s.Providers, func(v config.LibraryProvider) (string, []string) {
		wired := textIf(v.Wired, ", configured by castle from platform.kubeconfig")
		return strings.TrimSpace(v.Source+" "+v.Versions) + wired, nil
	})
	list(p, "preflights, before any change", s.Preflights, checkLines)
	list(p, "adopts existing resources", s.Adopts, func(x config.LibraryAdopt) (string, []string) {
		return x.Address, []string{"id " + foreign.OneLine(x.ID)}
	})
	list(p, "replaces resources with what they configure", s.Replaces,
		func(x config.LibraryReplace) (string, []string) {
			return x.Address, []string{"instance " + foreign.OneLine(x.Instance)}
		})
	list(p, "gates, all open before the stage is ready", s.Gates, checkLines)
	fmt.Fprintf(p.w, "\nfiles, printed by castle stage show %s FILE\n", s.Source)
	p.line(2, strings.Join(s.Files, ", "))
}

func input(in config.LibraryInput) (string, []string) {
	brief, from := len(in.Type) < 40, ""
	head := in.Name + textIf(brief, "  "+in.Type) + textIf(in.Sensitive, ", sensitive")
	switch {
	case in.Wired != "":
		from = "wired to " + foreign.OneLine(in.Wired) +
			textIf(len(in.From) > 0, ", from "+strings.Join(in.From, " or "))
	case in.Required:
		head += ", required"
	case len(in.Default) > 200: // an object with nothing in it
		head += ", optional"
	case in.Default != nil:
		head += ", default " + string(in.Default)
	}
	return head, []string{foreign.OneLine(in.Description), from, textIf(!brief, "type "+in.Type)}
}

func checkLines(c config.LibraryCheck) (string, []string) {
	var arguments []string
	for _, name := range slices.Sorted(maps.Keys(c.Arguments)) {
		if text := c.Arguments[name]; !strings.Contains(text, "\n") {
			arguments = append(arguments, name+" = "+text)
		}
	}
	head := c.Name + ": " + c.Proves + listIf("; deferred gate, after ", c.Needs)
	return head, []string{c.Why, strings.Join(arguments, ", ")}
}

// stageOrigin describes where a stage comes from.
func stageOrigin(s *config.LibraryStage) string {
	return cmp.Or(textIf(s.Shadows, "repository, overrides the built-in stage"),
		textIf(s.Origin != "embedded", "repository"), "built-in")
}

func newStageEject(a *app) *cobra.Command {
	return &cobra.Command{
		Use:   "eject LAYER/STAGE",
		Short: "Copy a built-in stage into the repository to change it",
		Long: `Copy a built-in stage, with its charts and lock file, into the repository's
stages/<layer>/<stage>. The copy overrides the built-in stage for all clusters of the
repository, and an upgrade of castle does not change it. Nothing is overwritten. While
the copy is unchanged, the stage stays up to date.`,
		Example: "  castle stage eject networking/metallb",
		Args:    usage(cobra.ExactArgs(1)),
		RunE: func(_ *cobra.Command, args []string) error {
			o, err := a.complete(cluster.Options{})
			if err != nil {
				return err
			}
			s, err := a.libraryStage(args[0])
			if err != nil {
				return err
			}
			if s.Origin != "embedded" && !s.Shadows {
				return refuse("%s already is the repository's own; there is no built-in stage of this name",
					s.Origin)
			}
			files, err := scaffold.Eject(o.Repository, o.Library, s.Source)
			if errors.Is(err, scaffold.ErrExists) {
				return refuse("%v", err)
			}
			if err != nil {
				return err
			}
			slices.Sort(files)
			result := map[string]any{"source": s.Source, "folder": "stages/" + s.Source, "files": files}
			return a.print(result, func(w io.Writer) {
				fmt.Fprintf(w, `copied %s: %s in stages/%[1]s
The copy overrides the built-in stage for every cluster of this repository, and an
upgrade of castle does not change it. To go back, remove the folder.
Next: change it, then check the effect with
  castle status CLUSTER
`, s.Source, count(len(files), "file"))
			})
		},
	}
}
