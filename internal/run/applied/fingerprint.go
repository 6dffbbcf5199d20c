// Package applied records a stage's last good apply, and compares the stage with it: the configuration's
// fingerprint, the revisions of its objects, its gates, and the facts that a destroy works from. It also
// repairs those records, and removes the oldest runs.
package applied

import (
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"os"
	"path"
	"path/filepath"
	"regexp"
	"slices"
	"strings"

	"github.com/zclconf/go-cty/cty"
	ctyjson "github.com/zclconf/go-cty/cty/json"

	"github.com/ephemeral-castle/castle/internal/config"
	"github.com/ephemeral-castle/castle/internal/kube"
	"github.com/ephemeral-castle/castle/internal/providers"
	"github.com/ephemeral-castle/castle/internal/run"
	"github.com/ephemeral-castle/castle/internal/state"
	"github.com/ephemeral-castle/castle/internal/terraform"
	"github.com/ephemeral-castle/castle/internal/tfeval"
)

// Fingerprint digests everything that a stage's apply depends on, to compare it with the last good apply.
func Fingerprint(r *run.Run, s *config.Stage) (*state.Fingerprint, error) {
	binary, err := r.Binary()
	if err != nil {
		return nil, err
	}
	f, dir := &state.Fingerprint{}, r.Cluster.Dir.Stage(s.Name)
	if err := f.AddFS("module", s.Module); err != nil {
		return nil, err
	}
	inputs, err := r.Inputs(s)
	if err != nil {
		return nil, err
	}
	for name, v := range inputs {
		if err := addInput(f, name, v, dir.Work()); err != nil {
			return nil, err
		}
	}
	f.Add("terraform", []byte(binary.Fact()))
	versions, err := versions(r, s, dir)
	if err != nil {
		return nil, err
	}
	// Without the checksums: init verifies them, and another platform adds its own.
	for source, version := range versions {
		f.Add("provider "+source, []byte(version))
	}
	for _, kv := range terraform.ProviderEnv(r.Cluster.Options.Environ) {
		if name, value, _ := strings.Cut(kv, "="); matters(s, name) {
			f.Add("environment "+name, []byte(value))
		}
	}
	if err := AddState(f, dir); err != nil {
		return nil, err
	}
	if kubeconfig := r.Outputs.Target().Kubeconfig; s.NeedsPlatform && kubeconfig != nil {
		identity, err := kube.ClusterIdentity(kubeconfig)
		if err != nil {
			return nil, err
		}
		f.Add("cluster", []byte(identity))
	}
	return f, nil
}

// AddState adds the identity and digest of a stage's state to a fingerprint.
func AddState(f *state.Fingerprint, dir *state.Stage) error {
	st, err := dir.State()
	if err == nil {
		f.Add("state", []byte(st.Lineage), fmt.Append(nil, st.Serial), []byte(st.SHA256))
	}
	return err
}

// personal matches the variables of credentials, which rotate, and of the way from this machine to a system:
// certificates, SSH, proxies. They differ between machines that share a state.
var personal = regexp.MustCompile(
	`SECRET|TOKEN|PASSWORD|CLIENT_ID|USERNAME|CLIENT_(CERT|KEY)|CA_?(CERT|PATH)|PROXY|SSH_|TMPDIR`)

// matters reports whether an environment variable decides what a stage's Terraform applies, or where.
func matters(s *config.Stage, name string) bool {
	if personal.MatchString(name) {
		return false
	}
	reader := providers.ReaderOf(name)
	return reader != "" && slices.ContainsFunc(slices.Collect(maps.Values(s.Providers)),
		func(source string) bool { return path.Base(source) == reader })
}

// addInput adds a value and the content of the files that it names: a CA file may change under the same path.
func addInput(f *state.Fingerprint, name string, v cty.Value, dir string) error {
	data, err := ctyjson.Marshal(v, v.Type())
	if err != nil {
		return fmt.Errorf("variable %s: %w", name, err)
	}
	f.Add("variable "+name, data)
	for _, file := range tfeval.Strings(v) {
		if !filepath.IsAbs(file) {
			file = filepath.Join(dir, file)
		}
		info, err := os.Stat(file)
		if err != nil || !info.Mode().IsRegular() {
			continue
		}
		if err := f.AddFile("variable "+name+" file", file); err != nil && !errors.Is(err, fs.ErrNotExist) {
			return err
		}
	}
	return nil
}

// Changed lists the parts that differ from the stage's last good apply.
func Changed(r *run.Run, s *config.Stage, old *state.Fingerprint) ([]string, error) {
	now, err := Fingerprint(r, s)
	if err != nil {
		return nil, err
	}
	return now.Changed(old), nil
}

// IsPrepared reports whether init has chosen the providers of a stage on this machine.
func IsPrepared(dir *state.Stage) bool {
	_, err := os.Lstat(filepath.Join(dir.Work(), providers.ModuleFile))
	return err == nil
}

// versions returns the versions of a stage's providers that the next init uses. Where no init has chosen them
// on this machine, they are those that the cluster's file or the recorded modules have.
func versions(r *run.Run, s *config.Stage, dir *state.Stage) (map[string]string, error) {
	all, err := (&terraform.Root{Dir: dir.Work()}).ProviderVersions()
	if err != nil {
		return nil, err
	}
	if !IsPrepared(dir) {
		for _, source := range s.Providers {
			all[source] = ""
		}
	}
	locked, err := r.Providers.Locked()
	if err != nil {
		return nil, err
	}
	for source, chosen := range all {
		if entry, ok := locked[source]; ok {
			all[source] = entry.Version
		} else if chosen == "" {
			delete(all, source)
		}
	}
	return all, nil
}
