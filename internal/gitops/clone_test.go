package gitops_test

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/ephemeral-castle/castle/internal/gitops"
)

// TestIgnoredFilesAreNotRead covers the patterns of .gitignore and .sourceignore.
func TestIgnoredFilesAreNotRead(t *testing.T) {
	for _, c := range []struct{ file, patterns, left string }{
		{".gitignore", "a.yaml", "sub/b.yaml sub/deep/c.yaml"},
		{".gitignore", "/clusters/a.yaml", "sub/b.yaml sub/deep/c.yaml"},
		{".gitignore", "/b.yaml", "a.yaml sub/b.yaml sub/deep/c.yaml"}, // in the root only
		{".gitignore", "*.yaml\n!clusters/sub/b.yaml", "sub/b.yaml"},
		{".gitignore", "sub/", "a.yaml"},
		{".gitignore", "a.yaml/", "a.yaml sub/b.yaml sub/deep/c.yaml"}, // a folder of this name
		{".gitignore", "**/deep", "a.yaml sub/b.yaml"},
		{".gitignore", "clusters/**/c.yaml", "a.yaml sub/b.yaml"},
		{".gitignore", "clusters/**/b.yaml", "a.yaml sub/deep/c.yaml"},
		{".gitignore", "clusters/**", ""},
		{".gitignore", "/clusters/sub\n!b.yaml", "a.yaml"}, // nothing in an ignored folder comes back
		{".gitignore", "# a.yaml\n\n\\#x  \n[", "a.yaml sub/b.yaml sub/deep/c.yaml"},
		{".sourceignore", "/*\n!/clusters/\nclusters/sub/deep/", "a.yaml sub/b.yaml"},
		{"clusters/sub/.sourceignore", "/b.yaml", "a.yaml sub/deep/c.yaml"},
		{"clusters/sub/.gitignore", "*\r\n!b.yaml\r", "a.yaml sub/b.yaml"},
	} {
		dir := t.TempDir()
		for name, text := range map[string]string{
			"clusters/a.yaml": object("a"), "clusters/sub/b.yaml": object("b"),
			"clusters/sub/deep/c.yaml": object("c"), c.file: c.patterns,
		} {
			file := filepath.Join(dir, name)
			if err := os.MkdirAll(filepath.Dir(file), 0o700); err != nil {
				t.Fatal(err)
			}
			if err := os.WriteFile(file, []byte(text), 0o600); err != nil {
				t.Fatal(err)
			}
		}
		read, err := gitops.Read(gitops.Options{Folder: dir, Path: "clusters"})
		if err != nil {
			t.Errorf("%q: %v", c.patterns, err)
		}
		var left []string
		for _, o := range read[0].Objects {
			left = append(left, strings.TrimPrefix(o.At.File, "clusters/"))
		}
		if got := strings.Join(left, " "); got != c.left {
			t.Errorf("%s with %q leaves %q; want %q", c.file, c.patterns, got, c.left)
		}
	}
}

func object(name string) string {
	return "apiVersion: v1\nkind: ConfigMap\nmetadata: { namespace: x, name: " + name + " }\n"
}

func TestBranchOfAClone(t *testing.T) {
	for _, c := range []struct{ tree, want string }{
		{"-- .git/HEAD --\nref: refs/heads/feature/x\n", "feature/x"},
		{"-- .git/HEAD --\n0123456789abcdef0123456789abcdef01234567\n", ""}, // as a pipeline checks out
		{"-- .git/HEAD --\nref: refs/heads/.invalid\n", ""},
		{"-- .git --\ngitdir: elsewhere/x\n-- elsewhere/x/HEAD --\nref: refs/heads/main\n", "main"},
		{"-- x --\n", ""},
	} {
		if got := gitops.Branch(repository(t, c.tree)); got != c.want {
			t.Errorf("%s: branch %q; want %q", c.tree, got, c.want)
		}
	}
}
