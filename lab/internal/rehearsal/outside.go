package rehearsal

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/netip"
	"os"
	"os/exec"
	"path/filepath"
	"time"

	"github.com/ephemeral-castle/castle/internal/config"
	"github.com/ephemeral-castle/castle/internal/folders"
	"github.com/ephemeral-castle/castle/internal/process"
	"github.com/ephemeral-castle/castle/internal/providers"
	runreport "github.com/ephemeral-castle/castle/internal/report"
	"github.com/ephemeral-castle/castle/internal/terraform"
	"github.com/ephemeral-castle/castle/lab/charts"
	"github.com/ephemeral-castle/castle/lab/internal/datacenter"
	"github.com/ephemeral-castle/castle/lab/internal/namespace"
	"github.com/ephemeral-castle/castle/lab/internal/network"
	"github.com/ephemeral-castle/castle/lab/internal/objectstore"
	"github.com/ephemeral-castle/castle/lab/internal/vault"
)

// Arg is the argument with which Run calls this program inside to run Main.
const Arg = "inside"

// bundleName is the file with the certificate of the lab's authority.
const bundleName = "ca.crt"

// frontAddress is where every host name resolves to inside.
const frontAddress = "127.0.0.2"

// balancerAddress is where the name of the Kubernetes API resolves to inside, if it has one and no VIP.
const balancerAddress = "127.0.0.3"

// plan is the message from the outer half to the inner one, in a private file.
type plan struct {
	Outside    string // the network namespace that it must not be in
	Work       string
	Repository string // inside, its copy covers it
	Options    Options
	Survey     survey
	// Controllers is the folder with the real controllers; empty for the doubles.
	Controllers string
	// Fleet is the clone that the folder which Flux follows covers inside; empty: none.
	Fleet  string
	Faults datacenter.Faults
}

// Run rehearses and returns the exit code: that of the first step that failed. It ends with a line on stdout
// that says whether the rehearsal passed.
func Run(ctx context.Context, o Options, stdout, stderr io.Writer) (code int, err error) {
	faults, err := datacenter.ParseFaults(o.Faults)
	if err != nil {
		return 0, &UsageError{err}
	}
	if o.Directory, err = filepath.Abs(o.Directory); err != nil {
		return 0, err
	}
	if o.Charts != "" {
		if o.Charts, err = filepath.Abs(o.Charts); err != nil {
			return 0, err
		}
	}
	repository, err := folders.Find(o.Directory)
	if err != nil {
		return 0, &UsageError{err}
	}
	s, err := inspect(repository, o)
	if err != nil {
		return 0, err
	}
	if o.With != "" {
		if err := s.join(repository, o); err != nil {
			return 0, err
		}
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
	p := plan{Work: work, Repository: repository, Options: o, Survey: *s, Faults: faults}
	began, started := time.Now(), false
	defer func() {
		switch {
		case o.Keep:
			fmt.Fprintf(stderr, "castle: kept the work directory %s\n", work)
		case !started:
			err = errors.Join(err, os.RemoveAll(work))
		default:
			if kept := p.keepLogs(); kept != nil {
				err = errors.Join(err, kept)
			} else if code != 0 || err != nil {
				fmt.Fprintf(stderr, "castle: the logs of this rehearsal are in %s, until there are %d newer "+
					"ones; its cluster is gone: `castle rehearse %s -- sh` leaves you in the lab, to create "+
					"it and to look at it\n", work, mostLogs, o.Cluster)
			}
		}
		if started {
			if err != nil {
				notice(err.Error())
				code, err = max(code, 1), nil
			}
			p.verdict(stdout, code, time.Since(began))
		}
	}()
	if o.Edit != "" {
		if err := p.tryEdit(ctx, notice); err != nil {
			return 0, err
		}
	}
	if err := p.Faults.Complete(p.Survey.Name, p.Survey.Nodes); err != nil {
		return 0, &UsageError{err}
	}
	if err := p.prepare(ctx, notice); err != nil {
		return 0, err
	}
	mounts, err := p.mounts()
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
	started = true
	code, err = namespace.Run(ctx, namespace.Spec{
		Addresses: p.Survey.Network.Addresses, Hosts: p.Survey.Network.Hosts,
		Ranges: append(network.Private(), p.Survey.Network.Ranges...),
		Front:  netip.MustParseAddr(frontAddress), Names: p.Survey.apiNames(), Mounts: mounts,
		Files: filepath.Join(work, "etc"),
	}, []string{"/proc/self/exe", Arg, file}, p.environ())
	if err != nil {
		return 0, err
	}
	return code, p.publish()
}

// verdict prints the last line of a rehearsal.
func (p *plan) verdict(w io.Writer, code int, took time.Duration) {
	result := "passed"
	if code != 0 {
		result = fmt.Sprintf("failed with exit code %d", code)
	}
	fmt.Fprintf(w, "Rehearsal of %s/%s %s after %s; %s\n", p.Survey.Name, p.Survey.Platform, result,
		runreport.Took(took.Seconds()), p.played())
}

// prepare puts everything into the work directory that the inside needs.
func (p *plan) prepare(ctx context.Context, notice func(string)) error {
	for _, dir := range []string{"etc", "bin", "mirror", "state", "home", "covered", "tmp", "programs"} {
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
	if p.Survey.ObjectStore != nil {
		if p.Survey.ObjectStore.Program, err = find(objectstore.Program, bin, p.Options.Environ); err != nil {
			return errNotBuilt(filepath.Join(bin, objectstore.Program))
		}
	}
	if err := p.controllers(bin); err != nil {
		return err
	}
	if err := p.follow(ctx, notice); err != nil {
		return err
	}
	if err := p.elsewhere(charts.Hosts(), notice); err != nil {
		return err
	}
	// There is no network inside to fetch it from, so castle's own search is made here.
	product, err := p.product()
	if err != nil {
		return &UsageError{err}
	}
	cache := filepath.Join(cacheHome(p.Options.Environ), "terraform")
	found, err := terraform.Find(ctx, product, cache, notice)
	if err != nil {
		return err
	}
	if err := errors.Join(copyProgram(p.path("bin", "castle"), castle),
		os.Symlink(found.Path, p.path("bin", product.Program))); err != nil {
		return err
	}
	if p.Options.Providers == fromRegistry {
		notice("installing the providers from the sources in Terraform's CLI configuration")
		environ := terraform.Configured(p.Options.Environ, func() string { return product.Program })
		var lock providers.Lock
		if lock, err = p.Survey.download(ctx, found, p.path("mirror"), environ); err == nil {
			err = os.WriteFile(p.path(providers.FileName), lock.File(), 0o600)
		}
	} else {
		err = layOut(p.path("mirror"), p.path("programs"), bin, p.Survey.Cloud != nil)
	}
	if err != nil {
		return err
	}
	return os.WriteFile(p.path("terraformrc"), []byte(cliConfig(p.path("mirror"))), 0o600)
}

// find finds a program beside castle-lab, in bin of the prefix in whose lib/castle castle-lab is, or on PATH.
func find(name, beside string, environ []string) (string, error) {
	for _, dir := range append([]string{beside, filepath.Join(beside, "..", "..", "bin")},
		filepath.SplitList(process.Getenv(environ, "PATH"))...) {
		if path, err := exec.LookPath(filepath.Join(dir, name)); err == nil {
			return filepath.Abs(path)
		}
	}
	return "", exec.ErrNotFound
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

// product is what runs the stages: Terraform, unless castle.hcl or the environment chooses OpenTofu.
func (p *plan) product() (terraform.Product, error) {
	return terraform.ProductOf(cmp.Or(config.ReadProgram(config.Options{
		Repository: p.Repository, Environ: p.Options.Environ}), terraform.Terraform.Program))
}
