//go:build integration

package main

import (
	"os"
	"path/filepath"
	"regexp"
	"testing"

	"github.com/rogpeppe/go-internal/testscript"
)

// TestLabStorage rehearses addresses with the storage of docs/stages.md, and without any.
func TestLabStorage(t *testing.T) { scripts(t, "addresses", "testdata/lab-storage") }

// documentedFile is a file in a document: its name in a line of its own, and its text in a block.
var documentedFile = regexp.MustCompile("(?m)^`(stages/[^`]+)`\n\n```hcl\n((?s:.*?))```$")

// documented writes the files of docs/stages.md below a folder into the working directory:
//
//	documented stages/storage/nfs
func documented(ts *testscript.TestScript, neg bool, args []string) {
	if neg || len(args) != 1 {
		ts.Fatalf("usage: documented FOLDER")
	}
	text, err := os.ReadFile("../../docs/stages.md")
	ts.Check(err)
	written := 0
	for _, file := range documentedFile.FindAllStringSubmatch(string(text), -1) {
		if filepath.Dir(file[1]) != args[0] {
			continue
		}
		path := ts.MkAbs(file[1])
		ts.Check(os.MkdirAll(filepath.Dir(path), 0o755))
		ts.Check(os.WriteFile(path, []byte(file[2]), 0o644))
		written++
	}
	if written == 0 {
		ts.Fatalf("docs/stages.md has no file of %s", args[0])
	}
}
