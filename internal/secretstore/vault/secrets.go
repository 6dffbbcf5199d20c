package vault

import (
	"context"
	"fmt"
	"maps"
	"net/http"

	"github.com/ephemeral-castle/castle/internal/httpjson"
	"github.com/ephemeral-castle/castle/internal/revision"
)

// Place is where a cluster's secrets are: one secret of a KV engine, version 2, with a value for each name.
type Place struct {
	Server Server
	Mount  string // the engine's
	Path   string // the secret's, below the mount
}

// version is the newest version of a secret.
type version struct {
	Data     map[string]any `json:"data"`
	Metadata struct {
		Version int `json:"version"`
	} `json:"metadata"`
}

// Usable is nil if the place's secrets can be read with the environment's token. Errors are of type *Problem.
func (p Place) Usable(ctx context.Context, environ []string) error {
	all, err := p.Read(ctx, environ)
	if err == nil && len(all) == 0 {
		return p.Server.problem(fmt.Sprintf("there is nothing at %s below %s yet", p.Path, p.Mount),
			"write the cluster's secrets: castle secrets seed CLUSTER", "check vault_kv_path")
	}
	return err
}

// Read returns the secrets by name; none if they were never written. The caller must not print the values.
func (p Place) Read(ctx context.Context, environ []string) (map[string]string, error) {
	c, v, err := p.open(ctx, environ)
	if err != nil {
		return nil, err
	}
	defer c.close(ctx)
	all := map[string]string{}
	for name, value := range v.Data {
		if text, is := value.(string); is {
			all[name] = text
		}
	}
	return all, nil
}

// Add writes the names that are missing or empty, and returns those that exist, which it keeps. The write
// fails if somebody else has written since.
func (p Place) Add(ctx context.Context, environ []string, secrets map[string]string) (kept []string,
	err error) {
	c, v, err := p.open(ctx, environ)
	if err != nil {
		return nil, err
	}
	defer c.close(ctx)
	all := map[string]any{}
	maps.Copy(all, v.Data)
	for name, value := range secrets {
		if existing := all[name]; existing != nil && existing != "" {
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
	if err := p.may(ctx, c, wanted); err != nil {
		return nil, err
	}
	body := map[string]any{"data": all, "options": map[string]int{"cas": v.Metadata.Version}}
	if err := c.api.Do(ctx, http.MethodPost, p.data(), body, nil); err != nil {
		return nil, p.Server.failed(p.data()+" cannot be written", err,
			"try again: somebody else may have written at the same time")
	}
	return kept, nil
}

func (p Place) data() string { return p.Mount + "/data/" + p.Path }

// open logs in, checks the engine and reads the secret. The caller closes the client.
func (p Place) open(ctx context.Context, environ []string) (*client, version, error) {
	c, _, err := p.Server.logIn(ctx, environ)
	if err != nil {
		return nil, version{}, err
	}
	var v version
	if err = p.isVersion2(ctx, c); err == nil {
		v, err = p.read(ctx, c)
	}
	if err != nil {
		c.close(ctx)
	}
	return c, v, err
}

// isVersion2 refuses the KV engine's first version, which has no check-and-set and other paths.
func (p Place) isVersion2(ctx context.Context, c *client) error {
	m, err := get[struct {
		Type    string            `json:"type"`
		Options map[string]string `json:"options"`
	}](ctx, c, "sys/internal/ui/mounts/"+p.Mount)
	const checkMount = "check vault_kv_mount"
	switch {
	case httpjson.Status(err) == http.StatusForbidden:
		return p.Server.problem(fmt.Sprintf(
			"nothing is mounted at %s, or the token has no policy for anything below it", p.Mount),
			checkMount, "give the token castle's policy, written for this mount: "+makeToken)
	case err != nil:
		return p.Server.failed(fmt.Sprintf("the mount %s cannot be read", p.Mount), err, checkMount)
	case m.Type != "kv":
		return p.Server.problem(fmt.Sprintf("%s is not a KV engine, but %s", p.Mount, m.Type), checkMount)
	case m.Options["version"] != "2":
		return p.Server.problem(fmt.Sprintf("the KV engine at %s is of version 1", p.Mount),
			"make it one of version 2: vault kv enable-versioning "+p.Mount, "set vault_kv_mount to another")
	}
	return nil
}

// read returns no data where a secret was never written, or its last version is deleted.
func (p Place) read(ctx context.Context, c *client) (version, error) {
	if err := p.may(ctx, c, "read"); err != nil {
		return version{}, err
	}
	v, err := get[version](ctx, c, p.data())
	if httpjson.NotFound(err) {
		return p.deleted(ctx, c)
	} else if err != nil {
		err = p.Server.failed(p.data()+" cannot be read", err, checkVault)
	}
	return v, err
}

// deleted returns the number of the last version, deleted or not, for a write's check-and-set.
func (p Place) deleted(ctx context.Context, c *client) (v version, _ error) {
	path := p.Mount + "/metadata/" + p.Path
	last, err := get[struct {
		Version int `json:"current_version"`
	}](ctx, c, path)
	if httpjson.NotFound(err) || httpjson.Status(err) == http.StatusForbidden {
		return v, nil // if there are versions after all, the write fails
	} else if err != nil {
		return v, p.Server.failed(path+" cannot be read", err, checkVault)
	}
	v.Metadata.Version = last.Version
	return v, nil
}

func (p Place) may(ctx context.Context, c *client, want string) error {
	return p.Server.may(ctx, c, map[string][]string{p.data(): {want}}, "give it castle's policy: "+makeToken)
}

// Revisions reads the revision of the secret that a stage reads, without its values. The stage's preflight
// names the Vault and the login.
func Revisions() revision.System {
	const name = "vault"
	read := func(ctx context.Context, s revision.Stage, _ []revision.Object) (
		all []revision.Object, err error) {
		values, is := s.Preflights[Preflight]
		if !is {
			return nil, nil
		}
		p := PlaceOf(values)
		for _, r := range s.State.Resources {
			if r.Type != "vault_kv_secret_v2" || r.Mode == "managed" ||
				r.Attributes["mount"] != p.Mount || r.Attributes["name"] != p.Path {
				continue
			}
			o := revision.Object{
				System: name, Kind: "Vault secret", Name: p.Path + " below " + p.Mount, Address: r.Address,
			}
			if o.Revision, err = p.revision(ctx, s.Target.Environ); err != nil {
				return nil, err
			}
			all = append(all, o)
		}
		return all, nil
	}
	return revision.System{Name: name, Read: read}
}

// revision changes with each write of the secret and its deletion; empty if it does not exist.
func (p Place) revision(ctx context.Context, environ []string) (string, error) {
	c, _, err := p.Server.logIn(ctx, environ)
	if err != nil {
		return "", err
	}
	defer c.close(ctx)
	path := p.Mount + "/metadata/" + p.Path
	found, err := get[struct {
		Current  int `json:"current_version"`
		Versions map[string]struct {
			Created string `json:"created_time"`
			Deleted string `json:"deletion_time"`
		} `json:"versions"`
	}](ctx, c, path)
	switch {
	case httpjson.NotFound(err):
		return "", nil
	case httpjson.Status(err) == http.StatusForbidden:
		return "", p.Server.problem("the token may not read "+path, "give it castle's policy: "+makeToken)
	case err != nil:
		return "", p.Server.failed(path+" cannot be read", err, checkVault)
	}
	newest := found.Versions[fmt.Sprint(found.Current)]
	return fmt.Sprintf("%d/%s/%s", found.Current, newest.Created, newest.Deleted), nil
}
