// Package tailscale stands in for tailscale/tailscale: an OAuth client, and auth keys.
package tailscale

import (
	"bytes"
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"net/url"
	"os"
	"strings"
	"time"

	"github.com/zclconf/go-cty/cty"

	"github.com/ephemeral-castle/castle/lab/internal/providers/plugin"
)

type provider struct{ host, tailnet, id, secret, token string }

// New returns the provider.
func New() plugin.Provider {
	p := &provider{}
	text := plugin.Attribute{Type: cty.String, Optional: true}
	hidden := plugin.Attribute{Type: cty.String, Optional: true, Sensitive: true}
	return plugin.Provider{
		Schema: plugin.Block{Attributes: map[string]plugin.Attribute{
			"oauth_client_id": text, "oauth_client_secret": hidden, "base_url": text, "tailnet": text,
			"scopes": {Type: cty.List(cty.String), Optional: true},
		}},
		Configure: p.configure,
		Resources: map[string]plugin.Resource{"tailscale_tailnet_key": p.key()},
	}
}

func (p *provider) configure(_ context.Context, config plugin.Values) error {
	p.host = strings.TrimSuffix(cmp.Or(config.String("base_url"), os.Getenv("TAILSCALE_BASE_URL"),
		"https://api.tailscale.com"), "/")
	p.tailnet = cmp.Or(config.String("tailnet"), os.Getenv("TAILSCALE_TAILNET"), "-")
	p.id = cmp.Or(config.String("oauth_client_id"), os.Getenv("TAILSCALE_OAUTH_CLIENT_ID"))
	p.secret = cmp.Or(config.String("oauth_client_secret"), os.Getenv("TAILSCALE_OAUTH_CLIENT_SECRET"))
	if p.id == "" || p.secret == "" {
		return &plugin.Problem{Summary: "Provider credentials error", Detail: "tailscale provider " +
			"credentials are empty - set `api_key` or `oauth_client_id` and `oauth_client_secret`"}
	}
	return nil
}

// key is the resource of tailscale/resource_tailnet_key.go. One for a single device stays in the state when
// it is gone: it has been used.
func (p *provider) key() plugin.Resource {
	flag := plugin.Attribute{Type: cty.Bool, Optional: true, Computed: true, Default: cty.False,
		Replace: true}
	computed := plugin.Attribute{Type: cty.String, Computed: true, Keep: true}
	hidden := computed
	hidden.Sensitive = true
	tags := cty.Set(cty.String)
	return plugin.Resource{
		Schema: plugin.Block{Attributes: map[string]plugin.Attribute{
			"id": computed, "key": hidden, "created_at": computed, "expires_at": computed,
			"reusable": flag, "ephemeral": flag, "preauthorized": flag,
			"tags": {Type: tags, Optional: true, Computed: true, Default: cty.SetValEmpty(cty.String),
				Replace: true},
			"expiry": {Type: cty.Number, Optional: true, Computed: true, Keep: true, Replace: true},
			"description": {Type: cty.String, Optional: true, Computed: true, Default: cty.StringVal(""),
				Replace: true, Valid: short},
			"invalid":             {Type: cty.Bool, Computed: true, Keep: true},
			"recreate_if_invalid": {Type: cty.String, Optional: true},
			"user_id":             {Type: cty.String, Optional: true, Computed: true, Keep: true},
		}},
		Plan: func(_ context.Context, plan *plugin.Plan) error {
			planned := plan.Change.Planned
			again := planned.String("recreate_if_invalid")
			if plan.Change.Prior != nil && planned.Bool("invalid") &&
				(again == "always" || again == "" && planned.Bool("reusable")) {
				plan.SetUnknown("id")
				plan.Forced = append(plan.Forced, "id")
			}
			return nil
		},
		Create: p.create,
		Read:   p.read,
		Update: func(context.Context, plugin.Change) (plugin.Values, error) { return plugin.Values{}, nil },
		Delete: func(ctx context.Context, state plugin.Values) error {
			err := p.call(ctx, http.MethodDelete, p.path(state.String("id")), nil, nil)
			if errors.Is(err, errNotFound) {
				return nil
			}
			return problem("Failed to delete key", fmt.Sprintf("Error deleting tailnet key with id %q",
				state.String("id")), err)
		},
	}
}

func short(v cty.Value) error {
	if len(v.AsString()) > 50 {
		return &plugin.Problem{Summary: "Invalid Attribute Value Length",
			Detail: fmt.Sprintf("Attribute description string length must be at most 50, got: %d",
				len(v.AsString()))}
	}
	return nil
}

func problem(summary, what string, err error) error {
	if err == nil {
		return nil
	}
	return &plugin.Problem{Summary: summary, Detail: what + ": " + err.Error()}
}

// key is what the API says of one.
type key struct {
	ID      string    `json:"id"`
	Key     string    `json:"key"`
	Created time.Time `json:"created"`
	Expires time.Time `json:"expires"`
	Seconds int64     `json:"expirySeconds"`
	Invalid bool      `json:"invalid"`
}

func (k key) values() plugin.Values {
	return plugin.Values{"id": cty.StringVal(k.ID), "invalid": cty.BoolVal(k.Invalid),
		"created_at": cty.StringVal(k.Created.Format(time.RFC3339)),
		"expires_at": cty.StringVal(k.Expires.Format(time.RFC3339)),
		"expiry":     cty.NumberIntVal(k.Seconds), "user_id": cty.StringVal("")}
}

func (p *provider) create(ctx context.Context, c plugin.Change) (plugin.Values, error) {
	tags := []string{}
	for it := c.Planned["tags"].ElementIterator(); it.Next(); {
		_, tag := it.Element()
		tags = append(tags, tag.AsString())
	}
	body := map[string]any{"expirySeconds": c.Planned.Int("expiry"),
		"description": c.Planned.String("description"),
		"capabilities": map[string]any{"devices": map[string]any{"create": map[string]any{
			"reusable": c.Planned.Bool("reusable"), "ephemeral": c.Planned.Bool("ephemeral"),
			"preauthorized": c.Planned.Bool("preauthorized"), "tags": tags}}}}
	var made key
	if err := p.call(ctx, http.MethodPost, p.path(""), body, &made); err != nil {
		return nil, problem("Failed to create key", "Error creating tailnet key", err)
	}
	values := made.values()
	values["key"] = cty.StringVal(made.Key)
	return values, nil
}

func (p *provider) read(ctx context.Context, state plugin.Values) (plugin.Values, error) {
	var is key
	err := p.call(ctx, http.MethodGet, p.path(state.String("id")), nil, &is)
	if errors.Is(err, errNotFound) {
		return plugin.Values{"invalid": cty.True}, nil
	}
	if err != nil {
		return nil, problem("Failed to fetch key", fmt.Sprintf("Error reading tailnet key with id %q",
			state.String("id")), err)
	}
	return is.values(), nil
}

func (p *provider) path(id string) string {
	return strings.TrimSuffix("/api/v2/tailnet/"+url.PathEscape(p.tailnet)+"/keys/"+url.PathEscape(id), "/")
}

var errNotFound = errors.New("not found (404)")

// call logs in first, as the real client does with its first request.
func (p *provider) call(ctx context.Context, method, path string, body, answer any) error {
	if p.token == "" {
		var got struct {
			Token string `json:"access_token"`
		}
		form := url.Values{"grant_type": {"client_credentials"}, "client_id": {p.id},
			"client_secret": {p.secret}}
		if err := p.send(ctx, http.MethodPost, "/api/v2/oauth/token", "application/x-www-form-urlencoded",
			[]byte(form.Encode()), &got); err != nil {
			return fmt.Errorf("oauth2: cannot fetch token: %w", err)
		}
		p.token = got.Token
	}
	var content []byte
	if body != nil {
		var err error
		if content, err = json.Marshal(body); err != nil {
			return err
		}
	}
	return p.send(ctx, method, path, "application/json", content, answer)
}

func (p *provider) send(ctx context.Context, method, path, kind string, body []byte, into any) error {
	r, err := http.NewRequestWithContext(ctx, method, p.host+path, bytes.NewReader(body))
	if err != nil {
		return err
	}
	r.Header.Set("Content-Type", kind)
	if p.token != "" {
		r.Header.Set("Authorization", "Bearer "+p.token)
	}
	answer, err := http.DefaultClient.Do(r)
	if err != nil {
		return err
	}
	defer answer.Body.Close() //nolint:errcheck // it was only read
	if answer.StatusCode == http.StatusNotFound {
		return errNotFound
	}
	if answer.StatusCode >= http.StatusBadRequest {
		var why struct {
			Message string `json:"message"`
		}
		if err := json.NewDecoder(answer.Body).Decode(&why); err != nil {
			return err
		}
		return fmt.Errorf("%s (%d)", why.Message, answer.StatusCode)
	}
	if into == nil {
		return nil
	}
	return json.NewDecoder(answer.Body).Decode(into)
}
