// Package infisical reads and writes secrets in Infisical, and checks for an adoption whether one exists. The
// Terraform provider's import has one answer for a missing secret, project, environment and folder, so a
// typing error would show only when the machines run. Here a secret counts as absent only if its folder
// exists; everything else is an *Error with its reason.
package infisical

import (
	"cmp"
	"context"
	"encoding/base64"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"net/http"
	"net/url"
	"slices"
	"strings"
	"time"

	"github.com/zclconf/go-cty/cty"

	"github.com/ephemeral-castle/castle/internal/gate"
	"github.com/ephemeral-castle/castle/internal/httpjson"
	"github.com/ephemeral-castle/castle/internal/process"
	"github.com/ephemeral-castle/castle/internal/revision"
)

// ExistsTypes lists the lookups in Infisical for an adoption.
func ExistsTypes() []gate.ExistsType {
	return []gate.ExistsType{{
		Name:    "infisical_secret",
		Summary: "A shared secret is in a folder of Infisical; the folder has to exist",
		Attributes: map[string]gate.Attribute{
			"host": {Type: cty.String, Required: true, Valid: validHost,
				Help: "Infisical's address, such as \"https://eu.infisical.com\"."},
			"project_id":  {Type: cty.String, Required: true, Help: "The project's id."},
			"environment": {Type: cty.String, Required: true, Help: "The environment's slug."},
			"folder":      {Type: cty.String, Required: true, Help: "The folder's path, \"/\" for the root."},
			"name":        {Type: cty.String, Required: true, Help: "The secret's name."},
		},
		New: func(name string, target gate.Target, v gate.Values) (gate.Exists, error) {
			s := secret{
				client: newClient(v.String("host"), target.Environ), name: v.String("name"),
				folder: Folder{Host: v.String("host"), Project: v.String("project_id"),
					Environment: v.String("environment"), Path: v.String("folder")},
			}
			return gate.Exists{
				Name: name,
				Object: gate.Object{Kind: secretKind, Fix: "delete it in Infisical",
					ID: s.folder.name(s.name)},
				Lookup: s.exists,
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

// attempt bounds one request.
const attempt = 15 * time.Second

const (
	loginPath  = "/api/v1/auth/universal-auth/login"
	rawSecrets = "/api/v3/secrets/raw"
)

// errOther is a response that Infisical does not send.
var errOther = errors.New("the response is not Infisical's")

// client sends requests as the Terraform provider does: with the machine identity of the environment.
type client struct {
	api        httpjson.Client
	id, secret string
}

func newClient(host string, environ []string) *client {
	return &client{
		api: httpjson.Client{Base: strings.TrimSuffix(host, "/"), Header: http.Header{},
			HTTP: http.Client{Timeout: attempt}},
		id:     process.Getenv(environ, "INFISICAL_UNIVERSAL_AUTH_CLIENT_ID"),
		secret: process.Getenv(environ, "INFISICAL_UNIVERSAL_AUTH_CLIENT_SECRET"),
	}
}

// loginError is a failed login: its statuses mean something else than those of a read.
type loginError struct{ error }

func (e loginError) Unwrap() error { return e.error }

// login gets a token, once.
func (c *client) login(ctx context.Context) error {
	switch {
	case c.api.Header.Get("Authorization") != "":
		return nil
	case c.id == "" || c.secret == "":
		return gate.Permanent(errors.New("no machine identity: " +
			"set INFISICAL_UNIVERSAL_AUTH_CLIENT_ID and INFISICAL_UNIVERSAL_AUTH_CLIENT_SECRET"))
	}
	var answer struct {
		AccessToken string `json:"accessToken"`
	}
	body := map[string]string{"clientId": c.id, "clientSecret": c.secret}
	err := c.api.Do(ctx, http.MethodPost, loginPath, body, &answer)
	if err == nil && answer.AccessToken == "" {
		err = errOther
	}
	if err != nil {
		return loginError{fmt.Errorf("log in: %w", err)}
	}
	c.api.Header.Set("Authorization", "Bearer "+answer.AccessToken)
	return nil
}

// Cloud is the host that the Terraform provider uses if none is configured.
const Cloud = "https://app.infisical.com"

// Redirects reports a host that redirects the Terraform provider, which would follow. The provider sends its
// identity in the body of a login, the token that it receives in the header of every request, and a secret's
// value in the body of a write. After a 307 or 308 it repeats the body at the new address, and the header at
// another port or subdomain. castle sends the same requests without credentials: servers redirect by method
// and path, and a login may lead elsewhere although a read does not.
func Redirects(ctx context.Context, _ []string, host, _ string) []gate.Foreign {
	ctx, stop := context.WithTimeout(ctx, attempt)
	defer stop()
	request, to := newClient(host, nil).api.Redirected(ctx,
		"POST "+loginPath, "POST /api/v1/auth/oidc-auth/login", "POST /api/v1/auth/kubernetes-auth/login",
		"POST /api/v1/auth/aws-auth/login", "GET /api/v2/service-token",
		"GET "+rawSecrets, "POST "+rawSecrets+"/castle")
	if to == "" {
		return nil
	}
	return []gate.Foreign{{
		What: "Infisical at " + host,
		Why: fmt.Sprintf("it redirects to %s (%s), where the provider would send the machine identity and "+
			"secrets", to, request),
		Fixes: []string{"if that is your Infisical, make it the host (infisical_host)",
			"if not, correct the host, or end the redirect"},
	}}
}

// Error is a failed request and its fix.
type Error struct {
	Object string // secret TOKEN in folder /blue, environment prod, …
	Err    error
	Fix    string // empty if castle knows none
}

func (e *Error) Error() string {
	return strings.TrimSuffix(fmt.Sprintf("%s: %v; %s", e.Object, e.Err, e.Fix), "; ")
}

func (e *Error) Unwrap() error { return e.Err }

// explain adds object and fix. The error is permanent unless the server is unreachable, busy or broken.
func (c *client) explain(object string, err error) error {
	if err == nil {
		return nil
	}
	e := &Error{Object: fmt.Sprintf("%s of Infisical at %s", object, c.api.Base), Err: err}
	status := httpjson.Status(err)
	login := errors.As(err, &loginError{})
	answer, answered := errors.AsType[*httpjson.Error](err)
	switch {
	case answered && answer.Redirect != "":
		e.Fix = "it redirects to " + answer.Redirect + ", where castle does not send the machine identity; " +
			"if that is your Infisical, make it the host"
	case status == 401, status == 403 && login:
		e.Fix = "Infisical refuses the machine identity: check INFISICAL_UNIVERSAL_AUTH_CLIENT_ID, " +
			"_CLIENT_SECRET and the host, since the EU and US clouds do not share identities"
	case status == 403:
		e.Fix = "give the machine identity a role in the project that may read and write secrets there"
	case errors.Is(err, errOther), status == 404 && login, status != 0 && status < 300:
		e.Fix = "this is not Infisical: check the host"
	case status == 404, status == 400:
		e.Fix = "correct the name, or create the folder in Infisical: castle creates no folders"
	}
	if errors.Is(err, errOther) || status != 0 && status < 500 && status != 429 {
		return gate.Permanent(e)
	}
	return e
}

// Folder is a folder of secrets in a project's environment.
type Folder struct{ Host, Project, Environment, Path string }

func (f Folder) String() string {
	return fmt.Sprintf("folder %s, environment %s, project %s", f.Path, f.Environment, f.Project)
}

const (
	secretKind = "Infisical secret"
	provider   = "registry.terraform.io/infisical/infisical"
)

// name is a secret of the folder as messages name it.
func (f Folder) name(secret string) string {
	return fmt.Sprintf("%s/%s in environment %s", strings.TrimSuffix(f.Path, "/"), secret, f.Environment)
}

func (f Folder) query(values bool) url.Values {
	return url.Values{
		"workspaceId": {f.Project}, "environment": {f.Environment}, "secretPath": {f.Path},
		"viewSecretValue": {fmt.Sprint(values)},
	}
}

// Identified reports whether an environment holds a machine identity.
func Identified(environ []string) bool {
	c := newClient("", environ)
	return c.id != "" && c.secret != ""
}

// Identity returns when the client secret of the environment's machine identity was made and when it
// expires; zero: never. The token of a login names the secret. Infisical shows it to an identity that may
// read identities of its organization.
func (f Folder) Identity(ctx context.Context, environ []string) (issued, expires time.Time, err error) {
	c := newClient(f.Host, environ)
	const object = "the client secret of the machine identity"
	if err := c.login(ctx); err != nil {
		return issued, expires, c.explain(object, err)
	}
	var claims struct{ IdentityID, ClientSecretID string }
	if parts := strings.Split(c.api.Header.Get("Authorization"), "."); len(parts) == 3 {
		text, _ := base64.RawURLEncoding.DecodeString(parts[1]) //nolint:errcheck // then it names none
		_ = json.Unmarshal(text, &claims)                       //nolint:errcheck // likewise
	}
	if claims.ClientSecretID == "" {
		return issued, expires, errors.New("the token of a login does not name its client secret")
	}
	var answer struct {
		ClientSecretData struct {
			CreatedAt       time.Time
			ClientSecretTTL int64
		}
	}
	path := fmt.Sprintf("/api/v1/auth/universal-auth/identities/%s/client-secrets/%s",
		url.PathEscape(claims.IdentityID), url.PathEscape(claims.ClientSecretID))
	err = c.api.Do(ctx, http.MethodGet, path, nil, &answer)
	data := answer.ClientSecretData
	switch {
	case httpjson.Status(err) == http.StatusForbidden:
		err = errors.New("the identity may not read identities of its organization; Infisical shows it")
	case err != nil, data.CreatedAt.IsZero():
		err = c.explain(object, cmp.Or(err, errOther))
	case data.ClientSecretTTL > 0:
		expires = data.CreatedAt.Add(time.Duration(data.ClientSecretTTL) * time.Second)
	}
	return data.CreatedAt, expires, err
}

// Read returns the folder's secrets by name. Errors are of type *Error. The caller must not print the values.
func (f Folder) Read(ctx context.Context, environ []string) (map[string]string, error) {
	c := newClient(f.Host, environ)
	listed, err := f.list(ctx, c, true)
	all := map[string]string{}
	for name, s := range listed {
		all[name] = s.Value
	}
	return all, c.explain(f.String(), err)
}

// entry is one secret of a list. Without values, Value is a placeholder.
type entry struct {
	Key     string `json:"secretKey"`
	Value   string `json:"secretValue"`
	ID      string `json:"id"`
	Version int    `json:"version"`
}

// list returns the folder's secrets by name, with those that it imports.
func (f Folder) list(ctx context.Context, c *client, values bool) (map[string]entry, error) {
	if err := c.login(ctx); err != nil {
		return nil, err
	}
	var answer struct {
		Secrets *[]entry `json:"secrets"`
		Imports []struct {
			Secrets []entry `json:"secrets"`
		} `json:"imports"`
	}
	query := f.query(values)
	query.Set("include_imports", "true")
	if err := c.api.Do(ctx, http.MethodGet, rawSecrets+"?"+query.Encode(), nil, &answer); err != nil {
		return nil, err
	}
	if answer.Secrets == nil {
		return nil, errOther
	}
	all := map[string]entry{}
	for _, imported := range slices.Backward(answer.Imports) {
		for _, s := range imported.Secrets {
			all[s.Key] = s
		}
	}
	for _, s := range *answer.Secrets { // the folder's own secrets override imported ones
		all[s.Key] = s
	}
	return all, nil
}

// Add writes the secrets that are missing or empty. It returns the names of those that exist, which it keeps.
func (f Folder) Add(ctx context.Context, environ []string, secrets map[string]string) (kept []string,
	err error) {
	c := newClient(f.Host, environ)
	existing, err := f.list(ctx, c, true)
	if err != nil {
		return nil, c.explain(f.String(), err)
	}
	for _, name := range slices.Sorted(maps.Keys(secrets)) {
		method := http.MethodPost // which Infisical refuses where a secret exists
		if old, exists := existing[name]; old.Value != "" {
			kept = append(kept, name)
			continue
		} else if exists {
			method = http.MethodPatch
		}
		body := map[string]any{
			"workspaceId": f.Project, "environment": f.Environment, "secretPath": f.Path, "type": "shared",
			"secretValue": secrets[name],
		}
		if err := c.api.Do(ctx, method, rawSecrets+"/"+url.PathEscape(name), body, nil); err != nil {
			return kept, c.explain(fmt.Sprintf("secret %s in %s", name, f), err)
		}
	}
	return kept, nil
}

// Revisions reads the revisions of the secrets that a stage writes or reads, without their values.
func Revisions() revision.System {
	const name = "infisical"
	read := func(ctx context.Context, s revision.Stage, _ []revision.Object) (
		all []revision.Object, err error) {
		listed := map[Folder]map[string]entry{}
		for _, r := range s.State.Resources {
			reads := r.Type == "infisical_secrets"
			if r.Provider != provider || !reads && r.Type != "infisical_secret" {
				continue
			}
			text := func(attribute string) string { t, _ := r.Attributes[attribute].(string); return t }
			f := Folder{
				Host: cmp.Or(s.Argument("infisical", "host"),
					process.Getenv(s.Target.Environ, "INFISICAL_HOST"), Cloud),
				Project: text("workspace_id"), Environment: text("env_slug"), Path: text("folder_path"),
			}
			if listed[f] == nil {
				c := newClient(f.Host, s.Target.Environ)
				if listed[f], err = f.list(ctx, c, false); err != nil {
					return nil, c.explain(f.String(), err)
				}
			}
			names := []string{text("name")}
			if reads {
				names = s.Secrets()
			}
			if len(names) == 0 {
				names = slices.Sorted(maps.Keys(listed[f]))
			}
			for _, secret := range names {
				o := revision.Object{System: name, Kind: secretKind, Name: f.name(secret), Address: r.Address}
				found, exists := listed[f][secret]
				if exists {
					o.Revision = fmt.Sprintf("%s/%d", found.ID, found.Version)
				}
				if exists || !reads { // a secret that is read may be optional
					all = append(all, o)
				}
			}
		}
		return all, nil
	}
	return revision.System{Name: name, Read: read}
}
