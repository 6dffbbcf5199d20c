package vault

import (
	"context"
	"fmt"
	"net/http"

	"github.com/ephemeral-castle/castle/internal/httpjson"
	"github.com/ephemeral-castle/castle/internal/revision"
)

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
