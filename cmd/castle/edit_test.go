//go:build integration

package main

import (
	"bytes"
	"encoding/json"
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
)

// TestLabEdit rehearses the cluster mini and edits its configuration there.
func TestLabEdit(t *testing.T) {
	scripts(t, "mini", "testdata/lab-edit")
}

// TestRehearseEdit rehearses what a patch asks for: three control planes in the place of one.
func TestRehearseEdit(t *testing.T) {
	t.Parallel()
	before := filesBelow(t, "../../clusters")
	rehearse := func(patch string, flags ...string) (code int, output string) {
		t.Helper()
		file := filepath.Join(t.TempDir(), "edit.diff")
		if err := os.WriteFile(file, []byte("--- a/clusters/mini/proxmox/terraform.tfvars\n"+
			"+++ b/clusters/mini/proxmox/terraform.tfvars\n"+patch), 0o600); err != nil {
			t.Fatal(err)
		}
		args := append([]string{"rehearse", "mini", "-C", "../..", "--edit", file}, flags...)
		out, err := exec.CommandContext(t.Context(), "../../bin/castle", args...).CombinedOutput()
		if exit, ok := errors.AsType[*exec.ExitError](err); ok {
			code = exit.ExitCode()
		} else if err != nil {
			t.Fatal(err)
		}
		if after := filesBelow(t, "../../clusters"); after != before {
			t.Error("the real configuration has changed")
		}
		return code, string(out)
	}
	for patch, want := range map[string]string{
		"@@ -4,2 +4,2 @@\n # of another file\n-vip = 1\n+vip = 2\n": "" +
			"terraform.tfvars:4: the patch does not apply",
		"@@ -1,1 +1,2 @@\n+oops = 1\n # No secret belongs here: they are in Infisical, in the folder\n": "" +
			"edit.diff; nothing was started\n",
	} {
		if code, out := rehearse(patch); code != 2 || !strings.Contains(out, want) ||
			strings.Contains(out, "==> castle") {
			t.Errorf("exit %d, want 2 and %q:\n%s", code, want, out)
		}
	}
	report := filepath.Join(t.TempDir(), "report.json")
	const worker = `{ role = "worker", vm_id = 442, address = "192.168.1.222", cores = 4, memory = 16384, ` +
		`longhorn_disk = 80 }`
	code, out := rehearse(`@@ -28,1 +28,3 @@
+  cp-02     = { role = "controlplane", vm_id = 443, address = "192.168.1.223", cores = 2, memory = 4096 }
+  cp-03     = { role = "controlplane", vm_id = 444, address = "192.168.1.224", cores = 2, memory = 4096 }
   worker-01 = `+worker+"\n", "--rollout-flag", "--verbose", "--report", report)
	if code != 0 || !strings.Contains(out, "Left over: nothing") || !strings.Contains(out, " 4 machines, ") {
		t.Fatalf("exit %d:\n%s", code, out)
	}
	var told struct{ Steps []struct{ Command string } }
	content, err := os.ReadFile(report)
	if err == nil {
		err = json.Unmarshal(content, &told)
	}
	if err != nil {
		t.Fatal(err)
	}
	var steps []string
	for _, s := range told.Steps {
		first, rest, _ := strings.Cut(s.Command, " ")
		if first == "edit" {
			rest = filepath.Base(rest)
		}
		steps = append(steps, first+" "+rest)
	}
	if got, want := strings.Join(steps, ", "), "castle create mini/proxmox, castle status mini/proxmox, "+
		"edit edit.diff, castle plan mini/proxmox, castle rollout mini/proxmox --yes --verbose, "+
		"castle create mini/proxmox, castle status mini/proxmox, "+
		"castle destroy mini/proxmox --yes"; got != want {
		t.Errorf("steps: %s\nwant: %s", got, want)
	}
}

// filesBelow is the content of every file in a folder.
func filesBelow(t *testing.T, dir string) string {
	t.Helper()
	var all bytes.Buffer
	if err := filepath.WalkDir(dir, func(path string, entry os.DirEntry, err error) error {
		if err != nil || entry.IsDir() {
			return err
		}
		content, err := os.ReadFile(path)
		all.WriteString(path + "\n")
		all.Write(content)
		return err
	}); err != nil {
		t.Fatal(err)
	}
	return all.String()
}
