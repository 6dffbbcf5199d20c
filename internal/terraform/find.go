package terraform

import (
	"context"
	"crypto/sha256"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"time"

	"github.com/hashicorp/go-version"
	install "github.com/hashicorp/hc-install"
	hcfs "github.com/hashicorp/hc-install/fs"
	"github.com/hashicorp/hc-install/product"
	"github.com/hashicorp/hc-install/releases"
	"github.com/hashicorp/hc-install/src"

	"github.com/ephemeral-castle/castle/internal/atomicfile"
	"github.com/ephemeral-castle/castle/internal/foreign"
	"github.com/ephemeral-castle/castle/internal/ownfile"
)

const (
	pinned         = "1.14.9" // Terraform that is installed if there is none
	searchTimeout  = 2 * time.Minute
	installTimeout = 15 * time.Minute // hc-install's own 30 seconds are for data centres
)

// Binary is the Terraform or OpenTofu that castle runs.
type Binary struct{ Path, Version, Program string }

// Find returns the first binary of a product on PATH that is recent enough. Without a Terraform it returns
// the pinned version, which it downloads into cacheDir the first time and verifies with HashiCorp's
// signature; notice reports that. OpenTofu has to be installed.
func Find(ctx context.Context, wanted Product, cacheDir string, notice func(string)) (Binary, error) {
	if wanted != Terraform {
		path, found, err := search(ctx, wanted, cacheDir, notice)
		if err != nil && ctx.Err() == nil {
			err = fmt.Errorf("no %s %s or newer on PATH: install it, or choose another program in castle.hcl",
				wanted.Name, wanted.oldest)
		}
		return keep(cacheDir, Binary{path, found, wanted.Program}, err)
	}
	exact := &releases.ExactVersion{Product: product.Terraform, Timeout: installTimeout}
	exact.Version = version.Must(version.NewVersion(pinned))
	release := &pinnedRelease{ExactVersion: exact, cacheDir: cacheDir, notice: notice}
	path, found, err := search(ctx, wanted, cacheDir, notice, release)
	if err != nil || path == release.binary.Path {
		return release.binary, err
	}
	return keep(cacheDir, Binary{path, found, wanted.Program}, nil)
}

// keep remembers a binary that was found.
func keep(cacheDir string, b Binary, err error) (Binary, error) {
	if err != nil {
		return Binary{}, err
	}
	if known, ok := cached(cacheDir, b.Path); ok && known == b {
		return b, nil
	}
	return b, cache(cacheDir, b)
}

// Candidate is what Find would use.
type Candidate struct {
	Product        string   // Terraform
	Path, Version  string   // empty: there is none
	Refused        []string // why those on PATH are not used
	Oldest, Pinned string   // the oldest version that castle uses, and the one it would download; empty: none
}

// Preview returns what Find would use. It downloads nothing and writes nothing.
func Preview(ctx context.Context, wanted Product, cacheDir string) (c Candidate, err error) {
	c.Product, c.Oldest = wanted.Name, wanted.oldest
	notice := func(why string) { c.Refused = append(c.Refused, why) }
	c.Path, c.Version, err = search(ctx, wanted, cacheDir, notice)
	if err == nil || ctx.Err() != nil {
		return c, err
	}
	if wanted != Terraform {
		return c, nil
	}
	c.Pinned = pinned
	home := filepath.Join(cacheDir, pinned, "terraform")
	if info, err := os.Stat(home); err == nil && info.Mode().IsRegular() && info.Mode()&0o111 != 0 {
		c.Path, c.Version = home, pinned
	}
	return c, nil
}

// search returns the first recent binary on PATH and its version, else the one that another source installs.
func search(
	ctx context.Context, wanted Product, cacheDir string, notice func(string), others ...src.Source,
) (path, found string, err error) {
	sought := product.Terraform
	sought.BinaryName = func() string { return wanted.Program }
	sought.GetVersion = func(limited context.Context, path string) (*version.Version, error) {
		if !filepath.IsAbs(path) { // an empty entry of PATH would mean the working directory
			return nil, fmt.Errorf("%s: not an absolute path", path)
		}
		v, err := versionOf(limited, wanted, cacheDir, path)
		if err == nil && v.LessThan(version.Must(version.NewVersion(wanted.oldest))) {
			err = fmt.Errorf("%s is older than %s", v, wanted.oldest)
		}
		if err != nil {
			if ctx.Err() == nil {
				notice(fmt.Sprintf("%s is not used: %v", path, err))
			}
			return nil, err
		}
		found = v.String()
		return v.Core(), nil // a constraint would refuse every pre-release
	}
	recent := version.MustConstraints(version.NewConstraint(">= " + wanted.oldest))
	onPath := &hcfs.Version{Product: sought, Constraints: recent, Timeout: searchTimeout}
	path, err = install.NewInstaller().Ensure(ctx, append([]src.Source{onPath}, others...))
	if ctx.Err() != nil {
		err = context.Cause(ctx)
	}
	return path, found, err
}

func versionOf(ctx context.Context, wanted Product, cacheDir, path string) (*version.Version, error) {
	if b, ok := cached(cacheDir, path); ok && b.Program == wanted.Program {
		return version.NewVersion(b.Version)
	}
	cmd := exec.CommandContext(ctx, path, "version") // -json does not name the product
	cmd.Env = entries(filter(os.Environ()))
	// A Ctrl-C at a terminal is castle's: a Terraform that died of it would count as none.
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	out, err := cmd.Output()
	if err != nil {
		return nil, err
	}
	for line := range strings.Lines(string(out)) { // OpenTofu puts its warnings first
		if number, is := strings.CutPrefix(line, wanted.Name+" "); is {
			return version.NewVersion(strings.TrimSpace(number))
		}
	}
	first, _, _ := strings.Cut(string(out), "\n")
	return nil, fmt.Errorf("it is not %s: %s", wanted.Name, foreign.Text(first))
}

// pinnedRelease is hc-install's source of the pinned version, kept in cacheDir.
type pinnedRelease struct {
	*releases.ExactVersion
	cacheDir string
	notice   func(string)
	binary   Binary // once installed
}

// Install implements src.Installable.
func (p *pinnedRelease) Install(ctx context.Context) (path string, err error) {
	p.binary, err = installed(ctx, p.cacheDir, func(ctx context.Context, dir string) (string, error) {
		p.notice(fmt.Sprintf("no Terraform %s or newer on PATH: downloading %s", Terraform.oldest, pinned))
		p.InstallDir = dir
		return p.ExactVersion.Install(ctx)
	})
	return p.binary.Path, err
}

// installing begins the name of a folder during an installation.
const installing = "installing-"

// installed returns the pinned version from cacheDir. install puts it into a folder
// that is renamed when it is complete. Two castles do not install at once.
func installed(
	ctx context.Context, cacheDir string, install func(ctx context.Context, dir string) (string, error),
) (b Binary, err error) {
	unlock, err := atomicfile.Lock(ctx, filepath.Join(cacheDir, "lock"))
	if err != nil {
		return Binary{}, err
	}
	defer func() { err = errors.Join(err, unlock()) }()
	home := filepath.Join(cacheDir, pinned)
	b = Binary{filepath.Join(home, "terraform"), pinned, Terraform.Program}
	if recorded, err := ownfile.ReadFile(filepath.Join(home, "sha256")); err == nil {
		if digest, err := digestOf(b.Path); err == nil && digest == strings.TrimSpace(string(recorded)) {
			return b, nil
		}
	}
	killed, err := filepath.Glob(filepath.Join(cacheDir, installing+"*"))
	for _, old := range killed {
		err = errors.Join(err, ownfile.RemoveAll(old))
	}
	if err != nil {
		return Binary{}, err
	}
	temp, err := os.MkdirTemp(cacheDir, installing) // on the same file system as home
	if err != nil {
		return Binary{}, err
	}
	defer func() { err = errors.Join(err, ownfile.RemoveAll(temp)) }()
	path, err := install(ctx, temp)
	if ctx.Err() != nil {
		return Binary{}, context.Cause(ctx)
	}
	if err != nil {
		return Binary{}, fmt.Errorf("terraform %s: not on PATH, and the installation failed: %w", pinned, err)
	}
	digest, err := digestOf(path)
	if err != nil {
		return Binary{}, err
	}
	if err := atomicfile.Write(filepath.Join(temp, "sha256"), []byte(digest+"\n")); err != nil {
		return Binary{}, err
	}
	if err := ownfile.RemoveAll(home); err != nil { // not there, or damaged
		return Binary{}, err
	}
	return b, ownfile.Rename(temp, home)
}

func digestOf(path string) (string, error) {
	f, err := ownfile.Open(path)
	if err != nil {
		return "", err
	}
	defer f.Close()
	h := sha256.New()
	if _, err := io.Copy(h, f); err != nil {
		return "", err
	}
	return fmt.Sprintf("%x", h.Sum(nil)), nil
}

// cachedBinary is a binary whose version is valid while its file is unchanged.
type cachedBinary struct {
	Binary   Binary
	Size     int64
	Modified time.Time
}

func cacheFile(cacheDir string) string { return filepath.Join(cacheDir, "found.json") }

// cached returns a binary from the cache unless its file has changed. A run with nothing to do would
// otherwise spend most of its time on starting Terraform for its version.
func cached(cacheDir, path string) (Binary, bool) {
	var known cachedBinary
	data, readErr := ownfile.ReadFile(cacheFile(cacheDir))
	info, statErr := os.Stat(path)
	if readErr != nil || statErr != nil || json.Unmarshal(data, &known) != nil {
		return Binary{}, false
	}
	same := known.Size == info.Size() && known.Modified.Equal(info.ModTime())
	return known.Binary, same && known.Binary.Path == path
}

// cache keeps a binary for cached.
func cache(cacheDir string, b Binary) error {
	info, err := os.Stat(b.Path)
	if err != nil {
		return err
	}
	data, err := json.Marshal(cachedBinary{b, info.Size(), info.ModTime().UTC()})
	if err != nil {
		return err
	}
	return errors.Join(atomicfile.MkdirPrivate(cacheDir), atomicfile.Sweep(cacheDir),
		atomicfile.Write(cacheFile(cacheDir), data))
}
