package destroy

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"path/filepath"
	"slices"
	"strings"

	"github.com/zclconf/go-cty/cty"

	"github.com/ephemeral-castle/castle/internal/atomicfile"
	"github.com/ephemeral-castle/castle/internal/cluster"
	"github.com/ephemeral-castle/castle/internal/config"
	"github.com/ephemeral-castle/castle/internal/process"
	"github.com/ephemeral-castle/castle/internal/proxmox"
	"github.com/ephemeral-castle/castle/internal/run"
	"github.com/ephemeral-castle/castle/internal/state"
)

// tokens replaces a recorded API token that somebody has rotated since. castle tries the recorded one before
// it destroys anything. If Proxmox refuses it, the first known token that Proxmox accepts replaces it in all
// records.
type tokens struct {
	destruction *destruction
	stages      []*Stage
}

// check verifies the tokens of the stages. A stage without one fails only when its turn comes, and with it
// only its dependents.
func (t *tokens) check(ctx context.Context) error {
	for _, d := range t.stages {
		asked, err := cluster.Datacenters(d.Record)
		if err != nil {
			return err
		}
		for _, recorded := range asked {
			if err := t.checkToken(ctx, d, recorded.Options); err != nil {
				return err
			}
		}
	}
	return nil
}

func (t *tokens) checkToken(ctx context.Context, d *Stage, recorded proxmox.Options) error {
	refusal := tokenAccepted(ctx, recorded)
	if proxmox.KindOf(refusal) != proxmox.Unauthorized {
		return nil
	}
	token, from, tried := t.otherToken(ctx, d, recorded)
	if ctx.Err() != nil {
		return context.Cause(ctx)
	}
	if token == "" {
		d.denied = &deniedError{refusal, tried}
		return nil
	}
	t.destruction.run.Cluster.Masker.Add(token)
	t.destruction.run.Notice(
		fmt.Sprintf("stage %s: Proxmox refuses the API token that was recorded; taking %s instead",
			d.Record.Name, from),
	)
	return t.replaceToken(recorded.Token, token)
}

// tokenAccepted returns nil if Proxmox accepts the token.
func tokenAccepted(ctx context.Context, o proxmox.Options) error {
	client, err := proxmox.NewClient(o)
	if err != nil {
		return err
	}
	return client.Admitted(ctx)
}

// deniedError reports that Proxmox accepts no known token.
type deniedError struct {
	err   error
	tried []string
}

func (e *deniedError) Unwrap() error { return e.err }

func (e *deniedError) Error() string {
	return fmt.Sprintf(
		"%v: the API token that was recorded is no longer valid, and nothing was destroyed\n  %s\n"+
			"    - set PROXMOX_VE_API_TOKEN to the one that is valid now, user@realm!name=secret, and run "+
			"the same command again",
		e.err,
		strings.Join(e.tried, "\n  "),
	)
}

// otherToken looks for a token that the recorded datacenter accepts: from the current configuration, from
// the environment, and from the volatile stages, which it reads again. It shows the token to no other
// datacenter. If it finds none, tried explains why each failed.
func (t *tokens) otherToken(
	ctx context.Context,
	d *Stage,
	recorded proxmox.Options,
) (token, from string, tried []string) {
	try := func(from, token, endpoint string) bool {
		o := recorded
		switch o.Token = token; {
		case token == "":
			tried = append(tried, from+" is not known")
		case token == recorded.Token:
			tried = append(tried, from+" is the same one")
		case endpoint != "" && !proxmox.SameEndpoint(endpoint, o.Endpoint):
			tried = append(tried, fmt.Sprintf("%s is for %s, not for %s", from, endpoint, o.Endpoint))
		default:
			err := tokenAccepted(ctx, o)
			if err == nil {
				return true
			}
			tried = append(tried, fmt.Sprintf("%s: %v", from, err))
		}
		return false
	}
	const configured, environment = "the configuration's", "PROXMOX_VE_API_TOKEN"
	token, endpoint := t.configuredToken(d)
	if try(configured, token, endpoint) {
		return token, configured, nil
	}
	token, endpoint = process.Getenv(t.destruction.run.Cluster.Options.Environ, environment), process.Getenv(
		t.destruction.run.Cluster.Options.Environ,
		"PROXMOX_VE_ENDPOINT",
	)
	if try(environment, token, endpoint) {
		return token, environment, nil
	}
	for _, v := range t.destruction.all {
		if !v.Record.Volatile || len(v.Resources) > 0 {
			continue
		}
		from := "what " + v.Record.Layer + "/" + v.Record.Name + " says now"
		token, err := t.reread(ctx, v, recorded.Token)
		if err != nil {
			tried = append(tried, fmt.Sprintf("%s: %v", from, err))
			continue
		}
		if token == "" { // it had learned of the new one before
			token, _ = t.configuredToken(d)
		}
		if try(from, token, "") {
			return token, from, nil
		}
	}
	return "", "", tried
}

// configuredToken returns the token, and its endpoint, that the current configuration has for this stage, as
// far as it can be evaluated.
func (t *tokens) configuredToken(d *Stage) (token, endpoint string) {
	if t.destruction.run.Cluster.InvalidConfig != nil {
		return "", ""
	}
	var found *config.Stage
	for _, s := range t.destruction.run.Cluster.Config.Stages {
		if st, err := t.destruction.run.Cluster.Dir.Stage(s.Name).LastKnown(); err == nil {
			t.destruction.run.Outputs.Set(s, run.RecordedOutputs(t.destruction.run.Cluster, s, st))
		}
		if s.Name == d.Record.Name {
			found = s
		}
	}
	if found == nil {
		return "", ""
	}
	for _, p := range found.Preflights {
		values, diags := p.Values(found, t.destruction.run.Outputs.Scope(found))
		if p.Type.Name != proxmox.PreflightVMIDs || diags.HasErrors() {
			continue
		}
		if o, _, err := proxmox.Recorded(values); err == nil {
			return o.Token, o.Endpoint
		}
	}
	return "", ""
}

// reread applies a stage that only reads as it was recorded, and returns the new value of the output that
// held token.
func (t *tokens) reread(ctx context.Context, v *Stage, token string) (now string, err error) {
	dir := t.destruction.run.Cluster.Dir.Stage(v.Record.Name)
	work, err := run.RecordedWorkspace(ctx, t.destruction.run, v.Record)
	if err != nil {
		return "", err
	}
	defer func() { err = errors.Join(err, work.Close()) }()
	if err := errors.Join(dir.Fingerprint().Clear(), dir.Snapshot()); err != nil {
		return "", err
	}
	err = t.destruction.run.Step(
		v.Record.Name,
		v.Record.Layer,
		"apply",
		func() error { return work.Root.Apply(ctx, nil) },
	)
	if err = errors.Join(err, dir.Snapshot()); err != nil {
		return "", err
	}
	st, err := t.destruction.run.ReadState(dir)
	if err != nil {
		return "", err
	}
	for name, out := range v.state.Outputs {
		if text(out.Value) == token {
			now = text(st.Outputs[name].Value)
		}
	}
	return now, nil
}

func text(v cty.Value) string {
	if v == cty.NilVal || !v.IsKnown() || v.IsNull() || v.Type() != cty.String {
		return ""
	}
	return v.AsString()
}

// replaceToken replaces a token by another one in all records: this run, a later one and castle nuke find it
// there.
func (t *tokens) replaceToken(old, token string) error {
	for _, d := range slices.Concat(t.destruction.all, t.stages) {
		dir := t.destruction.run.Cluster.Dir.Stage(d.Record.Name)
		for i, check := range d.Record.Preflights {
			values, err := check.Decode()
			if err != nil {
				return err
			}
			if check.Type != proxmox.PreflightVMIDs || text(values["api_token"]) != old {
				continue
			}
			values["api_token"] = cty.StringVal(token)
			if d.Record.Preflights[i], err = state.NewRecordedCheck(check.Type, check.Label,
				values); err != nil {
				return err
			}
			if err := dir.SetRecord(d.Record); err != nil {
				return err
			}
		}
		if err := replaceInput(dir, old, token); err != nil {
			return err
		}
	}
	return nil
}

// replaceInput puts a text in the place of another one in a stage's recorded inputs.
func replaceInput(dir *state.Stage, old, replacement string) error {
	_, inputs, err := run.RecordedModule(dir)
	if errors.Is(err, fs.ErrNotExist) || inputs == nil {
		return nil
	}
	if err != nil {
		return err
	}
	was, err := json.Marshal(old)
	if err != nil {
		return err
	}
	is, err := json.Marshal(replacement)
	if err != nil {
		return err
	}
	changed := bytes.ReplaceAll(inputs, was, is)
	if bytes.Equal(changed, inputs) {
		return nil
	}
	return atomicfile.Write(filepath.Join(run.RecordedPath(dir), run.KeptInputs), changed)
}
