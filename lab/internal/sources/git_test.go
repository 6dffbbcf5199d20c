package sources

import (
	"context"
	"net/http/httptest"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/go-git/go-git/v5"
	"github.com/go-git/go-git/v5/plumbing"
	githttp "github.com/go-git/go-git/v5/plumbing/transport/http"
)

func write(t *testing.T, folder string, files map[string]string) {
	t.Helper()
	for name, content := range files {
		path := filepath.Join(folder, name)
		if err := os.MkdirAll(filepath.Dir(path), 0o700); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(path, []byte(content), 0o600); err != nil {
			t.Fatal(err)
		}
	}
}

func runGit(t *testing.T, args ...string) string {
	t.Helper()
	c := exec.Command("git", args...)
	c.Env = append(os.Environ(), "GIT_CONFIG_NOSYSTEM=1", "HOME="+t.TempDir(), "GIT_AUTHOR_NAME=x",
		"GIT_AUTHOR_EMAIL=x@localhost", "GIT_COMMITTER_NAME=x", "GIT_COMMITTER_EMAIL=x@localhost")
	out, err := c.CombinedOutput()
	if err != nil {
		t.Fatalf("git %v: %v: %s", args, err, out)
	}
	return strings.TrimSpace(string(out))
}

// cloned clones a served repository with the library that Flux uses.
func cloned(t *testing.T, url, password string) (folder, commit string, err error) {
	t.Helper()
	folder = t.TempDir()
	r, err := git.PlainCloneContext(t.Context(), folder, false, &git.CloneOptions{URL: url, Depth: 1,
		SingleBranch: true, ReferenceName: plumbing.NewBranchReferenceName("main"),
		Auth: &githttp.BasicAuth{Username: "git", Password: password}})
	if err != nil {
		return "", "", err
	}
	head, err := r.Head()
	return folder, head.Hash().String(), err
}

func TestAFolderIsServedOverHTTPWithoutWhatGitIgnores(t *testing.T) {
	folder := t.TempDir()
	write(t, folder, map[string]string{"cluster/a.yaml": "one", ".gitignore": "*.log\n",
		"cluster/b.log": "x"})
	g, err := NewGit(t.Context(), t.TempDir(), folder, []string{"main"})
	if err != nil {
		t.Fatal(err)
	}
	server := httptest.NewServer(g)
	defer server.Close()
	if _, _, err := cloned(t, server.URL+"/me/fleet", ""); err == nil ||
		!strings.Contains(err.Error(), "authentication required") {
		t.Errorf("without a token: %v", err)
	}
	got, first, err := cloned(t, server.URL+"/me/fleet", "token")
	if err != nil {
		t.Fatal(err)
	}
	if content, err := os.ReadFile(filepath.Join(got, "cluster/a.yaml")); string(content) != "one" {
		t.Errorf("%q, %v", content, err)
	}
	if _, err := os.Stat(filepath.Join(got, "cluster/b.log")); !os.IsNotExist(err) {
		t.Errorf("an ignored file: %v", err)
	}
	// An edit in the rehearsal is a commit.
	write(t, folder, map[string]string{"cluster/a.yaml": "two"})
	if _, second, err := cloned(t, server.URL+"/me/fleet", "token"); err != nil || second == first {
		t.Errorf("after an edit: %s, %v", second, err)
	}
	// The command line speaks another version of the protocol.
	address := strings.Replace(server.URL, "http://", "http://git:token@", 1) + "/me/fleet"
	if out := runGit(t, "ls-remote", address); !strings.Contains(out, "refs/heads/main") {
		t.Errorf("git ls-remote: %s", out)
	}
}

func TestACloneIsServedAtTheCommitOfItsBranch(t *testing.T) {
	clone := t.TempDir()
	write(t, clone, map[string]string{"a.yaml": "committed"})
	runGit(t, "-C", clone, "init", "--quiet", "--initial-branch=main")
	runGit(t, "-C", clone, "add", ".")
	runGit(t, "-C", clone, "commit", "--quiet", "--message", "first")
	want := runGit(t, "-C", clone, "rev-parse", "HEAD")
	to := filepath.Join(t.TempDir(), "fleet")
	commit, changed, err := Checkout(context.Background(), clone, "main", to)
	if err != nil || commit != want || changed {
		t.Fatalf("%s, %t, %v; want %s", commit, changed, err, want)
	}
	g, err := NewGit(t.Context(), t.TempDir(), to, []string{"main"})
	if err != nil {
		t.Fatal(err)
	}
	server := httptest.NewServer(g)
	defer server.Close()
	if _, got, err := cloned(t, server.URL, "token"); err != nil || got != want {
		t.Errorf("served %s, %v; want the commit of the clone, %s", got, err, want)
	}

	write(t, clone, map[string]string{"a.yaml": "changed"})
	runGit(t, "-C", clone, "checkout", "--quiet", "-b", "next")
	commit, changed, err = Checkout(context.Background(), clone, "main", filepath.Join(t.TempDir(), "again"))
	if err != nil || commit != want || !changed {
		t.Errorf("with changes: %s, %t, %v", commit, changed, err)
	}
	_, _, err = Checkout(context.Background(), clone, "release", filepath.Join(t.TempDir(), "none"))
	if err == nil || !strings.Contains(err.Error(), "has no branch release, which git_branch names") {
		t.Errorf("a missing branch: %v", err)
	}
}
