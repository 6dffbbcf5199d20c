// Package vault asks a Vault for a cluster's secrets, and first of all whether
// it can be asked.
//
// How it thinks: whoever asks has a token that may do a few things and no more,
// so each question is one that such a token may ask. What is wrong is said as a
// Trouble: what, why and the ways out, one for each reason, since "permission
// denied" is Vault's word for half of them.
package vault

import (
	"context"
	"fmt"
	"net/http"
	"strings"
)

// Place is where a cluster's secrets are: one secret of a KV engine, version 2,
// with a value for each name.
type Place struct {
	Server
	Mount string // the engine's
	Path  string // the secret's, below the mount
}

// Trouble is why a Vault cannot be used, and the ways out.
type Trouble struct {
	What string
	Why  string
	Ways []string
}

func (t *Trouble) Error() string {
	return fmt.Sprintf("%s: %s; %s", t.What, t.Why, strings.Join(t.Ways, "; "))
}

// Usable is nil if the place's secrets can be read with what the environment
// holds, and by nobody who may do everything. What is wrong is a *Trouble.
func (p Place) Usable(ctx context.Context, environ []string) error {
	c, err := p.open(ctx, environ)
	if err != nil {
		return err
	}
	defer c.leave(ctx)
	v, err := p.read(ctx, c)
	if err == nil && len(v.Data) == 0 {
		err = p.trouble(fmt.Sprintf("there is nothing at %s below %s yet", p.Path, p.Mount), "write the cluster's secrets: castle secrets seed CLUSTER",
			"look at vault_kv_path")
	}
	return err
}

// open logs in and finds the engine. Who calls it has the client leave.
func (p Place) open(ctx context.Context, environ []string) (*client, error) {
	c, _, err := p.logIn(ctx, environ)
	if err != nil {
		return nil, err
	}
	if err := p.versioned(ctx, c); err != nil {
		c.leave(ctx)
		return nil, err
	}
	return c, nil
}

// versioned holds the engine to its second version: the first one has no versions
// to hold a write against, and other paths.
func (p Place) versioned(ctx context.Context, c *client) error {
	var mount struct {
		Data struct {
			Type    string            `json:"type"`
			Options map[string]string `json:"options"`
		} `json:"data"`
	}
	err := c.call(ctx, http.MethodGet, "sys/internal/ui/mounts/"+p.Mount, nil, &mount)
	switch m := mount.Data; {
	case status(err) == http.StatusForbidden:
		return p.trouble(fmt.Sprintf("nothing is mounted at %s, or the token has no policy for anything below it", p.Mount),
			"look at vault_kv_mount", "give the token castle's policy, written for this mount: "+makeToken)
	case err != nil:
		return p.trouble(fmt.Sprintf("it does not say what is mounted at %s: %v", p.Mount, err), "look at vault_kv_mount")
	case m.Type != "kv":
		return p.trouble(fmt.Sprintf("%s is no KV engine, but %s", p.Mount, m.Type), "look at vault_kv_mount")
	case m.Options["version"] != "2":
		return p.trouble(fmt.Sprintf("the KV engine at %s is of version 1", p.Mount),
			"make it one of version 2: vault kv enable-versioning "+p.Mount, "name another one in vault_kv_mount")
	}
	return nil
}
