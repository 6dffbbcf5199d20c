package cli

import (
	"fmt"
	"os"
	"path"
	"slices"
	"strings"

	"github.com/spf13/cobra"

	"github.com/ephemeral-castle/castle/internal/castle"
	"github.com/ephemeral-castle/castle/internal/config"
	"github.com/ephemeral-castle/castle/stages"
)

func newStage(a *app) *cobra.Command {
	cmd := &cobra.Command{
		Use:   "stage",
		Short: "Look at the library of stages, and change one",
		Long: `Look at the library of stages that castle brings, and copy one into the repository
to change it. A stage in the repository's stages/<layer>/<stage> takes the place
of the embedded one of this name.`,
		Args: usage(func(_ *cobra.Command, args []string) error {
			if len(args) > 0 {
				return fmt.Errorf("there is no `castle stage %s`", args[0])
			}
			return nil
		}),
		RunE: func(cmd *cobra.Command, _ []string) error { return cmd.Help() },
	}
	cmd.AddCommand(newStageList(a), newStageShow(a), newStageEject(a))
	return cmd
}

// library describes every stage there is. Without a repository that is what
// castle brings.
func (a *app) library() ([]*config.LibraryStage, error) {
	if _, err := os.Stat(a.directory); err != nil {
		return nil, &castle.UsageError{Message: "--directory: " + err.Error()}
	}
	repository, err := config.FindRepository(a.directory)
	if err != nil {
		repository = ""
	}
	return config.ReadLibrary(config.Options{
		Repository: repository, Library: stages.Library, Gates: castle.GateTypes(), Preflights: castle.PreflightTypes(), Exists: castle.ExistsTypes(),
	}), nil
}

// libraryStage returns the one that is called source.
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
	return nil, &castle.UsageError{Message: fmt.Sprintf("there is no stage %q%s\n  `castle stage list` lists all", source, hint)}
}

func oneStage() cobra.PositionalArgs {
	return usage(func(_ *cobra.Command, args []string) error {
		if len(args) != 1 {
			return fmt.Errorf("needs one stage, LAYER/STAGE, not %d", len(args))
		}
		return nil
	})
}

func newStageEject(a *app) *cobra.Command {
	return &cobra.Command{
		Use:   "eject LAYER/STAGE",
		Short: "Copy a stage into the repository to change it",
		Long: `Copy an embedded stage, with its charts and lock file, into the repository's
stages/<layer>/<stage>. It takes the place of the embedded one there, for all
clusters of the repository, and no later castle changes it. Nothing is overwritten.
As long as it is not changed, a create has nothing to do for it.`,
		Example: "  castle stage eject networking/metallb",
		Args:    oneStage(),
		RunE: func(_ *cobra.Command, args []string) error {
			o, err := a.complete(castle.Options{})
			if err != nil {
				return err
			}
			s, err := a.libraryStage(args[0])
			if err != nil {
				return err
			}
			if s.Origin != "embedded" && !s.Shadows {
				return &castle.UsageError{Message: fmt.Sprintf("%s is the repository's own already; castle brings none of this name", s.Origin)}
			}
			files, err := castle.Eject(o.Repository, o.Library, s.Source)
			if err != nil {
				return err
			}
			return a.printEjected(s, files)
		},
	}
}

func (a *app) printEjected(s *config.LibraryStage, files []string) error {
	folder := "stages/" + s.Source
	if a.output == "json" {
		slices.Sort(files)
		return a.printJSON(map[string]any{"source": s.Source, "folder": folder, "files": files})
	}
	_, err := fmt.Fprintf(a.stdout, `%s is yours now: %s in %s
From now on castle uses them for every cluster of this repository instead of its own,
and an upgrade of castle does not change them. To go back, remove the folder.
Next: change it, then look what that means with
  castle status CLUSTER
`, s.Source, count(len(files), "file"), folder)
	return err
}
