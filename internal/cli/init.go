package cli

import (
	"bufio"
	"fmt"
	"path/filepath"
	"strings"

	"github.com/spf13/cobra"

	"github.com/ephemeral-castle/castle/internal/cluster"
	"github.com/ephemeral-castle/castle/internal/scaffold"
)

func newInit(a *app) *cobra.Command {
	return &cobra.Command{
		Use:   "init [DIR]",
		Short: "Initialize a repository",
		Long: `Initialize a castle repository in DIR, or in the current directory: clusters/,
castle.hcl with settings for all clusters, and a .gitignore that keeps kubeconfigs,
Terraform states and secrets.tfvars out of Git. Existing files stay unchanged;
castle appends missing lines to a .gitignore only if you confirm it.`,
		Args: usage(cobra.MaximumNArgs(1)),
		RunE: func(_ *cobra.Command, args []string) error {
			dir := a.directory
			if len(args) > 0 {
				dir = args[0]
				if !filepath.IsAbs(dir) {
					dir = filepath.Join(a.directory, dir)
				}
			}
			done, err := scaffold.Init(dir)
			if err != nil {
				return &cluster.UsageError{Message: err.Error()}
			}
			result := map[string]any{
				"repository": dir, "made": append([]string{}, done.Made...),
				"unignored": append([]string{}, done.Unignored...),
			}
			err = a.print(result, func() error { return printInit(a, dir, done.Made) })
			if err != nil || len(done.Unignored) == 0 {
				return err
			}
			return offerIgnore(a, dir, done.Unignored)
		},
	}
}

func printInit(a *app, dir string, made []string) error {
	if len(made) == 0 {
		_, err := fmt.Fprintf(a.stdout, "%s is already a castle repository\n", dir)
		return err
	}
	flag := ""
	if filepath.Clean(dir) != "." {
		flag = "-C " + dir + " "
	}
	_, err := fmt.Fprintf(a.stdout, "initialized castle repository %s: %s\nNext:\n  castle %snew green\n",
		dir, strings.Join(made, ", "), flag)
	return err
}

// ignoreProblem describes the lines that a .gitignore lacks.
func ignoreProblem(dir string, lines []string) string {
	return fmt.Sprintf("%s lacks %s: keys, states or secrets of a cluster could get into Git",
		filepath.Join(dir, ".gitignore"), strings.Join(lines, ", "))
}

// warnUnignored warns of a repository whose keys and secrets could get into Git.
func warnUnignored(a *app, repository string) error {
	lines, err := scaffold.Unignored(repository)
	if err == nil && len(lines) > 0 {
		a.interrupts.say("castle: warning: " + ignoreProblem(repository, lines) +
			"; `castle init` adds the missing lines")
	}
	return err
}

// offerIgnore asks whether castle may append lines to an existing .gitignore.
func offerIgnore(a *app, dir string, lines []string) error {
	if !isTerminal(a.stdin) {
		return &unconfirmedError{ignoreProblem(dir, lines) + "; add the missing lines"}
	}
	defer a.interrupts.prompt()()
	fmt.Fprintf(a.stderr, "%s.\nAppend the missing lines? (y/N): ", ignoreProblem(dir, lines))
	typed, err := bufio.NewReader(a.stdin).ReadString('\n')
	if answer := strings.ToLower(strings.TrimSpace(typed)); err != nil || answer != "y" && answer != "yes" {
		file := filepath.Join(dir, ".gitignore")
		return &unconfirmedError{file + " was not changed; add " + strings.Join(lines, ", ")}
	}
	return scaffold.Ignore(dir, lines)
}
