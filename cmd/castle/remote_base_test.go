//go:build integration

package main

import (
	"os"
	"os/exec"
	"path/filepath"
	"testing"
)

// TestLabRemoteBase rehearses a kustomization.yaml with a base in another repository, which --source brings.
func TestLabRemoteBase(t *testing.T) {
	if os.Getenv(inLab) != "" {
		scripts(t, "handover", "testdata/lab-remote-base")
		return
	}
	if _, err := os.Stat("../../bin/controllers/helm-controller"); err != nil {
		t.Skip("the real controllers are not built: make real builds them, which takes minutes")
	}
	folder := t.TempDir()
	if err := os.Mkdir(filepath.Join(folder, "deploy"), 0o755); err != nil {
		t.Fatal(err)
	}
	for name, text := range map[string]string{"kustomization.yaml": "resources: [notes.yaml]",
		"notes.yaml": "{apiVersion: v1, kind: ConfigMap, metadata: {name: notes, namespace: default}}"} {
		if err := os.WriteFile(filepath.Join(folder, "deploy", name), []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	for _, args := range [][]string{{"init", "-q", "-b", "main"}, {"add", "."}, {"-c", "user.name=me", "-c",
		"user.email=me@example.org", "-c", "commit.gpgsign=false", "commit", "-qm", "base"}} {
		out, err := exec.Command("git", append([]string{"-C", folder}, args...)...).CombinedOutput()
		if err != nil {
			t.Fatalf("%v: %s", err, out)
		}
	}
	scripts(t, "handover", "testdata/lab-remote-base", "--controllers", "real",
		"--source", "https://git.example.org/me/base="+folder)
}
