package infisical

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"net/http"
	"net/url"
	"slices"
)

// Folder is where secrets live.
type Folder struct{ Host, Project, Environment, Path string }

// Identified reports whether an environment holds a machine identity.
func Identified(environ []string) bool {
	c := newClient("", environ)
	return c.id != "" && c.secret != ""
}

// Read reads the secrets of a folder, by name. Who calls it must not let go of
// their values. The error says what it is about, and the way out if there is one.
func (f Folder) Read(ctx context.Context, environ []string) (map[string]string, error) {
	c := newClient(f.Host, environ)
	where := folder{f.Project, f.Environment, f.Path}
	explain := func(err error) error {
		return explained(fmt.Sprintf("folder %s, environment %s, project %s of Infisical at %s", f.Path, f.Environment, f.Project, c.host), err)
	}
	if err := c.login(ctx); err != nil {
		return nil, explain(err)
	}
	query := where.query()
	query.Set("viewSecretValue", "true")
	query.Set("include_imports", "true")
	var answer struct {
		Secrets *[]entry `json:"secrets"`
		Imports []struct {
			Secrets []entry `json:"secrets"`
		} `json:"imports"`
	}
	if err := c.call(ctx, http.MethodGet, "/api/v3/secrets/raw?"+query.Encode(), nil, &answer); err != nil {
		return nil, explain(err)
	}
	if answer.Secrets == nil {
		return nil, explain(errors.New("the answer holds no secrets: that is no Infisical"))
	}
	all := map[string]string{}
	for _, imported := range slices.Backward(answer.Imports) {
		for _, s := range imported.Secrets {
			all[s.Key] = s.Value
		}
	}
	for _, s := range *answer.Secrets { // the folder's own before imported ones
		all[s.Key] = s.Value
	}
	return all, nil
}

type entry struct {
	Key   string `json:"secretKey"`
	Value string `json:"secretValue"`
}

// Add puts secrets into a folder: those that are missing or empty. It returns the
// names of those that are there, which it leaves as they are.
func (f Folder) Add(ctx context.Context, environ []string, secrets map[string]string) (kept []string, err error) {
	there, err := f.Read(ctx, environ)
	if err != nil {
		return nil, err
	}
	c := newClient(f.Host, environ)
	if err := c.login(ctx); err != nil {
		return nil, err
	}
	for _, name := range slices.Sorted(maps.Keys(secrets)) {
		// A new secret is refused where there is one, whatever has happened since.
		method := http.MethodPost
		if value, exists := there[name]; value != "" {
			kept = append(kept, name)
			continue
		} else if exists {
			method = http.MethodPatch
		}
		body := map[string]any{"workspaceId": f.Project, "environment": f.Environment, "secretPath": f.Path, "type": "shared", "secretValue": secrets[name]}
		if err := c.call(ctx, method, "/api/v3/secrets/raw/"+url.PathEscape(name), body, &struct{}{}); err != nil {
			return kept, explained(fmt.Sprintf("secret %s in folder %s, environment %s, project %s of Infisical at %s", name, f.Path, f.Environment, f.Project, c.host), err)
		}
	}
	return kept, nil
}
