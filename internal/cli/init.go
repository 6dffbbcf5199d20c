package cli

import (
	"bufio"
	"fmt"
	"path/filepath"
	"strings"

	"github.com/spf13/cobra"

	"github.com/ephemeral-castle/castle/internal/castle"
	"github.com/ephemeral-castle/castle/internal/scaffold"
)

func newInit(a *app) *cobra.Command {
	return &cobra.Command{
		Use:   "init [DIR]",
		Short: "Make a castle repository of a folder",
		Long: `Make a castle repository of DIR, or of the folder you are in: clusters/, castle.hcl
with what can be said for all clusters, and a .gitignore that keeps kubeconfigs,
Terraform states and secrets.tfvars out of Git. Nothing that is there is changed;
what a .gitignore lacks is appended only if you say so.`,
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
				return &castle.UsageError{Message: err.Error()}
			}
			if a.output == "json" {
				made, unignored := append([]string{}, done.Made...), append([]string{}, done.Unignored...)
				if err := a.printJSON(map[string]any{"repository": dir, "made": made, "unignored": unignored}); err != nil {
					return err
				}
			} else {
				a.tellInitialized(dir, done.Made)
			}
			if len(done.Unignored) == 0 {
				return nil
			}
			return a.ignore(dir, done.Unignored)
		},
	}
}

func (a *app) tellInitialized(dir string, made []string) {
	if len(made) == 0 {
		fmt.Fprintf(a.stdout, "%s is a castle repository already\n", dir)
		return
	}
	fmt.Fprintf(a.stdout, "%s is a castle repository now: %s\n", dir, strings.Join(made, ", "))
	there := ""
	if filepath.Clean(dir) != "." {
		there = "-C " + dir + " "
	}
	fmt.Fprintf(a.stdout, "Next:\n  castle %snew green\n", there)
}

// lacks says what a .gitignore lacks, and what for.
func lacks(dir string, lines []string) string {
	return fmt.Sprintf("%s lacks %s: keys, states or secrets of a cluster could get into Git", filepath.Join(dir, ".gitignore"), strings.Join(lines, ", "))
}

// warnUnignored warns of a repository whose keys and secrets could get into Git.
func (a *app) warnUnignored(repository string) error {
	lines, err := scaffold.Unignored(repository)
	if err == nil && len(lines) > 0 {
		a.say("castle: warning: " + lacks(repository, lines) + "; `castle init` adds what is missing")
	}
	return err
}

// ignore asks whether lines may be appended to a .gitignore that was there before.
func (a *app) ignore(dir string, lines []string) error {
	file := filepath.Join(dir, ".gitignore")
	if !isTerminal(a.stdin) {
		return &unconfirmedError{lacks(dir, lines) + "; add what is missing"}
	}
	a.prompting(true)
	defer a.prompting(false)
	fmt.Fprintf(a.stderr, "%s.\nAppend it? (y/N): ", lacks(dir, lines))
	typed, err := bufio.NewReader(a.stdin).ReadString('\n')
	if answer := strings.ToLower(strings.TrimSpace(typed)); err != nil || answer != "y" && answer != "yes" {
		return &unconfirmedError{file + " stays as it is; add " + strings.Join(lines, ", ")}
	}
	return scaffold.Ignore(dir, lines)
}
