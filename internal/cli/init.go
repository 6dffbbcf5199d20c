package cli

import (
	"fmt"
	"io"
	"path/filepath"
	"slices"
	"strings"

	"github.com/spf13/cobra"

	"github.com/ephemeral-castle/castle/internal/scaffold"
)

func newInit(a *app) *cobra.Command {
	ci := ""
	cmd := &cobra.Command{
		Use:   "init [DIR]",
		Short: "Initialize a repository",
		Long: `Initialize a castle repository in DIR, or in the current directory: clusters/,
castle.hcl with settings for all clusters, and a .gitignore that keeps kubeconfigs,
Terraform states and secrets.tfvars out of Git. Existing files stay unchanged;
castle appends missing lines to a .gitignore only if you confirm it.

With --ci, castle also writes the pipeline of ` + "`castle ci`" + `, if the repository has clusters and
a store for their states.`,
		Example: `  castle init castles
  castle init --ci github`,
		Args: usage(cobra.MaximumNArgs(1)),
		RunE: func(cmd *cobra.Command, args []string) error {
			var system *scaffold.PipelineSystem
			if ci != "" {
				var err error
				if system, err = pipelineSystem(ci); err != nil {
					return err
				}
			}
			dir := strings.Join(args, "")
			if !filepath.IsAbs(dir) {
				dir = filepath.Join(a.directory, dir)
			}
			done, err := scaffold.Init(dir)
			if err != nil {
				return refuse("%v", err)
			}
			result := map[string]any{
				"repository": dir, "made": append([]string{}, done.Made...),
				"unignored": append([]string{}, done.Unignored...),
			}
			err = a.print(result, func(w io.Writer) { printInit(w, dir, done.Made) })
			if err == nil && len(done.Unignored) > 0 {
				err = offerIgnore(a, dir, done.Unignored)
			}
			if err != nil || system == nil {
				return err
			}
			a.directory = dir
			return writePipeline(cmd.Context(), a, *system, scaffold.Pipeline{
				Command: "castle ci " + system.Name, Branch: mainBranch, Runner: system.Runner}, nil)
		},
	}
	cmd.Flags().StringVar(&ci, "ci", "", "also write a pipeline for `SYSTEM`: github or gitlab")
	return cmd
}

func printInit(w io.Writer, dir string, made []string) {
	if len(made) == 0 {
		fmt.Fprintf(w, "%s is already a castle repository\n", dir)
		return
	}
	flag := ""
	if dir != "." {
		flag = "-C " + dir + " "
	}
	fmt.Fprintf(w, "initialized castle repository %s: %s\nNext:\n  castle %snew green\n", dir,
		strings.Join(made, ", "), flag)
}

// ignoreProblem describes the lines that a .gitignore lacks.
func ignoreProblem(dir string, lines []string) string {
	return fmt.Sprintf("%s lacks %s: keys, states or secrets of a cluster could get into Git",
		filepath.Join(dir, ".gitignore"), strings.Join(lines, ", "))
}

// offerIgnore asks whether castle may append lines to an existing .gitignore.
func offerIgnore(a *app, dir string, lines []string) error {
	if !isTerminal(a.stdin) {
		return &unconfirmedError{ignoreProblem(dir, lines) + "; add the missing lines"}
	}
	typed, err := a.prompt(ignoreProblem(dir, lines) + ".\nAppend the missing lines? (y/N): ")
	if err != nil || !slices.Contains([]string{"y", "yes"}, strings.ToLower(typed)) {
		return &unconfirmedError{fmt.Sprintf("%s was not changed; add %s", filepath.Join(dir, ".gitignore"),
			strings.Join(lines, ", "))}
	}
	return scaffold.Ignore(dir, lines)
}
