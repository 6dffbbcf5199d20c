// Package infisical asks Infisical whether a secret exists.
//
// The Terraform provider could be asked by an import, but it has one answer for
// a secret that is not there and for a project, an environment or a folder that
// are not: whoever mistyped one of them would hear of it when the machines stand
// and the kubeconfig finds no place. Here only a secret that is missing from a
// folder that is there counts as absent; all else is an error with its reason.
package infisical

import (
	"context"
	"errors"
	"fmt"
	"net/url"
	"strings"

	"github.com/zclconf/go-cty/cty"

	"github.com/ephemeral-castle/castle/internal/gate"
)

// ExistsTypes lists what an adoption may ask Infisical.
func ExistsTypes() []gate.ExistsType {
	return []gate.ExistsType{{
		Name:    "infisical_secret",
		Summary: "A shared secret is in a folder of Infisical; the folder has to be there",
		Attributes: map[string]gate.Attribute{
			"host":        {Type: cty.String, Required: true, Valid: validHost, Help: "Infisical's address, such as \"https://eu.infisical.com\"."},
			"project_id":  {Type: cty.String, Required: true, Help: "The project's id."},
			"environment": {Type: cty.String, Required: true, Help: "The environment's slug."},
			"folder":      {Type: cty.String, Required: true, Help: "The folder's path, \"/\" for the root."},
			"name":        {Type: cty.String, Required: true, Help: "The secret's name."},
		},
		New: func(name string, target gate.Target, values gate.Values) (gate.Exists, error) {
			q := question{
				client: newClient(values.String("host"), target.Environ),
				folder: folder{values.String("project_id"), values.String("environment"), values.String("folder")},
				name:   values.String("name"),
			}
			return gate.Exists{
				Name: name, Object: q.object(),
				Ask: func(ctx context.Context, _ []gate.Known) (bool, error) { return q.ask(ctx) },
			}, nil
		},
	}}
}

func validHost(v cty.Value) error {
	u, err := url.Parse(v.AsString())
	if err != nil || u.Host == "" || u.Scheme != "https" && u.Scheme != "http" {
		return fmt.Errorf("%q is no address such as \"https://eu.infisical.com\"", v.AsString())
	}
	return nil
}

// folder is where secrets live.
type folder struct{ project, environment, path string }

func (f folder) query() url.Values {
	return url.Values{"workspaceId": {f.project}, "environment": {f.environment}, "secretPath": {f.path}, "viewSecretValue": {"false"}}
}

type question struct {
	client *client
	folder folder
	name   string
}

func (q question) object() gate.Object {
	return gate.Object{
		Kind: "Infisical secret", Way: "delete it in Infisical",
		ID: fmt.Sprintf("%s/%s in environment %s", strings.TrimSuffix(q.folder.path, "/"), q.name, q.folder.environment),
	}
}

// ask looks for the secret first, and for its folder only if it is not there.
func (q question) ask(ctx context.Context) (bool, error) {
	if err := q.client.login(ctx); err != nil {
		return false, q.explain(err)
	}
	query := q.folder.query()
	query.Set("type", "shared")
	err := q.client.get(ctx, "/"+url.PathEscape(q.name)+"?"+query.Encode())
	if !missing(err) {
		return err == nil, q.explain(err)
	}
	err = q.client.get(ctx, "?"+q.folder.query().Encode())
	return false, q.explain(err)
}

// explain says what an error is about and what can be done.
func (q question) explain(err error) error {
	if err == nil {
		return nil
	}
	return explained(fmt.Sprintf("secret %s in folder %s, environment %s, project %s of Infisical at %s",
		q.name, q.folder.path, q.folder.environment, q.folder.project, q.client.host), err)
}

// explained says what an error is about and what can be done.
func explained(what string, err error) error {
	var f *failure
	if !errors.As(err, &f) {
		return fmt.Errorf("%s: %w", what, err)
	}
	way := ""
	switch {
	case f.status == 401, f.status == 403 && f.login:
		way = "Infisical refuses the machine identity: look at INFISICAL_UNIVERSAL_AUTH_CLIENT_ID and _CLIENT_SECRET, and at the host, " +
			"since the EU and US clouds do not know each other's identities"
	case f.status == 403:
		way = "give the machine identity a role in the project that may read and write secrets there"
	case f.status == 404 && f.login:
		way = "that is no Infisical: look at the host"
	case f.status == 404, f.status == 400:
		way = "correct what is mistyped, or make the folder in Infisical: a secret is put only into one that is there"
	}
	err = fmt.Errorf("%s: %w", what, err)
	if way != "" {
		err = fmt.Errorf("%w; %s", err, way)
	}
	if f.status < 500 && f.status != 429 {
		return gate.Permanent(err)
	}
	return err
}

func missing(err error) bool {
	var f *failure
	return errors.As(err, &f) && f.status == 404 && !f.login
}
