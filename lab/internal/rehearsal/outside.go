package rehearsal

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/netip"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"time"

	"github.com/ephemeral-castle/castle/internal/config"
	"github.com/ephemeral-castle/castle/lab/internal/datacenter"
	"github.com/ephemeral-castle/castle/lab/internal/namespace"
)

// Arg is how Run calls this program inside: as Main.
const Arg = "inside"

// frontAddress is where every host name resolves to inside.
const frontAddress = "127.0.0.2"

// plan is what the outside tells the inside, in a private file.
type plan struct {
	Outside string // the network namespace that it must not be in
	Work    string
	Options Options
	Survey  survey
	Faults  datacenter.Faults
	Castle  string // castle's path
}

// Run rehearses and returns the exit code: that of the first step that failed.
func Run(ctx context.Context, o Options, stderr io.Writer) (code int, err error) {
	faults, err := datacenter.ParseFaults(o.Faults)
	if err != nil {
		return 0, &UsageError{err}
	}
	if o.Directory, err = filepath.Abs(o.Directory); err != nil {
		return 0, err
	}
	repository, err := config.FindRepository(o.Directory)
	if err != nil {
		return 0, &UsageError{err}
	}
	s, err := inspect(repository, o)
	if err != nil {
		return 0, err
	}
	work, err := workDirectory(o.Environ, s.Name+"-"+s.Platform)
	if err != nil {
		return 0, err
	}
	defer func() {
		if o.Keep {
			fmt.Fprintf(stderr, "castle: kept: %s\n", work)
			return
		}
		err = errors.Join(err, os.RemoveAll(work))
	}()
	p := plan{Work: work, Options: o, Survey: *s, Faults: faults}
	if err := p.prepare(ctx); err != nil {
		return 0, err
	}
	mounts, undo, err := p.mounts(repository)
	if err != nil {
		return 0, err
	}
	defer func() { err = errors.Join(err, undo()) }()
	if p.Outside, err = namespace.Network(); err != nil {
		return 0, err
	}
	file := filepath.Join(work, "plan.json")
	said, err := json.Marshal(p)
	if err != nil {
		return 0, err
	}
	if err := os.WriteFile(file, said, 0o600); err != nil {
		return 0, err
	}
	code, err = namespace.Run(ctx, namespace.Spec{
		Addresses: s.Network.Addresses, Ranges: s.Network.Ranges, Hosts: s.Network.Hosts,
		Front: netip.MustParseAddr(frontAddress), Mounts: mounts, Files: filepath.Join(work, "etc"),
	}, []string{"/proc/self/exe", Arg, file}, p.environ())
	if err != nil {
		return 0, err
	}
	return code, p.publish()
}

// workDirectory is new and private. Sockets lie in it, whose paths the kernel
// limits to 107 characters.
func workDirectory(environ []string, name string) (string, error) {
	cache := lookup(environ, "XDG_CACHE_HOME")
	if home := lookup(environ, "HOME"); cache == "" && home != "" {
		cache = filepath.Join(home, ".cache")
	}
	parent := filepath.Join(cache, "castle", "rehearsals")
	if !filepath.IsAbs(parent) || len(parent)+len(name) > 60 {
		parent = os.TempDir()
	}
	if err := os.MkdirAll(parent, 0o700); err != nil {
		return "", err
	}
	return os.MkdirTemp(parent, name+"-"+time.Now().Format("0102-1504")+"-")
}

// prepare puts everything into the work directory that the inside needs.
func (p *plan) prepare(ctx context.Context) error {
	for _, dir := range []string{"etc", "bin", "mirror", "state", "home", "covered", "configs", "scratch", "tmp"} {
		if err := os.Mkdir(p.path(dir), 0o700); err != nil {
			return err
		}
	}
	// Some resolvers drop privileges before they read what lies in etc.
	if err := os.Chmod(p.path("etc"), 0o755); err != nil {
		return err
	}
	me, err := os.Executable()
	if err != nil {
		return err
	}
	bin := filepath.Dir(me)
	if p.Castle, err = find("castle", bin, p.Options.Environ); err != nil {
		return errNotBuilt(filepath.Join(bin, "castle"))
	}
	terraform, err := find("terraform", bin, p.Options.Environ)
	if err != nil {
		return errors.New("terraform is not on PATH\n" +
			"castle: hint: there is no network inside the lab to fetch it from: install Terraform 1.9 or later first")
	}
	for name, target := range map[string]string{"castle": p.Castle, "terraform": terraform} {
		if err := os.Symlink(target, p.path("bin", name)); err != nil {
			return err
		}
	}
	if p.Options.Providers == "registry" {
		err = p.Survey.download(ctx, terraform, p.path("mirror"), p.path("scratch"), p.Options.Environ)
	} else {
		err = layOut(p.path("mirror"), bin)
	}
	if err != nil {
		return err
	}
	return os.WriteFile(p.path("terraformrc"), []byte(cliConfig(p.path("mirror"))), 0o600)
}

func find(name, beside string, environ []string) (string, error) {
	for _, dir := range append([]string{beside}, filepath.SplitList(lookup(environ, "PATH"))...) {
		if path, err := exec.LookPath(filepath.Join(dir, name)); err == nil {
			return filepath.Abs(path)
		}
	}
	return "", exec.ErrNotFound
}

// mounts cover what is real: the repository becomes read-only, its configs/ and
// the state directory are empty directories of the rehearsal's own.
func (p *plan) mounts(repository string) (mounts []namespace.Mount, undo func() error, err error) {
	undo = func() error { return nil }
	configs := filepath.Join(p.Survey.ClusterDir, "configs")
	if _, err := os.Stat(configs); errors.Is(err, os.ErrNotExist) {
		// A mount needs a place. It goes again, unless somebody has used it meanwhile.
		if err := os.Mkdir(configs, 0o700); err != nil {
			return nil, nil, err
		}
		undo = func() error {
			if left, err := os.ReadDir(configs); err != nil || len(left) != 0 {
				return err
			}
			return os.Remove(configs)
		}
	}
	mounts = []namespace.Mount{{Path: repository}, {Path: configs, From: p.path("configs")}}
	state := realState(p.Options.Environ)
	if _, err := os.Stat(state); err == nil {
		mounts = append(mounts, namespace.Mount{Path: state, From: p.path("covered")})
	}
	return mounts, undo, nil
}

// realState is where castle keeps state when it does not rehearse.
func realState(environ []string) string {
	if dir := lookup(environ, "CASTLE_STATE_DIR"); dir != "" {
		return dir
	}
	if dir := lookup(environ, "XDG_STATE_HOME"); dir != "" {
		return filepath.Join(dir, "castle")
	}
	return filepath.Join(lookup(environ, "HOME"), ".local", "state", "castle")
}

// publish copies the report to where it was asked for, which may be a place
// that the inside cannot write to.
func (p *plan) publish() error {
	if p.Options.Report == "" {
		return nil
	}
	content, err := os.ReadFile(p.path("report.json"))
	if err != nil {
		return fmt.Errorf("report: %w", err)
	}
	return os.WriteFile(p.Options.Report, content, 0o644)
}

func (p *plan) path(names ...string) string {
	return filepath.Join(append([]string{p.Work}, names...)...)
}

func lookup(environ []string, name string) string {
	for _, kv := range environ {
		if k, v, _ := strings.Cut(kv, "="); k == name {
			return v
		}
	}
	return ""
}
