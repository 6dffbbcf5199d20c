package providers

import (
	"context"
	"crypto/sha256"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"maps"
	"net/http"
	"net/url"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/ephemeral-castle/castle/internal/atomicfile"
	"github.com/ephemeral-castle/castle/internal/cluster"
	lockfile "github.com/ephemeral-castle/castle/internal/providers"
	"github.com/ephemeral-castle/castle/internal/run"
	"github.com/ephemeral-castle/castle/internal/terraform"
)

// Mirrored is a folder for machines without internet.
type Mirrored struct {
	Dir       string   `json:"dir"`
	Terraform string   `json:"terraform"` // version
	Packages  []string `json:"packages"`
	Missing   []string `json:"missing,omitempty"`
	CLIConfig string   `json:"cli_config"` // the file with Terraform's own configuration
}

// The folders of a mirror.
const (
	packagesDir  = "providers" // a filesystem_mirror
	terraformDir = "terraform"
	cliConfig    = "terraformrc"
)

// mirroring copies what the lock files name.
type mirroring struct {
	root    *terraform.Root
	origins terraform.Origins
	dir     string // of packages
	result  *Mirrored
}

// Mirror copies Terraform or OpenTofu, and the providers in the lock files of clusters, into dir, for these
// platforms. It verifies each package. A package that its origin does not have is listed as missing.
func Mirror(
	ctx context.Context, clusters []*cluster.Cluster, dir string, platforms []string,
) (*Mirrored, error) {
	dir, err := filepath.Abs(dir)
	if err != nil {
		return nil, err
	}
	root, err := scratch(ctx, clusters[0])
	if err != nil {
		return nil, err
	}
	origins, err := terraform.ReadOrigins(root.Env)
	if err != nil {
		return nil, err
	}
	m := mirroring{root, origins, filepath.Join(dir, packagesDir), &Mirrored{Dir: dir,
		Terraform: root.Binary.Version, Packages: []string{}, CLIConfig: filepath.Join(dir, cliConfig)}}
	wanted := map[lockfile.Package]lockfile.Entry{}
	for _, c := range clusters {
		lock, err := lockfile.ReadFile(run.ProvidersFile(c), os.ReadFile)
		if err != nil {
			return nil, err
		}
		if len(lock) == 0 {
			return nil, cluster.Usagef("%s does not exist yet, so castle does not know the providers of %s\n"+
				"  `%s` writes it", run.ProvidersFile(c), c.Name(), c.Command("providers lock"))
		}
		for source, entry := range lock {
			for _, platform := range platforms {
				p := lockfile.Package{Source: source, Version: entry.Version, Platform: platform}
				wanted[p] = entry.Merged(wanted[p])
			}
		}
	}
	if err := os.MkdirAll(m.dir, 0o755); err != nil {
		return nil, err
	}
	for _, platform := range platforms {
		if err := m.mirrorTerraform(ctx, platform); err != nil {
			return nil, err
		}
		if err := m.mirrorPlatform(ctx, platform, wanted); err != nil {
			return nil, err
		}
	}
	text := fmt.Sprintf("provider_installation {\n  filesystem_mirror {\n    path = %q\n  }\n}\n", m.dir)
	return m.result, atomicfile.WriteMode(m.result.CLIConfig, []byte(text), 0o644)
}

// mirrorTerraform copies the program that castle runs here, or downloads the same release.
func (m mirroring) mirrorTerraform(ctx context.Context, platform string) error {
	dir := filepath.Join(m.result.Dir, terraformDir, platform)
	program := m.root.Binary.Program
	name := fmt.Sprintf("%s %s for %s", program, m.result.Terraform, platform)
	binary := filepath.Join(dir, program)
	if err := os.MkdirAll(dir, 0o755); err != nil {
		return err
	}
	var err error
	switch {
	case platform == lockfile.Here():
		if err := copyFile(m.root.Binary.Path, binary, 0o755); err != nil {
			return err
		}
	case program == terraform.OpenTofu.Program:
		err = openTofu.download(ctx, m.result.Terraform, platform, binary)
	default:
		err = terraform.Download(ctx, m.result.Terraform, platform, dir)
	}
	if ctx.Err() != nil {
		return context.Cause(ctx)
	}
	if errors.Is(err, errForged) {
		return fmt.Errorf("%s: %w", name, err)
	}
	if err != nil {
		m.result.Missing = append(m.result.Missing, name+": "+err.Error())
		_ = os.Remove(dir) // unless it has programs, of other versions maybe
		return nil
	}
	m.result.Packages = append(m.result.Packages, name)
	return os.Chmod(binary, 0o755)
}

// mirrorPlatform copies the packages for a platform.
func (m mirroring) mirrorPlatform(ctx context.Context, platform string,
	wanted map[lockfile.Package]lockfile.Entry) error {
	order := func(a, b lockfile.Package) int { return strings.Compare(a.Source, b.Source) }
	for _, p := range slices.SortedFunc(maps.Keys(wanted), order) {
		if p.Platform != platform {
			continue
		}
		name := fmt.Sprintf("%s %s for %s", lockfile.Short(p.Source), p.Version, p.Platform)
		err := m.mirrorPackage(ctx, p)
		if ctx.Err() != nil {
			return context.Cause(ctx)
		}
		if err != nil {
			m.result.Missing = append(m.result.Missing, name+": "+err.Error())
			continue
		}
		if err := m.verify(p, wanted[p]); err != nil {
			return err
		}
		m.result.Packages = append(m.result.Packages, name)
	}
	return nil
}

// mirrorPackage copies one package from where Terraform installs it.
func (m mirroring) mirrorPackage(ctx context.Context, p lockfile.Package) error {
	if p.Find(m.dir) != "" {
		return nil
	}
	origin := m.origins.Of(p.Source)
	switch {
	case origin.Local != "":
		from := p.Find(origin.Local)
		if from == "" {
			return fmt.Errorf("%s does not have it", origin.Local)
		}
		return copyPackage(from, m.dir, p)
	case origin.Mirror != "":
		return m.fetch(ctx, origin.Mirror, p)
	}
	lock := lockfile.Lock{p.Source: {Version: p.Version}}
	return m.root.MirrorRegistry(ctx, p.Platform, m.dir, lock)
}

// verify compares a package with the lock files. One that is not the recorded one is removed.
func (m mirroring) verify(p lockfile.Package, entry lockfile.Entry) error {
	hash, path, err := p.HashIn(m.dir)
	if err != nil {
		return err
	}
	expected := entry.Of(p.Platform)
	if slices.Contains(expected, hash) || len(expected) == 0 {
		return nil
	}
	found := hash
	if strings.HasSuffix(path, ".zip") {
		content, err := os.ReadFile(path)
		if err != nil {
			return err
		}
		archive := fmt.Sprintf("zh:%x", sha256.Sum256(content))
		if slices.Contains(expected, archive) {
			return nil
		}
		found += " or " + archive
	}
	origin := m.origins.Of(p.Source)
	at := origin.Local + origin.URL
	return errors.Join(&terraform.MismatchError{Package: p, Expected: expected, Found: found, At: at,
		Lock: lockfile.FileName}, os.RemoveAll(path))
}

// fetch downloads a package from a network mirror, by Terraform's provider network mirror protocol.
func (m mirroring) fetch(ctx context.Context, mirror string, p lockfile.Package) error {
	index, err := url.JoinPath(mirror, p.Source, p.Version+".json")
	if err != nil {
		return err
	}
	var versions struct {
		Archives map[string]struct{ URL string }
	}
	text, err := get(ctx, index)
	if err != nil {
		return err
	}
	if err := json.Unmarshal(text, &versions); err != nil {
		return fmt.Errorf("%s: %w", index, err)
	}
	archive := versions.Archives[p.Platform].URL
	if archive == "" {
		return fmt.Errorf("%s does not have it", mirror)
	}
	base, err := url.Parse(index)
	if err != nil {
		return err
	}
	at, err := base.Parse(archive)
	if err != nil {
		return err
	}
	content, err := get(ctx, at.String())
	if err != nil {
		return err
	}
	return writeFile(filepath.Join(m.dir, filepath.FromSlash(p.Source), p.Archive()), content, 0o644)
}

func get(ctx context.Context, address string) (body []byte, err error) {
	ctx, cancel := context.WithTimeout(ctx, 15*time.Minute) // of a slow line
	defer cancel()
	request, err := http.NewRequestWithContext(ctx, http.MethodGet, address, nil)
	if err != nil {
		return nil, err
	}
	response, err := http.DefaultClient.Do(request)
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, response.Body.Close()) }()
	if response.StatusCode != http.StatusOK {
		return nil, fmt.Errorf("%s: %s", address, response.Status)
	}
	return io.ReadAll(response.Body)
}

// copyPackage copies a package's archive or folder into a mirror.
func copyPackage(from, mirror string, p lockfile.Package) error {
	real, err := filepath.EvalSymlinks(from)
	if err != nil {
		return err
	}
	info, err := os.Stat(real)
	if err != nil {
		return err
	}
	if !info.IsDir() {
		return copyFile(real, filepath.Join(mirror, filepath.FromSlash(p.Source), p.Archive()), 0o644)
	}
	to := filepath.Join(mirror, p.Unpacked())
	err = fs.WalkDir(os.DirFS(real), ".", func(name string, d fs.DirEntry, err error) error {
		if err != nil || d.IsDir() {
			return err
		}
		return copyFile(filepath.Join(real, name), filepath.Join(to, name), 0o755) // what a link leads to
	})
	if err != nil { // a half would be found the next time
		err = errors.Join(err, os.RemoveAll(to))
	}
	return err
}

func copyFile(from, to string, mode os.FileMode) error {
	content, err := os.ReadFile(from)
	if err != nil {
		return err
	}
	return writeFile(to, content, mode)
}

// writeFile writes a file that appears when it is complete.
func writeFile(to string, content []byte, mode os.FileMode) error {
	if err := os.MkdirAll(filepath.Dir(to), 0o755); err != nil {
		return err
	}
	return atomicfile.WriteMode(to, content, mode)
}
