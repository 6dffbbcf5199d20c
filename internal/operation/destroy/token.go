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
	"github.com/ephemeral-castle/castle/internal/platform"
	"github.com/ephemeral-castle/castle/internal/run"
	"github.com/ephemeral-castle/castle/internal/secretstore"
	"github.com/ephemeral-castle/castle/internal/state"
	"github.com/ephemeral-castle/castle/internal/state/recorded"
	"github.com/ephemeral-castle/castle/internal/tfeval"
)

// tokens replaces a recorded API token that somebody has rotated since. castle tries the recorded one first
// of all. If the datacenter refuses it, the first known token that it accepts replaces it in all records.
type tokens struct {
	run         *run.Run
	all, stages []*Stage // that are recorded, and to destroy
	// Observes: no run has begun. Only the stages in memory get the token, and no stage is applied for it.
	observes bool
}

// check verifies the tokens of the stages. One without fails when its turn comes, and with it its dependents.
func (t *tokens) check(ctx context.Context) error {
	for _, s := range t.stages {
		datacenters, err := cluster.Datacenters(s.Record)
		if err != nil {
			return err
		}
		for _, recorded := range datacenters {
			if err := t.checkToken(ctx, s, recorded); err != nil {
				return err
			}
		}
	}
	return nil
}

func (t *tokens) checkToken(ctx context.Context, s *Stage, recorded cluster.Datacenter) error {
	var refusal error
	accept := func(ctx context.Context, a platform.Account) error {
		datacenter, err := recorded.Platform.Open(a)
		if err == nil {
			err = datacenter.Admitted(ctx)
		}
		if a.Token == recorded.Account.Token {
			refusal = err
		}
		return err
	}
	accepted, from, tried, err := platform.Accepted(ctx, recorded.Platform, recorded.Account.Endpoint,
		t.sources(s, recorded), accept)
	switch {
	case ctx.Err() != nil:
		return context.Cause(ctx)
	case accepted.Token == recorded.Account.Token || from != "" && err != nil:
		return nil // Terraform reports any other failure
	case from == "":
		_, variable := recorded.Platform.Variables()
		s.denied = fmt.Errorf("%w: the API token that was recorded is no longer valid, and nothing was "+
			"destroyed\n  %s\n    - set %s to the one that is valid now, and run the same command again",
			refusal, strings.Join(tried[1:], "\n  "), variable)
		return nil
	}
	t.run.Cluster.Masker.Add(accepted.Token)
	if !t.observes {
		t.run.Notice(fmt.Sprintf("stage %s: %s refuses the API token that was recorded; taking %s instead",
			s.Record.Name, recorded.Platform.Name(), from))
	}
	return t.replaceToken(recorded.Account.Token, accepted.Token)
}

// sources are the recorded token, then those of the current configuration, the environment and the volatile
// stages, which it reads again.
func (t *tokens) sources(s *Stage, recorded cluster.Datacenter) []platform.Source {
	with := func(a platform.Account) platform.Account {
		all := recorded.Account
		all.Endpoint, all.Token = a.Endpoint, a.Token
		return all
	}
	_, variable := recorded.Platform.Variables()
	sources := []platform.Source{
		{Name: "the record", Account: func(context.Context) (platform.Account, error) {
			return recorded.Account, nil
		}},
		{Name: "the configuration's", Account: func(context.Context) (platform.Account, error) {
			return with(t.configured(s)), nil
		}},
		{Name: variable, Account: func(context.Context) (platform.Account, error) {
			return with(recorded.Platform.Environment(t.run.Cluster.Options.Environ)), nil
		}},
	}
	if t.observes {
		sources = append(sources, platform.Source{Name: "the secret store",
			Account: func(ctx context.Context) (platform.Account, error) {
				stored, err := t.stored(ctx)
				return with(platform.Account{Token: recorded.Platform.Environment(stored).Token}), err
			}})
	}
	for _, v := range t.all {
		if !v.Record.Volatile || len(v.Resources) > 0 {
			continue
		}
		sources = append(sources, platform.Source{
			Name: "what " + v.Record.Layer + "/" + v.Record.Name + " has now",
			Account: func(ctx context.Context) (platform.Account, error) {
				token, err := t.reread(ctx, v, recorded.Account.Token)
				if token == "" { // it had learned of the new one before
					token = t.configured(s).Token
				}
				return with(platform.Account{Token: token}), err
			},
		})
	}
	return sources
}

// configured returns the account that the current configuration has for this stage, as far as it is known.
func (t *tokens) configured(of *Stage) (none platform.Account) {
	c := t.run.Cluster
	if c.InvalidConfig != nil {
		return none
	}
	for _, s := range c.Config.Stages {
		if st, err := c.Dir.Stage(s.Name).LastKnown(); err == nil {
			t.run.Outputs.Set(s, run.RecordedOutputs(c, s, st))
		}
	}
	i := slices.IndexFunc(c.Config.Stages, func(s *config.Stage) bool { return s.Name == of.Record.Name })
	if i < 0 {
		return none
	}
	found := c.Config.Stages[i]
	for _, p := range found.Preflights {
		values, diags := p.Values(found, t.run.Outputs.Scope(found))
		asked := cluster.Platforms().Of(p.Type.Name)
		if asked == nil || diags.HasErrors() {
			continue
		}
		if a, _, err := asked.Account(values); err == nil {
			return a
		}
	}
	return none
}

// stored returns the secrets that the cluster's store has now, as an environment.
func (t *tokens) stored(ctx context.Context) (environ []string, err error) {
	c := t.run.Cluster
	collection, err := secretstore.Of(c.Config.Stages)
	if err != nil {
		return nil, err
	}
	secrets, err := collection.Store.Read(ctx, c.Options.Environ)
	for name, value := range secrets {
		c.Masker.Add(value)
		environ = append(environ, name+"="+value)
	}
	return environ, err
}

// reread applies a stage that only reads as it was recorded, and returns the output that held token.
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

// replaceToken replaces a token in all records: this run, a later one and castle nuke find it there.
func (t *tokens) replaceToken(old, token string) error {
	for _, s := range slices.Concat(t.all, t.stages) {
		replaced := false
		for i, check := range s.Record.Preflights {
			values, err := check.Decode()
			if err != nil {
				return err
			}
			if cluster.Platforms().Of(check.Type) == nil || tfeval.Text(values["api_token"]) != old {
				continue
			}
			values["api_token"] = cty.StringVal(token)
			s.Record.Preflights[i], err = state.NewRecordedCheck(check.Type, check.Label, values)
			if err != nil {
				return err
			}
			replaced = true
		}
		if t.observes {
			continue
		}
		if replaced {
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
