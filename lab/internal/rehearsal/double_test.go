package rehearsal

import (
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
)

// real makes a repository with a cluster, its secrets, and links.
func real(t *testing.T) (repository, dir string) {
	t.Helper()
	outside, repository := t.TempDir(), t.TempDir()
	dir = filepath.Join(repository, "clusters", "blue", "proxmox")
	for name, content := range map[string]string{
		"castle.hcl": "", ".env": "real", ".git/HEAD": "real", "bin/castle": "real",
		"stages/a/b/stage.hcl": "stage {}", "clusters/blue/proxmox/cluster.hcl": "one\ntwo\nthree\n",
		"clusters/blue/proxmox/secrets.tfvars": "real", "clusters/blue/proxmox/configs/kubeconfig": "real",
		"clusters/red/proxmox/secrets.tfvars": "real", "clusters/red/proxmox/configs/kubeconfig": "real",
	} {
		path := filepath.Join(repository, name)
		check(t, os.MkdirAll(filepath.Dir(path), 0o700))
		check(t, os.WriteFile(path, []byte(content), 0o600))
	}
	check(t, os.WriteFile(filepath.Join(outside, "shared.hcl"), []byte("shared"), 0o600))
	check(t, os.Symlink("cluster.hcl", filepath.Join(dir, "link.hcl")))
	check(t, os.Symlink(outside, filepath.Join(dir, "elsewhere")))
	check(t, os.Symlink("../../../..", filepath.Join(dir, "above")))
	return repository, dir
}

func TestTheCopyMayBeEditedAndTheRepositoryMayNot(t *testing.T) {
	repository, dir := real(t)
	before := tree(t, repository)
	p := &plan{Work: t.TempDir(), Repository: repository, Survey: survey{ClusterDir: dir},
		Options: Options{Environ: []string{"HOME=" + t.TempDir()}}}
	mounts, err := p.mounts()
	check(t, err)
	if after := tree(t, repository); after != before {
		t.Errorf("before:\n%s\nafter:\n%s", before, after)
	}
	if first := mounts[0]; first.Path != repository || first.From != "" {
		t.Errorf("first: %+v, want the repository, read-only", first)
	}
	if last := mounts[len(mounts)-1]; last.Path != repository || last.From != p.path("repository") {
		t.Errorf("last: %+v, want the repository's copy", last)
	}
	var shown []string
	for _, m := range mounts[1 : len(mounts)-1] {
		shown = append(shown, strings.TrimPrefix(m.From, repository))
	}
	slices.Sort(shown)
	want := []string{"/.env", "/.git", "/bin", "/clusters/blue/proxmox/secrets.tfvars"}
	if !slices.Equal(shown, want) {
		t.Errorf("shown read-only: %v, want %v", shown, want)
	}
	for name, want := range map[string]string{
		"castle.hcl": "", "stages/a/b/stage.hcl": "stage {}",
		"clusters/blue/proxmox/cluster.hcl":          "one\ntwo\nthree\n",
		"clusters/blue/proxmox/link.hcl":             "one\ntwo\nthree\n",
		"clusters/blue/proxmox/elsewhere/shared.hcl": "shared",
		".env": "", "clusters/blue/proxmox/secrets.tfvars": "", // there are the real ones
	} {
		content, err := os.ReadFile(p.path("repository", name))
		if err != nil || string(content) != want {
			t.Errorf("%s: %q, %v", name, content, err)
		}
	}
	left, err := os.ReadDir(p.path("repository", "clusters/blue/proxmox/configs"))
	if err != nil || len(left) != 0 {
		t.Errorf("configs/: %v, %v", left, err)
	}
	for _, name := range []string{"clusters/red/proxmox/configs", "clusters/red/proxmox/secrets.tfvars"} {
		if _, err := os.Lstat(p.path("repository", name)); !os.IsNotExist(err) {
			t.Errorf("%s is in the copy: %v", name, err)
		}
	}
	info, err := os.Lstat(p.path("repository", "clusters/blue/proxmox/elsewhere"))
	if err != nil || !info.IsDir() {
		t.Errorf("a link leads to the real files: %v, %v", info, err)
	}
}
