// Package infisical reads and writes secrets in Infisical, and checks for an adoption whether one exists.
//
// The Terraform provider's import has one answer for a missing secret, project, environment and folder, so a
// typing error would show only when the machines run. Here a secret counts as absent only if its folder
// exists; everything else is an *Error with its reason.
package infisical

import (
	"context"
	"fmt"
	"net/http"
	"net/url"
	"strings"

	"github.com/zclconf/go-cty/cty"

	"github.com/ephemeral-castle/castle/internal/gate"
	"github.com/ephemeral-castle/castle/internal/httpjson"
)

// ExistsTypes lists the lookups in Infisical for an adoption.
func ExistsTypes() []gate.ExistsType {
	return []gate.ExistsType{{
		Name:    "infisical_secret",
		Summary: "A shared secret is in a folder of Infisical; the folder has to exist",
		Attributes: map[string]gate.Attribute{
			"host": {
				Type: cty.String, Required: true, Valid: validHost,
				Help: "Infisical's address, such as \"https://eu.infisical.com\".",
			},
			"project_id":  {Type: cty.String, Required: true, Help: "The project's id."},
			"environment": {Type: cty.String, Required: true, Help: "The environment's slug."},
			"folder":      {Type: cty.String, Required: true, Help: "The folder's path, \"/\" for the root."},
			"name":        {Type: cty.String, Required: true, Help: "The secret's name."},
		},
		New: func(name string, target gate.Target, v gate.Values) (gate.Exists, error) {
			s := secret{
				client: newClient(v.String("host"), target.Environ), name: v.String("name"),
				folder: Folder{
					Host: v.String("host"), Project: v.String("project_id"),
					Environment: v.String("environment"), Path: v.String("folder"),
				},
			}
			return gate.Exists{
				Name: name, Object: s.object(),
				Lookup: func(ctx context.Context, _ []gate.Known) (bool, error) { return s.exists(ctx) },
			}, nil
		},
	}}
}

func validHost(v cty.Value) error {
	u, err := url.Parse(v.AsString())
	if err != nil || u.Host == "" || u.Scheme != "https" && u.Scheme != "http" {
		return fmt.Errorf("%q is not an address such as \"https://eu.infisical.com\"", v.AsString())
	}
	return nil
}

// secret is a secret whose existence is checked.
type secret struct {
	client *client
	folder Folder
	name   string
}

func (s secret) object() gate.Object {
	return gate.Object{
		Kind: "Infisical secret", Fix: "delete it in Infisical",
		ID: fmt.Sprintf("%s/%s in environment %s", strings.TrimSuffix(s.folder.Path, "/"), s.name,
			s.folder.Environment),
	}
}

// exists looks for the secret first, and for its folder only if the secret is missing.
func (s secret) exists(ctx context.Context) (bool, error) {
	found, err := s.get(ctx)
	return found, s.client.explain(fmt.Sprintf("secret %s in %s", s.name, s.folder), err)
}

func (s secret) get(ctx context.Context) (bool, error) {
	if err := s.client.login(ctx); err != nil {
		return false, err
	}
	query := s.folder.query(false)
	query.Set("type", "shared")
	path := rawSecrets + "/" + url.PathEscape(s.name) + "?" + query.Encode()
	var one struct {
		Secret *struct{} `json:"secret"`
	}
	err := s.client.api.Do(ctx, http.MethodGet, path, nil, &one)
	if httpjson.Status(err) != http.StatusNotFound {
		if err == nil && one.Secret == nil {
			err = errOther
		}
		return err == nil, err
	}
	var all struct {
		Secrets *[]struct{} `json:"secrets"`
	}
	err = s.client.api.Do(ctx, http.MethodGet, rawSecrets+"?"+s.folder.query(false).Encode(), nil, &all)
	if err == nil && all.Secrets == nil {
		err = errOther
	}
	return false, err
}
