package destroy

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"slices"
	"strings"

	"github.com/zclconf/go-cty/cty"

	"github.com/ephemeral-castle/castle/internal/cluster"
	"github.com/ephemeral-castle/castle/internal/config"
	"github.com/ephemeral-castle/castle/internal/process"
	"github.com/ephemeral-castle/castle/internal/proxmox"
	"github.com/ephemeral-castle/castle/internal/run"
	"github.com/ephemeral-castle/castle/internal/state"
	"github.com/ephemeral-castle/castle/internal/state/recorded"
	"github.com/ephemeral-castle/castle/internal/tfeval"
)

// tokens replaces a recorded API token that somebody has rotated since. castle tries the recorded one before
// it destroys anything. If Proxmox refuses it, the first known token that Proxmox accepts replaces it in all
// records.
type tokens struct {
	run         *run.Run
	all, stages []*Stage // that are recorded, and to destroy
}

// check verifies the tokens of the stages. A stage without one fails only when its turn comes, and with it
// only its dependents.
func (t *tokens) check(ctx context.Context) error {
	for _, s := range t.stages {
		datacenters, err := cluster.Datacenters(s.Record)
		if err != nil {
			return err
		}
		for _, recorded := range datacenters {
			if err := t.checkToken(ctx, s, recorded.Options); err != nil {
				return err
			}
		}
	}
	return nil
}

func (t *tokens) checkToken(ctx context.Context, s *Stage, recorded proxmox.Options) error {
	refusal := tokenAccepted(ctx, recorded)
	if proxmox.KindOf(refusal) != proxmox.Unauthorized {
		return nil
	}
	token, from, tried := t.otherToken(ctx, s, recorded)
	if ctx.Err() != nil {
		return context.Cause(ctx)
	}
	if token == "" {
		s.denied = fmt.Errorf("%w: the API token that was recorded is no longer valid, and nothing was "+
			"destroyed\n  %s\n    - set PROXMOX_VE_API_TOKEN to the one that is valid now, "+
			"user@realm!name=secret, and run the same command again", refusal, strings.Join(tried, "\n  "))
		return nil
	}
	t.run.Cluster.Masker.Add(token)
	t.run.Notice(fmt.Sprintf("stage %s: Proxmox refuses the API token that was recorded; taking %s instead",
		s.Record.Name, from))
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

// otherToken looks for a token that the recorded datacenter accepts: from the current configuration, from
// the environment, and from the volatile stages, which it reads again. It shows the token to no other
// datacenter. If it finds none, tried explains why each failed.
func (t *tokens) otherToken(
	ctx context.Context, s *Stage, recorded proxmox.Options,
) (token, from string, tried []string) {
	try := func(from, token, endpoint string) bool {
		o := recorded
		o.Token = token
		switch {
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
	token, endpoint := t.configuredToken(s)
	if try(configured, token, endpoint) {
		return token, configured, nil
	}
	environ := t.run.Cluster.Options.Environ
	token = process.Getenv(environ, environment)
	if try(environment, token, process.Getenv(environ, "PROXMOX_VE_ENDPOINT")) {
		return token, environment, nil
	}
	for _, v := range t.all {
		if !v.Record.Volatile || len(v.Resources) > 0 {
			continue
		}
		from := "what " + v.Record.Layer + "/" + v.Record.Name + " has now"
		token, err := t.reread(ctx, v, recorded.Token)
		if err != nil {
			tried = append(tried, fmt.Sprintf("%s: %v", from, err))
			continue
		}
		if token == "" { // it had learned of the new one before
			token, _ = t.configuredToken(s)
		}
		if try(from, token, "") {
			return token, from, nil
		}
	}
	return "", "", tried
}

// configuredToken returns the token, and its endpoint, that the current configuration has for this stage, as
// far as it can be evaluated.
func (t *tokens) configuredToken(of *Stage) (token, endpoint string) {
	c := t.run.Cluster
	if c.InvalidConfig != nil {
		return "", ""
	}
	for _, s := range c.Config.Stages {
		if st, err := c.Dir.Stage(s.Name).LastKnown(); err == nil {
			t.run.Outputs.Set(s, run.RecordedOutputs(c, s, st))
		}
	}
	i := slices.IndexFunc(c.Config.Stages, func(s *config.Stage) bool { return s.Name == of.Record.Name })
	if i < 0 {
		return "", ""
	}
	found := c.Config.Stages[i]
	for _, p := range found.Preflights {
		values, diags := p.Values(found, t.run.Outputs.Scope(found))
		if !proxmox.IsPreflight(p.Type.Name) || diags.HasErrors() {
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
func (t *tokens) reread(ctx context.Context, s *Stage, token string) (now string, err error) {
	work, err := t.run.RecordedWorkspace(ctx, s.Record)
	if err != nil {
		return "", err
	}
	defer func() { err = errors.Join(err, work.Close()) }()
	if err := errors.Join(s.dir.Fingerprint().Clear(), s.dir.Snapshot()); err != nil {
		return "", err
	}
	apply := func() error { return work.Root.Apply(ctx, nil) }
	err = t.run.Step(s.Record.Name, s.Record.Layer, "apply", apply)
	if err = errors.Join(err, s.dir.Snapshot()); err != nil {
		return "", err
	}
	st, err := t.run.ReadState(s.dir)
	if err != nil {
		return "", err
	}
	for name, out := range s.state.Outputs {
		if tfeval.Text(out.Value) == token {
			now = tfeval.Text(st.Outputs[name].Value)
		}
	}
	return now, nil
}

// replaceToken replaces a token by another one in all records: this run, a later one and castle nuke find it
// there.
func (t *tokens) replaceToken(old, token string) error {
	for _, s := range slices.Concat(t.all, t.stages) {
		for i, check := range s.Record.Preflights {
			values, err := check.Decode()
			if err != nil {
				return err
			}
			if !proxmox.IsPreflight(check.Type) || tfeval.Text(values["api_token"]) != old {
				continue
			}
			values["api_token"] = cty.StringVal(token)
			s.Record.Preflights[i], err = state.NewRecordedCheck(check.Type, check.Label, values)
			if err != nil {
				return err
			}
			if err := s.dir.SetRecord(s.Record); err != nil {
				return err
			}
		}
		if err := replaceInput(t.run.Cluster, s.dir, old, token); err != nil {
			return err
		}
	}
	return nil
}

// replaceInput puts a text in the place of another one in a stage's recorded inputs.
func replaceInput(c *cluster.Cluster, dir *state.Stage, old, replacement string) error {
	_, inputs, err := recorded.Module(dir, c.Command("create"))
	if errors.Is(err, fs.ErrNotExist) || inputs == nil {
		return nil
	}
	if err != nil {
		return err
	}
	was, wasErr := json.Marshal(old)
	is, isErr := json.Marshal(replacement)
	if err := errors.Join(wasErr, isErr); err != nil {
		return err
	}
	changed := bytes.ReplaceAll(inputs, was, is)
	if bytes.Equal(changed, inputs) {
		return nil
	}
	return recorded.ReplaceInputs(dir, changed)
}
