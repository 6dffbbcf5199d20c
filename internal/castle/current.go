package castle

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"

	"github.com/zclconf/go-cty/cty"
	ctyjson "github.com/zclconf/go-cty/cty/json"

	"github.com/ephemeral-castle/castle/internal/config"
	"github.com/ephemeral-castle/castle/internal/event"
	"github.com/ephemeral-castle/castle/internal/kube"
	"github.com/ephemeral-castle/castle/internal/state"
	"github.com/ephemeral-castle/castle/internal/terraform"
)

// current reports whether a stage needs nothing: what it depends on is as it was
// when it last became ready, and its gates are open now. Its recorded outputs
// are known afterwards, current or not.
func (r *creation) current(ctx context.Context, s *config.Stage) (bool, error) {
	dir := r.dir.Stage(s.Name)
	st, err := r.readState(dir)
	if err != nil || !st.Exists {
		return false, err
	}
	r.said.put(s, st.Outputs)
	old, err := dir.Fingerprint()
	if err != nil || old == nil || r.refresh {
		return false, err
	}
	now, err := r.fingerprint(ctx, s)
	if err != nil {
		return false, err
	}
	if changed := now.Changed(old); len(changed) > 0 {
		return false, nil
	}
	if closed := r.ask(ctx, s, earlyGates(s)); closed != nil {
		r.emit(event.Event{Kind: event.GateClosed, Layer: s.Layer, Stage: s.Name, Gate: closed.Gate, Text: closed.Error()})
		return false, nil
	}
	return true, nil
}

// fingerprint digests everything that a stage's last good apply depended on.
func (r *creation) fingerprint(ctx context.Context, s *config.Stage) (*state.Fingerprint, error) {
	work, err := r.workshop(ctx, s)
	if err != nil {
		return nil, err
	}
	return r.fingerprintOf(s, work.Root)
}

func (r *run) fingerprintOf(s *config.Stage, root *terraform.Root) (*state.Fingerprint, error) {
	f := &state.Fingerprint{}
	if err := f.AddFS("module", s.Module); err != nil {
		return nil, err
	}
	inputs, diags := s.Inputs(r.said.scope(s))
	if diags.HasErrors() {
		return nil, diags
	}
	for name, v := range inputs {
		if err := addInput(f, name, v, root.Dir); err != nil {
			return nil, err
		}
	}
	f.Add("terraform", []byte(root.SHA256))
	hashes, err := root.ProviderHashes()
	if err != nil {
		return nil, err
	}
	for source, sum := range hashes {
		f.Add("provider "+source, []byte(sum))
	}
	for _, kv := range terraform.ProviderEnv(r.options.Environ) {
		f.Add("environment", []byte(kv))
	}
	st, err := r.dir.Stage(s.Name).State()
	if err != nil {
		return nil, err
	}
	f.Add("state", []byte(st.Lineage), fmt.Append(nil, st.Serial), []byte(st.SHA256))
	if kubeconfig := r.said.target().Kubeconfig; s.NeedsPlatform && kubeconfig != nil {
		identity, err := kube.ClusterIdentity(kubeconfig)
		if err != nil {
			return nil, err
		}
		f.Add("cluster", []byte(identity))
	}
	return f, nil
}

// addInput adds a value, and the content of the files that it names: a changed
// CA file is a change, though its path is the same.
func addInput(f *state.Fingerprint, name string, v cty.Value, dir string) error {
	data, err := ctyjson.Marshal(v, v.Type())
	if err != nil {
		return fmt.Errorf("variable %s: %w", name, err)
	}
	f.Add("variable "+name, data)
	for _, path := range stringsIn(v) {
		if !filepath.IsAbs(path) {
			path = filepath.Join(dir, path)
		}
		info, err := os.Stat(path)
		if err != nil || !info.Mode().IsRegular() {
			continue
		}
		if err := f.AddFile("variable "+name+" file", path); err != nil && !errors.Is(err, fs.ErrNotExist) {
			return err
		}
	}
	return nil
}

// renewNeeds reads the volatile stages that s needs again, once in a run and
// only now that something will use them: a token may have been rotated.
func (r *creation) renewNeeds(ctx context.Context, s *config.Stage) error {
	for _, need := range s.Needs {
		if need.Volatile {
			if err := r.renew(ctx, need); err != nil {
				return fmt.Errorf("read %s again: %w", need.Name, err)
			}
		}
	}
	return nil
}

func (r *creation) renew(ctx context.Context, s *config.Stage) error {
	one := r.renewed[s]
	one.once.Do(func() {
		if one.err = r.raise(ctx, s); one.err == nil {
			one.err = r.settle(ctx, s)
		}
	})
	return one.err
}

// requireReady asks a stage that was not selected but is needed whether it is
// ready. It is never taken for granted.
func (r *creation) requireReady(ctx context.Context, s *config.Stage) error {
	st, err := r.readState(r.dir.Stage(s.Name))
	if err != nil {
		return err
	}
	if !st.Exists {
		return &UsageError{Message: fmt.Sprintf("needed but not selected, and never created; "+
			"raise it first: castle create %s --to %s", r.cluster.Name, s.Name)}
	}
	r.said.put(s, st.Outputs)
	if closed := r.ask(ctx, s, s.Gates); closed != nil {
		return fmt.Errorf("needed but not selected, and not ready: gate %s: %w", closed.Gate, closed)
	}
	return nil
}
