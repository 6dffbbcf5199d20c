package sources

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
)

// Checkout copies the commit of a branch from a clone into a new folder, which is a clone with this one
// commit. It returns the commit, and whether the clone has changes that are not in it. A branch that was
// never checked out in the clone is that of its remote repository origin.
func Checkout(ctx context.Context, clone, branch, to string) (commit string, changed bool, err error) {
	program, err := exec.LookPath("git")
	if err != nil {
		return "", false, errors.New("the program git, which reads Flux's branch, is not on PATH")
	}
	git := func(args ...string) (string, error) {
		c := exec.CommandContext(ctx, program, args...)
		// The clone may belong to somebody else, and hooks and filters of the user's are none of Flux's.
		c.Env = []string{"HOME=" + filepath.Dir(to), "GIT_CONFIG_NOSYSTEM=1", "LC_ALL=C",
			"PATH=" + os.Getenv("PATH"), "GIT_CONFIG_COUNT=1", "GIT_CONFIG_KEY_0=safe.directory",
			"GIT_CONFIG_VALUE_0=*"}
		out, err := c.Output()
		if failed, is := errors.AsType[*exec.ExitError](err); is {
			err = fmt.Errorf("git %s: %s", args[2], bytes.TrimSpace(failed.Stderr))
		}
		return string(bytes.TrimSpace(out)), err
	}
	ref := ""
	for _, candidate := range []string{"refs/heads/" + branch, "refs/remotes/origin/" + branch} {
		if commit, err = git("-C", clone, "rev-parse", "--quiet", "--verify", candidate); err == nil {
			ref = candidate
			break
		}
	}
	if ref == "" {
		return "", false, fmt.Errorf("the clone %s has no branch %s, which git_branch names; fetch it, or "+
			"correct git_branch", clone, branch)
	}
	status, err := git("-C", clone, "status", "--porcelain", "--untracked-files=normal")
	if err != nil {
		return "", false, err
	}
	head, _ := git("-C", clone, "rev-parse", "HEAD") //nolint:errcheck // a clone without one differs
	if err := os.MkdirAll(to, 0o700); err != nil {
		return "", false, err
	}
	for _, args := range [][]string{{"init", "--quiet"},
		{"fetch", "--quiet", "--depth=1", "file://" + clone, ref + ":refs/heads/" + branch},
		{"checkout", "--quiet", branch}} {
		if _, err := git(append([]string{"-C", to}, args...)...); err != nil {
			return "", false, err
		}
	}
	return commit, status != "" || head != commit, nil
}
