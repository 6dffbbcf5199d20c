package castle

import (
	"context"
	"errors"
	"fmt"
	"strings"

	"github.com/zclconf/go-cty/cty"

	"github.com/ephemeral-castle/castle/internal/config"
	"github.com/ephemeral-castle/castle/internal/process"
	"github.com/ephemeral-castle/castle/internal/proxmox"
)

// A destroy works with what was recorded, and of that one thing goes stale by
// itself: the API token, when somebody rotates it. So before anything is destroyed
// Proxmox is asked whether it still takes the recorded one. If not, the others that
// castle can know of are tried, and the first that is taken replaces it in what
// was recorded.

// admit makes sure of the tokens of these stages. A stage without one fails when
// its turn comes, and with it only what needs it.
func (r *destruction) admit(ctx context.Context, doomed []*Doomed) error {
	for _, d := range doomed {
		asked, err := datacentersOf(d.Record)
		if err != nil {
			return err
		}
		for _, recorded := range asked {
			if err := r.admitTo(ctx, d, doomed, recorded.Options); err != nil {
				return err
			}
		}
	}
	return nil
}

func (r *destruction) admitTo(ctx context.Context, d *Doomed, doomed []*Doomed, recorded proxmox.Options) error {
	refusal := admitted(ctx, recorded)
	if proxmox.KindOf(refusal) != proxmox.Unauthorized {
		return nil
	}
	token, from, tried := r.otherToken(ctx, d, recorded)
	if ctx.Err() != nil {
		return context.Cause(ctx)
	}
	if token == "" {
		d.denied = &deniedError{refusal, tried}
		return nil
	}
	r.masker.Add(token)
	r.notice(fmt.Sprintf("stage %s: Proxmox refuses the API token that was recorded; taking %s instead", d.Record.Name, from))
	return r.replaceToken(doomed, recorded.Token, token)
}

// admitted asks whether Proxmox takes a token.
func admitted(ctx context.Context, o proxmox.Options) error {
	client, err := proxmox.NewClient(o)
	if err != nil {
		return err
	}
	return client.Admitted(ctx)
}

// deniedError says that no token is known that Proxmox takes.
type deniedError struct {
	err   error
	tried []string
}

func (e *deniedError) Unwrap() error { return e.err }

func (e *deniedError) Error() string {
	return fmt.Sprintf("%v: the API token that was recorded is no longer valid, and nothing was destroyed\n  %s\n"+
		"    - set PROXMOX_VE_API_TOKEN to the one that is valid now, user@realm!name=secret, and run the same command again",
		e.err, strings.Join(e.tried, "\n  "))
}

// otherToken looks for a token that the recorded datacenter takes: what the
// configuration says now, what the environment says, and what the volatile stages
// say when they are read again. It is shown to no other datacenter. Without one,
// tried says why each was none.
func (r *destruction) otherToken(ctx context.Context, d *Doomed, recorded proxmox.Options) (token, from string, tried []string) {
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
			err := admitted(ctx, o)
			if err == nil {
				return true
			}
			tried = append(tried, fmt.Sprintf("%s: %v", from, err))
		}
		return false
	}
	const configured, environment = "the configuration's", "PROXMOX_VE_API_TOKEN"
	token, endpoint := r.configuredToken(d)
	if try(configured, token, endpoint) {
		return token, configured, nil
	}
	token, endpoint = process.Getenv(r.options.Environ, environment), process.Getenv(r.options.Environ, "PROXMOX_VE_ENDPOINT")
	if try(environment, token, endpoint) {
		return token, environment, nil
	}
	for _, v := range r.all {
		if !v.Record.Volatile || len(v.Resources) > 0 {
			continue
		}
		from := "what " + v.Record.Layer + "/" + v.Record.Name + " says now"
		token, err := r.reread(ctx, v, recorded.Token)
		if err != nil {
			tried = append(tried, fmt.Sprintf("%s: %v", from, err))
			continue
		}
		if token == "" { // it had learned of the new one before
			token, _ = r.configuredToken(d)
		}
		if try(from, token, "") {
			return token, from, nil
		}
	}
	return "", "", tried
}

// configuredToken is the token, and for which endpoint, that the configuration
// has for this stage by now, as far as it is valid and can be evaluated.
func (r *destruction) configuredToken(d *Doomed) (token, endpoint string) {
	if r.invalid != nil {
		return "", ""
	}
	var found *config.Stage
	for _, s := range r.cluster.Stages {
		if st, err := r.dir.Stage(s.Name).LastKnown(); err == nil {
			r.said.put(s, r.outputsOf(s, st))
		}
		if s.Name == d.Record.Name {
			found = s
		}
	}
	if found == nil {
		return "", ""
	}
	for _, p := range found.Preflights {
		values, diags := p.Values(found, r.said.scope(found))
		if p.Type.Name != proxmox.PreflightVMIDs || diags.HasErrors() {
			continue
		}
		if o, _, err := proxmox.Recorded(values); err == nil {
			return o.Token, o.Endpoint
		}
	}
	return "", ""
}

// reread applies a stage that only reads as it was recorded, and returns what the
// output that was token has become.
func (r *destruction) reread(ctx context.Context, v *Doomed, token string) (now string, err error) {
	dir := r.dir.Stage(v.Record.Name)
	work, err := r.recordedWork(ctx, v.Record)
	if err != nil {
		return "", err
	}
	defer func() { err = errors.Join(err, work.Close()) }()
	if err := errors.Join(dir.Fingerprint().Clear(), dir.Snapshot()); err != nil {
		return "", err
	}
	err = r.step(v.Record.Name, v.Record.Layer, "apply", func() error { return work.root.Apply(ctx, nil) })
	if err = errors.Join(err, dir.Snapshot()); err != nil {
		return "", err
	}
	st, err := r.readState(dir)
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
