package changed

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"os/exec"
	"slices"
	"strings"

	"github.com/ephemeral-castle/castle/internal/cluster"
	"github.com/ephemeral-castle/castle/internal/foreign"
)

// repository is the Git repository that a castle repository is in.
type repository struct {
	folder string // of castle
	root   string // of Git
	prefix string // from root to folder, "" or "homelab/"
}

func openRepository(ctx context.Context, folder string) (r repository, err error) {
	r.folder = folder
	if r.root, err = r.line(ctx, "rev-parse", "--show-toplevel"); err != nil {
		return r, cluster.Usagef("%s is in no Git repository that Git can read: %v", folder, err)
	}
	r.prefix, err = r.line(ctx, "rev-parse", "--show-prefix")
	return r, err
}

// git runs git, and returns what it prints. A missing commit is fetched from nowhere.
func (r repository) git(ctx context.Context, args ...string) (string, error) {
	cmd := exec.CommandContext(ctx, "git", append([]string{"-C", r.folder, "--no-pager",
		"-c", "core.quotePath=false", "-c", "core.fsmonitor=false"}, args...)...)
	var stdout, stderr bytes.Buffer
	cmd.Stdout, cmd.Stderr = &stdout, &stderr
	err := cmd.Run()
	if ctx.Err() != nil {
		return "", context.Cause(ctx)
	}
	if text := foreign.OneLine(strings.TrimSpace(stderr.String())); err != nil && text != "" {
		err = errors.New(text)
	}
	if err != nil {
		err = fmt.Errorf("git %s: %w", args[0], err)
	}
	return stdout.String(), err
}

func (r repository) line(ctx context.Context, args ...string) (string, error) {
	out, err := r.git(ctx, args...)
	return strings.TrimSuffix(out, "\n"), err
}

// names runs git with -z, and returns the paths that it prints, each once.
func (r repository) names(ctx context.Context, args ...string) ([]string, error) {
	out, err := r.git(ctx, args...)
	names := strings.Split(strings.TrimSuffix(out, "\x00"), "\x00")
	names = slices.DeleteFunc(names, func(name string) bool { return name == "" })
	slices.Sort(names)
	return slices.Compact(names), err
}

// mergeBase returns the newest commit that ref and HEAD share.
func (r repository) mergeBase(ctx context.Context, ref string) (string, error) {
	fix := ""
	if shallow, err := r.line(ctx, "rev-parse", "--is-shallow-repository"); err == nil && shallow == "true" {
		fix = "\n  the clone is shallow: run `git fetch --unshallow`, or clone all (GitHub: " +
			"fetch-depth: 0 of actions/checkout; GitLab: GIT_DEPTH: 0)"
	}
	commit, err := r.line(ctx, "rev-parse", "--verify", "--quiet", "--end-of-options", ref+"^{commit}")
	if err != nil || commit == "" {
		return "", cluster.Usagef("--since %s: the repository has no such commit%s", ref, fix)
	}
	base, err := r.line(ctx, "merge-base", commit, "HEAD")
	if err != nil {
		return "", cluster.Usagef("--since %s: it shares no commit with HEAD%s", ref, fix)
	}
	return base, nil
}
