package terraform

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
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
	"github.com/hashicorp/hc-install/product"
	"github.com/hashicorp/hc-install/releases"

	"github.com/ephemeral-castle/castle/internal/atomicfile"
)

const (
	oldest         = "1.9.0"  // init -json
	pinned         = "1.14.9" // what is installed where there is none
	installTimeout = 15 * time.Minute
)

// Binary is the Terraform that castle runs.
type Binary struct{ Path, Version, SHA256 string }

// Find returns the first Terraform on PATH that is recent enough. Without one it
// returns the pinned version, which it downloads into cacheDir the first time
// and verifies with HashiCorp's signature; notice tells the user so.
func Find(ctx context.Context, cacheDir string, notice func(string)) (Binary, error) {
	found, err := onPath(ctx, cacheDir, notice)
	if err != nil || found.Path != "" {
		return found, err
	}
	return installed(ctx, cacheDir, func(ctx context.Context, dir string) (string, error) {
		notice(fmt.Sprintf("no Terraform %s or newer on PATH: downloading %s", oldest, pinned))
		source := releases.ExactVersion{
			Product: product.Terraform, Version: version.Must(version.NewVersion(pinned)),
			InstallDir: dir, Timeout: installTimeout, // hc-install's own 30 seconds are for data centres
		}
		return source.Install(ctx)
	})
}

// onPath returns the zero Binary if there is none.
func onPath(ctx context.Context, cacheDir string, notice func(string)) (Binary, error) {
	path, said, err := search(ctx, cacheDir, notice)
	if err != nil || path == "" {
		return Binary{}, err
	}
	if b, ok := remembered(cacheDir, path); ok {
		return b, nil
	}
	return remember(cacheDir, path, said)
}

// search returns the first Terraform on PATH that is recent enough, and its
// version; empty if there is none. It looks into absolute folders only: an empty
// entry of PATH would mean whatever the user stands in.
func search(ctx context.Context, cacheDir string, notice func(string)) (path, found string, err error) {
	for _, dir := range filepath.SplitList(os.Getenv("PATH")) {
		path := filepath.Join(dir, "terraform")
		if !filepath.IsAbs(dir) || !executable(path) {
			continue
		}
		if b, ok := remembered(cacheDir, path); ok {
			return path, b.Version, nil
		}
		said, err := versionOf(ctx, path)
		if err != nil {
			if ctx.Err() != nil {
				return "", "", context.Cause(ctx)
			}
			notice(fmt.Sprintf("%s is not used: %v", path, err))
			continue
		}
		if said.LessThan(version.Must(version.NewVersion(oldest))) {
			notice(fmt.Sprintf("%s is not used: %s is older than %s", path, said, oldest))
			continue
		}
		return path, said.String(), nil
	}
	return "", "", nil
}

// Candidate is the Terraform that Find would use.
type Candidate struct {
	Path, Version  string   // empty: Find would have to download one
	Refused        []string // why those on PATH are not used
	Oldest, Pinned string   // what is recent enough, and what would be downloaded
}

// Look says what Find would return. It downloads nothing and writes nothing.
func Look(ctx context.Context, cacheDir string) (Candidate, error) {
	c := Candidate{Oldest: oldest, Pinned: pinned}
	var err error
	c.Path, c.Version, err = search(ctx, cacheDir, func(why string) { c.Refused = append(c.Refused, why) })
	if home := filepath.Join(cacheDir, pinned, "terraform"); err == nil && c.Path == "" && executable(home) {
		c.Path, c.Version = home, pinned
	}
	return c, err
}

func executable(path string) bool {
	info, err := os.Stat(path)
	return err == nil && info.Mode().IsRegular() && info.Mode()&0o111 != 0
}

func versionOf(ctx context.Context, path string) (*version.Version, error) {
	cmd := exec.CommandContext(ctx, path, "version", "-json")
	cmd.Env = entries(filter(os.Environ()))
	// A Ctrl-C at a terminal is castle's: a Terraform that died of it would count as none.
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	out, err := cmd.Output()
	if err != nil {
		return nil, err
	}
	var said struct {
		Version string `json:"terraform_version"`
	}
	if err := json.Unmarshal(out, &said); err != nil {
		return nil, err
	}
	return version.NewVersion(said.Version)
}

// installed returns the pinned version from cacheDir; install puts it into a
// folder that is renamed when it is whole. Two castles do not install at once.
func installed(ctx context.Context, cacheDir string, install func(ctx context.Context, dir string) (string, error)) (b Binary, err error) {
	unlock, err := lockFile(ctx, filepath.Join(cacheDir, "lock"))
	if err != nil {
		return Binary{}, err
	}
	defer func() { err = errors.Join(err, unlock()) }()
	home := filepath.Join(cacheDir, pinned)
	b = Binary{Path: filepath.Join(home, "terraform"), Version: pinned}
	if recorded, err := os.ReadFile(filepath.Join(home, "sha256")); err == nil {
		b.SHA256, err = digestOf(b.Path)
		if err == nil && b.SHA256 == strings.TrimSpace(string(recorded)) {
			return b, nil
		}
	}
	temp, err := os.MkdirTemp(cacheDir, "installing-") // on the same file system as home
	if err != nil {
		return Binary{}, err
	}
	defer func() { err = errors.Join(err, os.RemoveAll(temp)) }()
	path, err := install(ctx, temp)
	if ctx.Err() != nil {
		return Binary{}, context.Cause(ctx)
	}
	if err != nil {
		return Binary{}, fmt.Errorf("terraform %s: there is none on PATH and it cannot be installed: %w", pinned, err)
	}
	if b.SHA256, err = digestOf(path); err != nil {
		return Binary{}, err
	}
	if err := writePrivate(filepath.Join(temp, "sha256"), []byte(b.SHA256+"\n")); err != nil {
		return Binary{}, err
	}
	if err := os.RemoveAll(home); err != nil { // what is there was found wanting
		return Binary{}, err
	}
	return b, os.Rename(temp, home)
}

func digestOf(path string) (string, error) {
	f, err := os.Open(path)
	if err != nil {
		return "", err
	}
	defer f.Close()
	h := sha256.New()
	if _, err := io.Copy(h, f); err != nil {
		return "", err
	}
	return hex.EncodeToString(h.Sum(nil)), nil
}

// finding is what was found out about a binary, kept beside what tells that the
// binary has changed.
type finding struct {
	Path     string
	Size     int64
	Modified time.Time
	Version  string
	SHA256   string
}

// remembered returns a binary as it was found the last time, unless the file has
// changed. A run that has nothing to do would otherwise spend most of its time on
// starting Terraform for its version and on reading 90 MB.
func remembered(cacheDir, path string) (Binary, bool) {
	now, err := stat(path)
	if err != nil {
		return Binary{}, false
	}
	var known finding
	data, err := os.ReadFile(findingFile(cacheDir))
	if err != nil || json.Unmarshal(data, &known) != nil {
		return Binary{}, false
	}
	now.Version, now.SHA256 = known.Version, known.SHA256
	if known != now || known.Version == "" || known.SHA256 == "" {
		return Binary{}, false
	}
	return Binary{Path: path, Version: known.Version, SHA256: known.SHA256}, true
}

// remember reads a binary's digest and keeps it with its version for the next time.
func remember(cacheDir, path, version string) (Binary, error) {
	now, err := stat(path)
	if err != nil {
		return Binary{}, err
	}
	if now.SHA256, err = digestOf(path); err != nil {
		return Binary{}, err
	}
	now.Version = version
	data, err := json.Marshal(now)
	if err != nil {
		return Binary{}, err
	}
	return Binary{Path: path, Version: version, SHA256: now.SHA256},
		errors.Join(atomicfile.MkdirPrivate(cacheDir), atomicfile.Write(findingFile(cacheDir), data))
}

func stat(path string) (finding, error) {
	info, err := os.Stat(path)
	if err != nil {
		return finding{}, err
	}
	return finding{Path: path, Size: info.Size(), Modified: info.ModTime().UTC()}, nil
}

func findingFile(cacheDir string) string { return filepath.Join(cacheDir, "found.json") }
