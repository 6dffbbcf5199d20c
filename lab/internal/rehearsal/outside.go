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

	"github.com/ephemeral-castle/castle/internal/config"
	"github.com/ephemeral-castle/castle/internal/process"
	"github.com/ephemeral-castle/castle/internal/terraform"
	"github.com/ephemeral-castle/castle/lab/internal/datacenter"
	"github.com/ephemeral-castle/castle/lab/internal/namespace"
	"github.com/ephemeral-castle/castle/lab/internal/vault"
)

// Arg is the argument with which Run calls this program inside to run Main.
const Arg = "inside"

// bundleName is the file with the certificate of the lab's authority.
const bundleName = "ca.crt"

// frontAddress is where every host name resolves to inside.
const frontAddress = "127.0.0.2"

// plan is the message from the outer half to the inner one, in a private file.
type plan struct {
	Outside string // the network namespace that it must not be in
	Work    string
	Options Options
	Survey  survey
	Faults  datacenter.Faults
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
	notice := func(text string) { fmt.Fprintln(stderr, "castle: "+text) }
	if !o.Keep {
		held, err := occupy(work)
		if err != nil {
			return 0, err
		}
		defer held.Close() //nolint:errcheck // nothing was written
	}
	sweep(work, notice)
	defer func() {
		if o.Keep {
			fmt.Fprintf(stderr, "castle: kept the work directory %s\n", work)
			return
		}
		if code != 0 {
			fmt.Fprintln(stderr, "castle: hint: castle deletes the logs with the work directory. "+
				"To keep them, run the rehearsal again with --keep.")
		}
		err = errors.Join(err, os.RemoveAll(work))
	}()
	p := plan{Work: work, Options: o, Survey: *s, Faults: faults}
	if err := p.prepare(ctx, notice); err != nil {
		return 0, err
	}
	mounts, err := p.mounts(repository)
	if err != nil {
		return 0, err
	}
	if p.Outside, err = namespace.Network(); err != nil {
		return 0, err
	}
	file := filepath.Join(work, "plan.json")
	content, err := json.Marshal(p)
	if err != nil {
		return 0, err
	}
	if err := os.WriteFile(file, content, 0o600); err != nil {
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

// prepare puts everything into the work directory that the inside needs.
func (p *plan) prepare(ctx context.Context, notice func(string)) error {
	for _, dir := range []string{"etc", "bin", "mirror", "state", "home", "covered", "scratch", "tmp",
		"programs"} {
		if err := os.Mkdir(p.path(dir), 0o700); err != nil {
			return err
		}
	}
	// Some resolvers drop privileges before they read what lies in etc.
	if err := os.Chmod(p.path("etc"), 0o755); err != nil {
		return err
	}
	if err := os.WriteFile(p.path(bundleName), nil, 0o644); err != nil { // its content comes inside
		return err
	}
	me, err := os.Executable()
	if err != nil {
		return err
	}
	bin := filepath.Dir(me)
	castle, err := find("castle", bin, p.Options.Environ)
	if err != nil {
		return errNotBuilt(filepath.Join(bin, "castle"))
	}
	if p.Survey.Vault != nil {
		if p.Survey.Vault.Program, err = find(vault.Program, bin, p.Options.Environ); err != nil {
			return errNotBuilt(filepath.Join(bin, vault.Program))
		}
	}
	// There is no network inside to fetch it from, so castle's own search is made here.
	found, err := terraform.Find(ctx, filepath.Join(cacheHome(p.Options.Environ), "terraform"), notice)
	if err != nil {
		return err
	}
	if err := errors.Join(copyProgram(p.path("bin", "castle"), castle),
		os.Symlink(found.Path, p.path("bin", "terraform"))); err != nil {
		return err
	}
	if p.Options.Providers == "registry" {
		err = p.Survey.download(ctx, found.Path, p.path("mirror"), p.path("scratch"), p.Options.Environ)
	} else {
		err = layOut(p.path("mirror"), p.path("programs"), bin)
	}
	if err != nil {
		return err
	}
	return os.WriteFile(p.path("terraformrc"), []byte(cliConfig(p.path("mirror"))), 0o600)
}

func find(name, beside string, environ []string) (string, error) {
	for _, dir := range append([]string{beside}, filepath.SplitList(process.Getenv(environ, "PATH"))...) {
		if path, err := exec.LookPath(filepath.Join(dir, name)); err == nil {
			return filepath.Abs(path)
		}
	}
	return "", exec.ErrNotFound
}

// mounts cover the real files. The repository becomes read-only, the cluster's folder a copy with
// the rehearsal's own configs/, and the state directory an empty one. The mounts create nothing in
// the repository, so rehearsals do not interfere with each other.
func (p *plan) mounts(repository string) ([]namespace.Mount, error) {
	double := p.path("cluster")
	if err := os.MkdirAll(filepath.Join(double, "configs"), 0o700); err != nil {
		return nil, err
	}
	entries, err := os.ReadDir(p.Survey.ClusterDir)
	if err != nil {
		return nil, err
	}
	mounts := []namespace.Mount{{Path: repository}} // first: what is bound from it later is read-only, too
	for _, e := range entries {
		from, to := filepath.Join(p.Survey.ClusterDir, e.Name()), filepath.Join(double, e.Name())
		switch {
		case e.Name() == "configs":
			continue
		case e.Type()&os.ModeSymlink != 0:
			target, err := os.Readlink(from)
			if err == nil {
				err = os.Symlink(target, to)
			}
			if err != nil {
				return nil, err
			}
			continue
		case e.IsDir():
			err = os.Mkdir(to, 0o700)
		default:
			err = os.WriteFile(to, nil, 0o600)
		}
		if err != nil {
			return nil, err
		}
		mounts = append(mounts, namespace.Mount{Path: to, From: from})
	}
	mounts = append(mounts, namespace.Mount{Path: p.Survey.ClusterDir, From: double})
	// Inside, clients have to trust the lab's authority.
	for _, file := range p.Survey.Certificates {
		mounts = append(mounts, namespace.Mount{Path: file, From: p.path(bundleName)})
	}
	state := realState(p.Options.Environ)
	if _, err := os.Stat(state); err == nil {
		mounts = append(mounts, namespace.Mount{Path: state, From: p.path("covered")})
	}
	return mounts, nil
}

// realState is where castle keeps state when it does not rehearse.
func realState(environ []string) string {
	if dir := process.Getenv(environ, "CASTLE_STATE_DIR"); dir != "" {
		return dir
	}
	if dir := process.Getenv(environ, "XDG_STATE_HOME"); dir != "" {
		return filepath.Join(dir, "castle")
	}
	return filepath.Join(process.Getenv(environ, "HOME"), ".local", "state", "castle")
}

// publish copies the report to the requested path, which the inner half may be unable to write.
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
