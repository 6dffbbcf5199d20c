package cli

import (
	"errors"
	"fmt"
	"path"
	"slices"
	"strings"

	"github.com/spf13/cobra"

	"github.com/ephemeral-castle/castle/internal/cluster"
	"github.com/ephemeral-castle/castle/internal/config"
	"github.com/ephemeral-castle/castle/internal/scaffold"
	"github.com/ephemeral-castle/castle/internal/ui"
	"github.com/ephemeral-castle/castle/stages"
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
	repository, err := a.repository()
	if err != nil {
		return nil, err
	}
	return config.ReadLibrary(config.Options{
		Repository: repository, Library: stages.Library,
		Gates: cluster.GateTypes(), Preflights: cluster.PreflightTypes(), Exists: cluster.ExistsTypes(),
	}), nil
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
	hint := config.DidYouMean(source, sources)
	if len(near) > 0 {
		hint = "; did you mean " + strings.Join(near, " or ") + "?"
	}
	return nil, &cluster.UsageError{Message: fmt.Sprintf("no stage %q%s\n  `castle stage list` lists all "+
		"stages", source, hint)}
}

func newStageList(a *app) *cobra.Command {
	return &cobra.Command{
		Use:   "list",
		Short: "List all stages",
		Long: `List the built-in stages and those of the repository by layer, with their purpose.
Stages of the repository are marked, with those that override a built-in stage. Outside
a repository: the built-in stages.`,
		Args: usage(cobra.NoArgs),
		RunE: func(*cobra.Command, []string) error {
			all, err := a.library()
			if err != nil {
				return err
			}
			return a.print(map[string]any{"stages": all}, func() error {
				t := ui.NewTable(a.stdout)
				fmt.Fprintf(t, "stage\tfrom\t\n")
				for _, s := range all {
					fmt.Fprintf(t, "%s\t%s\t%s\n", s.Source, stageOrigin(s), s.Summary)
				}
				if err := t.Flush(); err != nil {
					return err
				}
				for _, s := range all {
					if s.Problems.HasErrors() {
						fmt.Fprintf(a.stderr, "castle: stage %s is invalid; `castle stage show %s` "+
							"shows why\n", s.Source, s.Source)
					}
				}
				return nil
			})
		},
	}
}

// stageOrigin describes where a stage comes from.
func stageOrigin(s *config.LibraryStage) string {
	switch {
	case s.Shadows:
		return "repository, overrides the built-in stage"
	case s.Origin != "embedded":
		return "repository"
	}
	return "built-in"
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
				return &cluster.UsageError{Message: fmt.Sprintf("%s already is the repository's own; there "+
					"is no built-in stage of this name", s.Origin)}
			}
			files, err := scaffold.Eject(o.Repository, o.Library, s.Source)
			if errors.Is(err, scaffold.ErrExists) {
				return &cluster.UsageError{Message: err.Error()}
			}
			if err != nil {
				return err
			}
			folder := "stages/" + s.Source
			slices.Sort(files)
			return a.print(map[string]any{"source": s.Source, "folder": folder, "files": files},
				func() error {
					_, err := fmt.Fprintf(a.stdout, `copied %s: %s in %s
The copy overrides the built-in stage for every cluster of this repository, and an
upgrade of castle does not change it. To go back, remove the folder.
Next: change it, then check the effect with
  castle status CLUSTER
`, s.Source, count(len(files), "file"), folder)
					return err
				})
		},
	}
}
