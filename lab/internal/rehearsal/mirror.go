package rehearsal

import (
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"github.com/ephemeral-castle/castle/internal/providers"
	"github.com/ephemeral-castle/castle/internal/terraform"
	standins "github.com/ephemeral-castle/castle/lab/internal/providers"
)

const (
	registry     = "registry.terraform.io"
	proxmoxBuilt = "0.111.1" // the release of the real bpg/proxmox that lab/bpg builds
	hcloudBuilt  = "1.68.0"  // that of the real hetznercloud/hcloud that lab/hcloud builds

	standIns       = "lab-providers"
	proxmoxProgram = "terraform-provider-proxmox_v" + proxmoxBuilt
	hcloudProgram  = "terraform-provider-hcloud_v" + hcloudBuilt
)

// errNotBuilt reports a missing program of the lab.
func errNotBuilt(path string) error {
	return fmt.Errorf("%s is missing\ncastle: hint: install the package castle-lab, or run `make build` in "+
		"a clone of castle; lab-vault, lab-s3 and the provider of Hetzner Cloud are in no package: run "+
		"`make vault`, `make s3` or `make build` there, and put them beside castle-lab", path)
}

// layOut puts the lab's provider programs from bin, where castle-lab is, into a filesystem mirror
// for Terraform: the stand-ins, bpg/proxmox, and hetznercloud/hcloud if used is set. It copies them once,
// because a build during a rehearsal must not change them. The package of a stand-in is a script that starts
// the copy: Terraform hashes each package three times at every init, and with 80 MB for each that was a
// twelfth of a rehearsal's work.
func layOut(mirror, programs, bin string, used bool) error {
	real := map[string]string{"bpg/proxmox": proxmoxProgram}
	if used {
		real["hetznercloud/hcloud"] = hcloudProgram
	}
	for _, name := range append(slices.Collect(maps.Values(real)), standIns) {
		if err := copyProgram(filepath.Join(programs, name),
			filepath.Join(bin, name)); errors.Is(err, os.ErrNotExist) {
			return errNotBuilt(filepath.Join(bin, name))
		} else if err != nil {
			return err
		}
	}
	folder := func(source, version string) (string, error) {
		dir := filepath.Join(mirror, registry, filepath.FromSlash(source), version, providers.Here())
		return dir, os.MkdirAll(dir, 0o700)
	}
	for _, p := range standins.Providers() {
		dir, err := folder(p.Source, p.Version)
		script := fmt.Sprintf("#!/bin/sh\nexec '%s' \"$@\"\n", filepath.Join(programs, p.Binary()))
		if err := errors.Join(err, os.Symlink(standIns, filepath.Join(programs, p.Binary())),
			os.WriteFile(filepath.Join(dir, p.Binary()), []byte(script), 0o700)); err != nil {
			return err
		}
	}
	for source, name := range real {
		dir, err := folder(source, name[strings.LastIndex(name, "_v")+2:])
		program := filepath.Join(programs, name)
		if err := errors.Join(err, os.Symlink(program, filepath.Join(dir, name))); err != nil {
			return err
		}
	}
	return nil
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

// download puts the real providers into the mirror: those that the cluster's lock file records, else the
// newest that the modules allow. Terraform's init installs them from the sources in the user's own CLI
// configuration. It is the only step that may need a network, and it runs outside.
func (s *survey) download(ctx context.Context, binary terraform.Binary, mirror string, environ []string) (
	lock providers.Lock, err error) {
	origins, err := terraform.ReadOrigins(environ)
	if err != nil {
		return nil, &UsageError{fmt.Errorf("--providers registry: %w", err)}
	}
	if origins.Overridden() {
		return nil, &UsageError{errors.New("--providers registry: Terraform's CLI configuration has " +
			"dev_overrides, whose providers have no version; remove that block for a rehearsal")}
	}
	path := filepath.Join(s.ClusterDir, providers.FileName)
	if lock, err = providers.ReadFile(path, os.ReadFile); err != nil {
		return nil, err
	}
	root := &terraform.Root{Binary: binary, PluginCache: mirror, Env: environ,
		Run: filepath.Base(filepath.Dir(mirror))}
	for _, module := range s.modules {
		required, err := providers.Required(module)
		if err != nil {
			return nil, err
		}
		locked := providers.Lock{}
		for source, constraints := range required {
			// An edit may require another version than the file records.
			if ok, err := providers.Allows(constraints, lock[source].Version); ok && err == nil {
				locked[source] = lock[source]
			}
		}
		chosen, err := terraform.Resolution{Root: root, Required: required, Locked: locked}.Resolve(ctx)
		if err != nil {
			return nil, fmt.Errorf("--providers registry: %w", err)
		}
		for source, entry := range chosen {
			if known, is := lock[source]; !is || known.Version == entry.Version {
				lock[source] = entry
			}
		}
	}
	return lock, own(mirror)
}

// own replaces the links in a plugin cache, which lead to a mirror of the user's, by copies: a path of the
// user's may be covered inside.
func own(cache string) error {
	links, err := filepath.Glob(filepath.Join(cache, "*", "*", "*", "*", "*"))
	for _, link := range links {
		target, failed := filepath.EvalSymlinks(link)
		if info, _ := os.Lstat(link); failed == nil && info != nil && info.Mode()&fs.ModeSymlink != 0 {
			failed = errors.Join(os.Remove(link), os.Mkdir(link, 0o700))
			if failed == nil {
				failed = copyPackage(target, link)
			}
		}
		err = errors.Join(err, failed)
	}
	return err
}

func copyPackage(from, to string) error {
	entries, err := os.ReadDir(from)
	for _, e := range entries {
		source, target := filepath.Join(from, e.Name()), filepath.Join(to, e.Name())
		info, failed := os.Stat(source)
		switch {
		case failed == nil && info.IsDir():
			failed = errors.Join(os.Mkdir(target, 0o700), copyPackage(source, target))
		case failed == nil:
			failed = copyProgram(target, source)
		}
		err = errors.Join(err, failed)
	}
	return err
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
