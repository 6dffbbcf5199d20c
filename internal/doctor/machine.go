package doctor

import (
	"cmp"
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"maps"
	"runtime"
	"slices"
	"strings"

	"github.com/ephemeral-castle/castle/internal/doctor/finding"
	"github.com/ephemeral-castle/castle/internal/state"
	"github.com/ephemeral-castle/castle/internal/state/commits"
	"github.com/ephemeral-castle/castle/internal/store"
	"github.com/ephemeral-castle/castle/internal/terraform"
)

func (m Machine) checks() []finding.Check {
	all := []finding.Check{{Name: "terraform", Run: m.terraform}, {Name: "state", Run: m.state}}
	if m.Store != nil {
		all = append(all, finding.Check{Name: "store", Run: m.Store.check})
	}
	return all
}

// terraform finds the Terraform or OpenTofu that a run would use. It downloads none.
func (m Machine) terraform(ctx context.Context) []finding.Finding {
	found, err := m.Terraform(ctx)
	switch {
	case err != nil:
		return finding.Obstacle("", "%v", finding.Reason(ctx, err))
	case found.Path == "" && found.Pinned == "":
		return finding.Obstacle("install "+found.Product+" "+found.Oldest+" or newer", "%s", strings.Join(
			append([]string{"no " + found.Product + " on PATH that castle runs"}, found.Refused...), "; "))
	case found.Path == "":
		missing := fmt.Sprintf("no Terraform %s or newer on PATH", found.Oldest)
		return finding.Warning(fmt.Sprintf(
			"install Terraform %s or newer; otherwise the first run downloads %s from "+
				"releases.hashicorp.com", found.Oldest, found.Pinned),
			"%s", strings.Join(append([]string{missing}, found.Refused...), "; "))
	}
	return finding.Good("%s %s, %s", found.Product, found.Version, found.Path)
}

// With less than minimumFree, a write may fail during a run; with less than lowFree, it may fail soon.
// Providers take some hundred megabytes, and every apply a snapshot.
const (
	minimumFree = 200 << 20
	lowFree     = 1 << 30
)

// state checks the directory that holds every secret and every state.
func (m Machine) state(context.Context) []finding.Finding {
	disk, err := state.CheckDisk(m.StateRoot)
	if err != nil {
		return finding.Obstacle("make it readable, or choose another directory with --state-dir", "%v", err)
	}
	var found []finding.Finding
	for _, open := range disk.Exposed {
		found = append(found, finding.Obstacle("chmod 700 "+open.Path,
			"%s has mode %04o and must be 0700: it holds every secret of a cluster", open.Path, open.Mode)...)
	}
	const room = "free disk space, or choose another directory with --state-dir"
	free := fmt.Sprintf("%.1f GB free", float64(disk.Free)/1e9)
	switch {
	case !disk.Writable:
		found = append(found, finding.Obstacle(
			"make "+disk.Nearest+" writable, or choose another directory with "+
				"--state-dir", "%s is not writable", disk.Nearest)...)
	case disk.Free < minimumFree:
		found = append(found, finding.Obstacle(room, "%s: only %s", m.StateRoot, free)...)
	case disk.Free < lowFree:
		found = append(found, finding.Warning(room, "%s: only %s", m.StateRoot, free)...)
	}
	if disk.Nearest != m.StateRoot {
		return finding.OrGood(found, "%s, not created yet, %s", m.StateRoot, free)
	}
	return finding.OrGood(found, "%s, private to its owner, %s", m.StateRoot, free)
}

func (m Machine) lab(context.Context) []finding.Finding {
	if m.Lab == "" {
		problem, fix := NoLab(runtime.GOOS, runtime.GOARCH)
		return finding.Warning(fix, "%s: castle rehearse is not available", problem)
	}
	return finding.Good("%s", m.Lab)
}

// NoLab returns why there is no castle-lab on a machine, and what to do.
func NoLab(system, architecture string) (problem, fix string) {
	if system != "linux" {
		return "castle-lab requires Linux, whose namespaces keep a rehearsal away from the network", "run " +
			"`castle rehearse` in a virtual machine, a container or a pipeline on Linux"
	}
	return "castle-lab is neither beside castle nor on PATH", "install the package castle-lab, or unpack " +
		"castle-lab_VERSION_linux_" + architecture + ".tar.gz where castle's archive was unpacked (" +
		Releases + "); in a clone of castle, `make build` builds both into bin/"
}

// Releases is where castle's archives and packages are.
const Releases = "https://github.com/ephemeral-castle/castle/releases"

// providers checks the sources of the stages' providers. It asks a registry only for
// its service discovery document.
func (r *checkRun) providers(ctx context.Context) []finding.Finding {
	sources := map[string]bool{}
	for _, s := range r.target.Stages {
		for _, source := range s.Providers {
			if !strings.HasPrefix(source, "terraform.io/builtin/") {
				sources[source] = true
			}
		}
	}
	origins, err := terraform.ReadOrigins(r.machine.Environ)
	if err != nil {
		return finding.Unchecked(fmt.Errorf("cannot read Terraform's CLI configuration: %w", err))
	}
	const fix = "check the network and its proxy (HTTPS_PROXY), or configure a mirror in " +
		"provider_installation of TF_CLI_CONFIG_FILE"
	asked := map[string]error{} // by address
	var mirrored, reachable []string
	var found []finding.Finding
	for _, source := range slices.Sorted(maps.Keys(sources)) {
		at := origins.Of(source)
		if _, done := asked[at.URL]; at.URL != "" && !done {
			_, _, err := get(ctx, at.URL, unchanged)
			if at.OCI != "" && errors.As(err, new(httpError)) { // it wants a login, which is OpenTofu's
				err = nil
			}
			asked[at.URL] = err
		}
		err := asked[at.URL]
		short := strings.TrimPrefix(source, "registry.terraform.io/")
		switch {
		case at.Local != "":
			mirrored = append(mirrored, short)
		case at.URL == "":
			found = append(found, finding.Obstacle(
				"add it to the mirror, or allow `direct` in provider_installation",
				"%s: no mirror of Terraform's CLI configuration has it for %s_%s, and no other source is "+
					"allowed", short, runtime.GOOS, runtime.GOARCH)...)
		case err == nil:
			reachable = append(reachable, short)
		case terraform.Holds(r.target.Plugins, source):
			found = append(found, finding.Warning("nothing for stages that are initialized; for others: "+fix,
				"%s is in castle's cache, but %s does not answer: %v", short, at.URL, err)...)
		default:
			found = append(found, finding.Obstacle(fix, "%s: %s does not answer: %v", short, at.URL, err)...)
		}
	}
	var good []string
	if len(mirrored) > 0 {
		good = append(good, "in a mirror on this machine: "+strings.Join(mirrored, ", "))
	}
	if len(reachable) > 0 {
		answering := strings.Join(slices.Sorted(maps.Keys(asked)), " and ")
		good = append(good, fmt.Sprintf("%s answers, for %s", answering, strings.Join(reachable, ", ")))
	}
	return finding.OrGood(found, "%s", cmp.Or(strings.Join(good, "; "), "the stages require none"))
}

// Store is the store in which machines share the states.
type Store struct {
	Store      store.Store
	Encryption commits.Encryption
	Err        error // why it could not be opened, or why the states could not be read from it
	Fix        func(error) string
}

// check creates, reads, lists and deletes an object, as a run does.
func (s *Store) check(ctx context.Context) []finding.Finding {
	if s.Store == nil {
		return finding.Obstacle("", "%v", s.Err)
	}
	url := s.Store.URL()
	if err := s.probe(ctx); err != nil {
		return finding.Obstacle(s.Fix(err), "%v", finding.Reason(ctx, err))
	}
	if s.Err != nil {
		return finding.Obstacle(s.Fix(s.Err), "%v", s.Err)
	}
	const works = "%s: castle can read, create, list and delete there; "
	n := len(s.Encryption.Recipients)
	if n == 0 {
		return finding.Warning("add encryption { recipients = [\"age1…\"] } to the block state of castle.hcl",
			works+"the states, which hold secrets, are not encrypted", url)
	}
	recipients := "1 recipient"
	if n > 1 {
		recipients = fmt.Sprintf("%d recipients", n)
	}
	return finding.Good(
		works+"the states are encrypted for %s, and the identity of this environment decrypts and "+
			"signs them", url, recipients)
}

// probe uses a log of its own, whose objects belong to no cluster.
func (s *Store) probe(ctx context.Context) (err error) {
	name := "castle-doctor/" + rand.Text()
	log, err := commits.Open(s.Store, name, s.Encryption)
	if err != nil {
		return err
	}
	files, err := log.Upload(ctx, [][]byte{[]byte("written by castle doctor")})
	if err != nil {
		return err
	}
	c := &commits.Commit{Files: map[string]commits.File{"probe": files[0]}}
	_, err = log.Download(ctx, c, "probe")
	keys, unlisted := s.Store.List(ctx, name+"/")
	err = errors.Join(err, unlisted)
	for _, key := range keys {
		err = errors.Join(err, s.Store.Delete(ctx, key))
	}
	return err
}
