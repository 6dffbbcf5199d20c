package rehearsal

import (
	"context"
	"errors"
	"fmt"
	"io"
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

	standIns       = "lab-providers"
	proxmoxProgram = "terraform-provider-proxmox_v" + proxmoxBuilt

	platform = "linux_amd64"
)

// errNotBuilt reports a missing program of the lab.
func errNotBuilt(path string) error {
	return fmt.Errorf("%s is missing\ncastle: hint: run `make build` in a clone of castle (for lab-vault: "+
		"`make vault`); it builds the lab's programs into bin/", path)
}

// layOut puts the lab's provider programs from bin, where castle-lab is, into a filesystem mirror
// for Terraform. It copies them once and links to the copies. Terraform records their hashes, so a
// build during a rehearsal must not change them.
func layOut(mirror, programs, bin string) error {
	for _, name := range []string{standIns, proxmoxProgram} {
		if err := copyProgram(filepath.Join(programs, name),
			filepath.Join(bin, name)); errors.Is(err, os.ErrNotExist) {
			return errNotBuilt(filepath.Join(bin, name))
		} else if err != nil {
			return err
		}
	}
	link := func(source, version, program, name string) error {
		dir := filepath.Join(mirror, registry, filepath.FromSlash(source), version, platform)
		if err := os.MkdirAll(dir, 0o700); err != nil {
			return err
		}
		return os.Symlink(filepath.Join(programs, program), filepath.Join(dir, name))
	}
	for _, p := range providers.Providers() {
		if err := link(p.Source, p.Version, standIns, p.Binary()); err != nil {
			return err
		}
	}
	return link("bpg/proxmox", proxmoxBuilt, proxmoxProgram, proxmoxProgram)
}

func copyProgram(to, from string) error {
	in, err := os.Open(from)
	if err != nil {
		return err
	}
	defer in.Close()
	out, err := os.OpenFile(to, os.O_CREATE|os.O_EXCL|os.O_WRONLY, 0o700)
	if err != nil {
		return err
	}
	_, err = io.Copy(out, in)
	return errors.Join(err, out.Close())
}

// download copies the real providers into the mirror with Terraform, from the sources in
// Terraform's own configuration. It is the only step that may need a network, and it runs outside.
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

// cliConfig restricts Terraform's installations to the mirror.
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
