package rehearsal

import (
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

func diff(from, to, hunk string) string { return "--- " + from + "\n+++ " + to + "\n" + hunk }

const hunk = "@@ -1,3 +1,3 @@\n one\n-two\n+2\n three\n"

func TestAPatchIsWhatGitAndDiffWrite(t *testing.T) {
	const dir = "clusters/blue/proxmox/"
	const name, secrets = dir + "cluster.hcl", dir + "secrets.tfvars"
	for patch, want := range map[string]string{
		"diff --git a/" + name + " b/" + name + "\n" + diff("a/"+name, "b/"+name, hunk):               "",
		"diff -u x y\n" + diff(name+".orig\t2026-11-22 10:00:00", name+"\t2026-11-22 10:00:01", hunk): "",
		"diff -ru before after\n" + diff("before/"+name, "after/"+name, hunk):                         "",
		diff("a/"+name, "b/"+name, strings.ReplaceAll(hunk, "three", "four")): name +
			":1: the patch does not apply: other lines are there",
		diff("a/"+name, "b/"+name, hunk[:30]):              "git apply: corrupt patch at line 7",
		diff("a/none/x", "b/none/x", hunk):                 "git apply: none/x: No such file or directory",
		diff("/dev/null", "b/../x", "@@ -0,0 +1 @@\n+x\n"): "git apply: invalid path '../x'",
		"nothing":                              "git apply: No valid patches in input",
		diff("a/"+secrets, "b/"+secrets, hunk): "git apply: " + secrets + ": No such file or directory",
	} {
		repository, dir := real(t)
		before := tree(t, repository)
		p := &plan{Work: t.TempDir(), Repository: repository, Survey: survey{ClusterDir: dir}}
		_, err := p.double(repository, p.path("edited"))
		check(t, err)
		check(t, os.WriteFile(p.path(patchName), []byte(patch), 0o600))
		err = p.edit(t.Context(), p.path("edited"))
		if got := errorText(err); !strings.HasPrefix(got, want) || got != "" && want == "" {
			t.Errorf("%s\ngot %q, want %q", patch, got, want)
		}
		content, err := os.ReadFile(p.path("edited", name))
		check(t, err)
		if edited := string(content) == "one\n2\nthree\n"; edited != (want == "") {
			t.Errorf("%s\nleaves %q", patch, content)
		}
		if after := tree(t, repository); after != before {
			t.Errorf("%s\nchanges the repository", patch)
		}
	}
}

func errorText(err error) string {
	if err == nil {
		return ""
	}
	return err.Error()
}

func TestAPatchWorksInsideAnotherRepositoryOfGit(t *testing.T) {
	repository, dir := real(t)
	work := filepath.Join(t.TempDir(), "work")
	check(t, os.MkdirAll(filepath.Join(work, ".git"), 0o700)) // damaged, as far as git is concerned
	p := &plan{Work: work, Repository: repository, Survey: survey{ClusterDir: dir}}
	_, err := p.double(repository, p.path("edited"))
	check(t, err)
	patch := diff("/dev/null", "clusters/new.hcl", "@@ -0,0 +1 @@\n+new\n")
	check(t, os.WriteFile(p.path(patchName), []byte(patch), 0o600))
	check(t, p.edit(t.Context(), p.path("edited")))
	content, err := os.ReadFile(p.path("edited", "clusters", "new.hcl"))
	if err != nil || string(content) != "new\n" {
		t.Errorf("new.hcl: %q, %v", content, err)
	}
}

func TestTheLabHasWhatOnlyTheEditNames(t *testing.T) {
	p := &plan{Work: t.TempDir(), Repository: "../../..",
		Options: Options{Cluster: "mini", Edit: filepath.Join(t.TempDir(), "p")}}
	s, err := inspect(p.Repository, p.Options)
	check(t, err)
	p.Survey = *s
	check(t, os.WriteFile(p.Options.Edit, []byte(`--- a/clusters/mini/proxmox/terraform.tfvars
+++ b/clusters/mini/proxmox/terraform.tfvars
@@ -11,3 +11,3 @@
 proxmox_endpoint  = "https://192.168.1.10:8006/" # CHANGE: the host's address
-proxmox_node_name = "proxmox"                    # its name, as the Proxmox tree shows it
+proxmox_node_name = "second"
 proxmox_pool      = "mini"                       # must exist: pveum pool add mini
`), 0o600))
	notice := func(text string) { t.Error(text) }
	check(t, p.tryEdit(t.Context(), notice))
	if got := strings.Join(p.Survey.Hosts.Nodes, " "); got != "proxmox second" {
		t.Errorf("nodes: %s", got)
	}
	check(t, os.WriteFile(p.Options.Edit, []byte("nothing"), 0o600))
	p.Work = t.TempDir()
	err = p.tryEdit(t.Context(), notice)
	_, usage := errors.AsType[*UsageError](err)
	if !usage || !strings.HasSuffix(err.Error(), "; nothing was started") {
		t.Errorf("an edit that does not apply: %v", err)
	}
}
