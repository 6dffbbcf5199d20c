package run

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path"
	"path/filepath"
	"strings"

	"github.com/zclconf/go-cty/cty"
	ctyjson "github.com/zclconf/go-cty/cty/json"

	"github.com/ephemeral-castle/castle/internal/cluster"
	"github.com/ephemeral-castle/castle/internal/config"
	"github.com/ephemeral-castle/castle/internal/kube"
	"github.com/ephemeral-castle/castle/internal/state"
	"github.com/ephemeral-castle/castle/internal/terraform"
)

// Fingerprint digests everything that a stage's apply depends on, to compare it with the last good apply.
func Fingerprint(r *Run, s *config.Stage, root *terraform.Root) (*state.Fingerprint, error) {
	f := &state.Fingerprint{}
	if err := f.AddFS("module", s.Module); err != nil {
		return nil, err
	}
	inputs, diags := s.Inputs(r.Outputs.Scope(s))
	if diags.HasErrors() {
		return nil, diags
	}
	for name, v := range inputs {
		if err := addInput(f, name, v, root.Dir); err != nil {
			return nil, err
		}
	}
	f.Add("terraform", []byte(root.Binary.SHA256))
	hashes, err := root.ProviderHashes()
	if err != nil {
		return nil, err
	}
	for source, sum := range hashes {
		f.Add("provider "+source, []byte(sum))
	}
	for _, kv := range terraform.ProviderEnv(r.Cluster.Options.Environ) {
		if name, value, _ := strings.Cut(kv, "="); matters(s, name) {
			f.Add("environment "+name, []byte(value))
		}
	}
	if err := AddState(f, r.Cluster.Dir.Stage(s.Name)); err != nil {
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

// matters reports whether an environment variable affects a stage's Terraform. Credentials do not: they
// rotate, and a shell that only reads the status may lack them.
func matters(s *config.Stage, name string) bool {
	for _, credential := range []string{"SECRET", "TOKEN", "PASSWORD", "CLIENT_ID", "USERNAME"} {
		if strings.Contains(name, credential) {
			return false
		}
	}
	for prefix, provider := range map[string]string{
		"INFISICAL_": "infisical", "VAULT_": "vault", "PROXMOX_VE_": "proxmox"} {
		if strings.HasPrefix(name, prefix) {
			return requires(s, provider)
		}
	}
	return len(s.Providers) > 0 // a proxy or a CA
}

// requires reports whether a stage uses a provider of that name.
func requires(s *config.Stage, provider string) bool {
	for _, source := range s.Providers {
		if path.Base(source) == provider {
			return true
		}
	}
	return false
}

// addInput adds a value and the content of the files that it names: a CA file may change under the same
// path.
func addInput(f *state.Fingerprint, name string, v cty.Value, dir string) error {
	data, err := ctyjson.Marshal(v, v.Type())
	if err != nil {
		return fmt.Errorf("variable %s: %w", name, err)
	}
	f.Add("variable "+name, data)
	for _, file := range cluster.StringsIn(v) {
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
func Changed(r *Run, s *config.Stage, old *state.Fingerprint) ([]string, error) {
	binary, err := r.Binary()
	if err != nil {
		return nil, err
	}
	now, err := Fingerprint(r, s, &terraform.Root{Binary: binary, Dir: r.Cluster.Dir.Stage(s.Name).Work()})
	if err != nil {
		return nil, err
	}
	return now.Changed(old), nil
}
