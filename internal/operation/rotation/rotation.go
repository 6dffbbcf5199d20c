// Package rotation gives the users of a cluster's database new passwords, without a failed login. Each user
// has two login roles. Clients use one of them; the other one gets the new password, and they change to it
// once it works. The rotation is on disk before each step, and each step finds what it has done: the same
// command completes it. A create in between gives clients the roles that are recorded as in use.
package rotation

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/zclconf/go-cty/cty"

	"github.com/ephemeral-castle/castle/internal/cluster"
	"github.com/ephemeral-castle/castle/internal/config"
	"github.com/ephemeral-castle/castle/internal/foreign"
	"github.com/ephemeral-castle/castle/internal/kube"
	"github.com/ephemeral-castle/castle/internal/operation/create"
	"github.com/ephemeral-castle/castle/internal/probe"
	"github.com/ephemeral-castle/castle/internal/run"
	"github.com/ephemeral-castle/castle/internal/run/applied"
	"github.com/ephemeral-castle/castle/internal/run/waiting"
	"github.com/ephemeral-castle/castle/internal/secretstore/vault"
	"github.com/ephemeral-castle/castle/internal/state"
	"github.com/ephemeral-castle/castle/internal/tfeval"
)

const (
	acceptTime = 5 * time.Minute      // until a new password works
	answerTime = 20 * time.Second     // without an answer: this machine cannot reach the database
	passwords  = "database_passwords" // the output with them, by login role
)

type rotation struct {
	run      *run.Run
	keys     *config.Stage        // makes the passwords
	readers  []*config.Stage      // have them as inputs
	inputs   map[string]cty.Value // of the readers
	document state.Document[cluster.Rotation]
	progress cluster.Rotation
}

// Run rotates the passwords of the database's users.
func Run(ctx context.Context, c *cluster.Cluster) error {
	ctx, r, err := run.BeginChecked(ctx, c, "rotate", applied.CleanUp)
	if err != nil {
		return err
	}
	return r.End((&rotation{run: r, inputs: map[string]cty.Value{}}).do(ctx))
}

func (x *rotation) do(ctx context.Context) error {
	err := x.find()
	if err == nil && x.progress.Next == nil {
		err = x.begin(ctx)
	}
	if err == nil && !x.progress.Replaced {
		err = x.replace(ctx)
	}
	for _, user := range slices.Sorted(maps.Keys(x.progress.Next)) {
		if err == nil {
			err = x.accept(ctx, user, x.progress.Next[user])
		}
	}
	if err != nil {
		return err
	}
	return x.activate(ctx)
}

// find finds the stages, and reads how far the rotation has come.
func (x *rotation) find() (err error) {
	if _, err = x.run.LastKnownStates(); err != nil {
		return err
	}
	for _, s := range x.run.Created() {
		for _, e := range s.Edges() {
			if !slices.ContainsFunc(e.Values, func(value string) bool {
				return strings.HasPrefix(value, cluster.SecretsLayer+".database_")
			}) {
				continue
			}
			inputs, err := x.run.Inputs(s)
			if err != nil {
				return err
			}
			maps.Copy(x.inputs, inputs)
			x.keys, x.readers = e.From, append(x.readers, s)
		}
	}
	if x.text("vault_database_host") == "" || tfeval.Map(x.inputs["bootstrap_database"]) == nil {
		return cluster.Usagef("%s has no database whose passwords castle can rotate; that needs the stages "+
			"secrets/keys, secrets/vault-database, and engine/bootstrap-secrets with bootstrap_database, "+
			"all of them created", x.run.Cluster.Name())
	}
	x.document = cluster.RotationOf(x.run.Cluster.Dir.Stage(x.keys.Name))
	x.progress, err = x.document.Value()
	return err
}

// begin refuses a rotation that could not come to its end, and records it.
func (x *rotation) begin(ctx context.Context) error {
	var reasons []string
	for _, s := range append([]*config.Stage{x.keys}, x.readers...) {
		last, err := x.run.Cluster.Dir.Stage(s.Name).Fingerprint().Read()
		others := []string{"it is unfinished"}
		if err == nil && last != nil {
			others, err = applied.Changed(x.run, s, last)
		}
		if err != nil {
			return err
		}
		if len(others) > 0 {
			reasons = append(reasons, fmt.Sprintf("%s has other changes: %s; apply them first: %s", s.Name,
				strings.Join(others, ", "), x.run.Cluster.Command("create")))
		}
	}
	next, logins := map[string]string{}, x.output(cluster.LoginsOutput)
	for _, user := range slices.Sorted(maps.Keys(logins)) {
		next[user] = other(user, logins[user])
		if err := x.works(ctx, user, next[user], ""); err != nil && !errors.As(err, new(*unansweredError)) {
			reasons = append(reasons, fmt.Sprintf("login role %s: %v", next[user], err))
		}
	}
	if len(reasons) > 0 {
		return &run.RefusedError{Refused: "the rotation was not begun; nothing was changed", Reasons: reasons}
	}
	x.progress.Next = next
	return x.document.Write(x.progress)
}

// replace makes new passwords for the roles that are not in use.
func (x *rotation) replace(ctx context.Context) error {
	var addresses []string
	for _, role := range x.progress.Next {
		addresses = append(addresses, fmt.Sprintf("random_password.database[%q]", role))
	}
	o := create.Options{Issuers: map[string][]string{x.keys.Name: addresses}}
	if err := create.Stages(ctx, x.run, []*config.Stage{x.keys}, o); err != nil {
		return err
	}
	x.progress.Replaced = true
	return x.document.Write(x.progress)
}

// accept gives a login role its new password, and waits until it works.
func (x *rotation) accept(ctx context.Context, user, role string) error {
	ctx, stop := context.WithTimeoutCause(ctx, acceptTime, run.TimeoutError{After: acceptTime})
	defer stop()
	since, seen := time.Now(), "a login with the new password works"
	say := func(text string) { x.run.Notice("login role " + role + ": " + text) }
	err := waiting.Until(ctx, say, func(ctx context.Context) error {
		err := x.works(ctx, user, role, x.output(passwords)[role])
		switch {
		case !errors.As(err, new(*unansweredError)):
			since = time.Now()
		case time.Since(since) > answerTime:
			seen, err = "PGO has the new password, and castle cannot try it: "+err.Error(), nil
		}
		return err
	})
	if err != nil {
		return fmt.Errorf("login role %s: %w", role, err)
	}
	say(seen)
	return nil
}

// unansweredError reports a database that does not answer.
type unansweredError struct{ error }

// works returns an error unless a login role has the password, which it gets if it is not empty, and can take
// over from the other one.
func (x *rotation) works(ctx context.Context, user, role, password string) error {
	named := func(part string) string {
		return tfeval.Text(tfeval.Attribute(x.inputs["bootstrap_database"], part))
	}
	namespace, name := named("namespace"), named("name")+"-pguser-"+role
	adopted, err := kube.SetDatabasePassword(ctx, x.run.Outputs.Target(), namespace, name, password)
	if err == nil && !adopted {
		err = fmt.Errorf("PGO has not written the verifier into Secret %s/%s yet; it does if the "+
			"PostgresCluster lists the user %s", namespace, name, role)
	}
	if err != nil {
		return err
	}
	acts, answered, err := probe.PostgreSQL(ctx, fmt.Sprintf(
		"host=%s port=%s dbname=%s sslmode=%s user=%s password=%s", x.text("vault_database_host"),
		x.text("vault_database_port"), x.text("vault_database_name"), x.text("vault_database_sslmode"), role,
		x.output(passwords)[role]))
	switch {
	case err != nil && !answered:
		return &unansweredError{errors.New(foreign.OneLine(err.Error()))}
	case err != nil:
		return fmt.Errorf("a login fails: %s", foreign.OneLine(err.Error()))
	case acts != user:
		return fmt.Errorf("it acts as %s; run in the database, as a superuser: GRANT %q TO %q; "+
			"ALTER ROLE %q SET role = %q", foreign.OneLine(acts), user, role, role, user)
	}
	return nil
}

// activate has the clients use the roles with the new passwords, and Vault prove that it does.
func (x *rotation) activate(ctx context.Context) error {
	x.progress.Active = x.progress.Next
	if err := errors.Join(x.document.Write(x.progress), x.run.ReadOutputs(x.keys)); err != nil {
		return err
	}
	nothing := map[string][]string{} // that is replaced
	if err := create.Stages(ctx, x.run, x.readers, create.Options{Issuers: nothing}); err != nil {
		return err
	}
	if err := x.prove(ctx); err != nil {
		return err
	}
	for _, user := range slices.Sorted(maps.Keys(x.progress.Active)) {
		role := x.progress.Active[user]
		x.run.Notice(fmt.Sprintf("clients of %s log in as %s now; %s keeps its password until the next "+
			"rotation", user, role, other(user, role)))
	}
	return x.document.Write(cluster.Rotation{Active: x.progress.Active})
}

// prove has Vault create a user, where it has a role for that.
func (x *rotation) prove(ctx context.Context) error {
	roles := slices.Sorted(maps.Keys(tfeval.Map(x.inputs["vault_database_roles"])))
	for _, s := range x.readers {
		for _, p := range s.Preflights {
			values, diags := p.Values(s, x.run.Outputs.Scope(s))
			if p.Type.Name != vault.PreflightMount || diags.HasErrors() || len(roles) == 0 {
				continue
			}
			creds, environ := values.String("path")+"/creds/"+roles[0], x.run.Cluster.Options.Environ
			if err := vault.ServerOf(values).ProveDatabase(ctx, environ, creds); err != nil {
				return err
			}
			x.run.Notice("Vault creates users with the new password: " + creds)
		}
	}
	return nil
}

// other is the login role of a user that is not this one.
func other(user, role string) string {
	if role == user {
		return user + cluster.AlternateLogin
	}
	return user
}

func (x *rotation) text(input string) string { return tfeval.Printed(x.inputs[input]) }

func (x *rotation) output(name string) map[string]string {
	all := map[string]string{}
	for key, v := range tfeval.Map(x.run.Outputs.Scope(x.keys).Self[name]) {
		all[key] = tfeval.Text(v)
	}
	return all
}
