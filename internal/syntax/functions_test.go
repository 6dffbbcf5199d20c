package syntax_test

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/zclconf/go-cty/cty"

	"github.com/ephemeral-castle/castle/internal/syntax"
)

func TestFileReadsTextsOfTheRepositoryAlone(t *testing.T) {
	outside, repository := t.TempDir(), t.TempDir()
	folder := filepath.Join(repository, "clusters", "blue", "proxmox")
	for name, text := range map[string]string{
		filepath.Join(outside, "key"):                "secret",
		filepath.Join(folder, "own.yaml"):            "own",
		filepath.Join(repository, "shared.yaml"):     "shared",
		filepath.Join(repository, "binary"):          "\xff\xfe",
		filepath.Join(repository, "large"):           strings.Repeat("a", 1<<20+1),
		filepath.Join(repository, "clusters", "big"): strings.Repeat("a", 1<<20),
	} {
		if err := os.MkdirAll(filepath.Dir(name), 0o700); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(name, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	if err := os.Symlink(filepath.Join(outside, "key"), filepath.Join(folder, "link")); err != nil {
		t.Fatal(err)
	}
	file := syntax.FunctionsIn(filepath.Join(folder, "../../.."), folder)["file"]
	for path, want := range map[string]string{
		"own.yaml":                    "own",
		"./own.yaml":                  "own",
		"../../../shared.yaml":        "shared",
		"../../big":                   strings.Repeat("a", 1<<20),
		"none.yaml":                   "error: clusters/blue/proxmox/none.yaml: no such file or directory",
		"../../../../key":             "error: ../../../../key leads out of the repository",
		filepath.Join(outside, "key"): "error: " + outside + "/key leads out of the repository",
		"link":                        "error: clusters/blue/proxmox/link: path escapes from parent",
		"../../../binary":             "error: binary: not a text in UTF-8",
		"../../../large":              "error: large is not a file of at most 1048576 bytes",
		".":                           "error: clusters/blue/proxmox is not a file of at most 1048576 bytes",
	} {
		v, err := file.Call([]cty.Value{cty.StringVal(path)})
		got := ""
		if err != nil {
			got = "error: " + err.Error()
		} else {
			got = v.AsString()
		}
		if got != want && (err == nil || !strings.HasPrefix(got, want)) {
			t.Errorf("file(%q) = %.80q, want %.80q", path, got, want)
		}
	}
}
