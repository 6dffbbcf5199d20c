package rehearsal

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"strings"

	"github.com/ephemeral-castle/castle/lab/internal/providers"
)

const (
	registry     = "registry.terraform.io"
	proxmoxBuilt = "0.111.1" // the release of the real bpg/proxmox that lab/bpg builds
	platform     = "linux_amd64"
)

// errNotBuilt is a lab without one of its programs.
func errNotBuilt(path string) error {
	return fmt.Errorf("%s is missing\ncastle: hint: run `make build` in a clone of castle; it builds the lab's programs side by side into bin/", path)
}

// layOut links the lab's provider programs, which stand beside castle-lab in
// bin, to where Terraform looks for the real ones in a filesystem mirror.
func layOut(mirror, bin string) error {
	link := func(source, version, target, name string) error {
		if _, err := os.Stat(target); err != nil {
			return errors.Join(errNotBuilt(target), err)
		}
		dir := filepath.Join(mirror, registry, filepath.FromSlash(source), version, platform)
		if err := os.MkdirAll(dir, 0o700); err != nil {
			return err
		}
		return os.Symlink(target, filepath.Join(dir, name))
	}
	for _, p := range providers.Providers() {
		if err := link(p.Source, p.Version, filepath.Join(bin, "lab-providers"), p.Binary()); err != nil {
			return err
		}
	}
	name := "terraform-provider-proxmox_v" + proxmoxBuilt
	return link("bpg/proxmox", proxmoxBuilt, filepath.Join(bin, name), name)
}

// download lets Terraform copy the real providers into the mirror, from
// wherever its own configuration finds them. It is the one step that may need a
// network, and it is taken outside.
func (s *survey) download(ctx context.Context, terraform, mirror, scratch string, environ []string) error {
	for i, module := range s.modules {
		dir := filepath.Join(scratch, fmt.Sprint(i))
		if err := copyModule(dir, module); err != nil {
			return err
		}
		c := exec.CommandContext(ctx, terraform, "providers", "mirror", "-platform="+platform, mirror)
		c.Dir, c.Env = dir, environ
		if out, err := c.CombinedOutput(); err != nil {
			return fmt.Errorf("providers: %w: %s", err, strings.TrimSpace(string(out)))
		}
	}
	return nil
}

func copyModule(dir string, module fs.FS) error {
	return fs.WalkDir(module, ".", func(name string, entry fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		if entry.IsDir() {
			return os.MkdirAll(filepath.Join(dir, name), 0o700)
		}
		content, err := fs.ReadFile(module, name)
		if err != nil {
			return err
		}
		return os.WriteFile(filepath.Join(dir, name), content, 0o600)
	})
}

// cliConfig lets Terraform install from the mirror and from nowhere else.
func cliConfig(mirror string) string {
	return fmt.Sprintf(`disable_checkpoint = true

provider_installation {
  filesystem_mirror {
    path    = %q
    include = ["*/*/*"]
  }
}
`, mirror)
}
