package vault

import (
	"context"
	"encoding/json"
	"fmt"
	"maps"
	"net/http"
)

// version is a secret as it is now.
type version struct {
	Data     map[string]any `json:"data"`
	Metadata struct {
		Version int `json:"version"`
	} `json:"metadata"`
}

// Read reads the secrets by name; none if the secret is not there yet. Who calls
// it must not let go of their values.
func (p Place) Read(ctx context.Context, environ []string) (map[string]string, error) {
	c, err := p.open(ctx, environ)
	if err != nil {
		return nil, err
	}
	defer c.leave(ctx)
	v, err := p.read(ctx, c)
	if err != nil {
		return nil, err
	}
	all := map[string]string{}
	for name, value := range v.Data {
		if text, is := value.(string); is {
			all[name] = text
		}
	}
	return all, nil
}

// read finds nothing where a secret was never written, or its last version is deleted.
func (p Place) read(ctx context.Context, c *client) (version, error) {
	if err := p.mayDo(ctx, c, "read"); err != nil {
		return version{}, err
	}
	var answer struct {
		Data version `json:"data"`
	}
	path := p.Mount + "/data/" + p.Path
	err := c.call(ctx, http.MethodGet, path, nil, &answer)
	if status(err) == http.StatusNotFound {
		return p.deleted(ctx, c)
	}
	if err != nil {
		return version{}, p.trouble(fmt.Sprintf("%s cannot be read: %v", path, err), "look at the Vault")
	}
	return answer.Data, nil
}

// deleted finds the number of the last version, deleted or not, against which a
// write is held.
func (p Place) deleted(ctx context.Context, c *client) (v version, err error) {
	var answer struct {
		Data struct {
			CurrentVersion json.Number `json:"current_version"`
		} `json:"data"`
	}
	path := p.Mount + "/metadata/" + p.Path
	err = c.call(ctx, http.MethodGet, path, nil, &answer)
	if status(err) == http.StatusNotFound || status(err) == http.StatusForbidden {
		return v, nil // if there are versions after all, the write will say so
	}
	if err != nil {
		return v, p.trouble(fmt.Sprintf("%s cannot be read: %v", path, err), "look at the Vault")
	}
	number, err := answer.Data.CurrentVersion.Int64()
	v.Metadata.Version = int(number)
	return v, err
}

// Add writes the names that are missing or empty, and returns those that it did
// not write because they are there. Whoever writes at the same time loses nothing.
func (p Place) Add(ctx context.Context, environ []string, secrets map[string]string) (kept []string, err error) {
	c, err := p.open(ctx, environ)
	if err != nil {
		return nil, err
	}
	defer c.leave(ctx)
	v, err := p.read(ctx, c)
	if err != nil {
		return nil, err
	}
	all := map[string]any{}
	maps.Copy(all, v.Data)
	for name, value := range secrets {
		if there := all[name]; there != nil && there != "" {
			kept = append(kept, name)
			continue
		}
		all[name] = value
	}
	if len(kept) == len(secrets) {
		return kept, nil
	}
	wanted := "create"
	if v.Metadata.Version > 0 {
		wanted = "update"
	}
	if err := p.mayDo(ctx, c, wanted); err != nil {
		return nil, err
	}
	path := p.Mount + "/data/" + p.Path
	body := map[string]any{"data": all, "options": map[string]int{"cas": v.Metadata.Version}}
	if err := c.call(ctx, http.MethodPost, path, body, nil); err != nil {
		return nil, p.trouble(fmt.Sprintf("%s cannot be written: %v", path, err), "do it again: somebody else may have written at the same time")
	}
	return kept, nil
}

// mayDo asks whether the token may do something with the secret.
func (p Place) mayDo(ctx context.Context, c *client, want string) error {
	return p.may(ctx, c, map[string][]string{p.Mount + "/data/" + p.Path: {want}}, "give it castle's policy: "+makeToken)
}
