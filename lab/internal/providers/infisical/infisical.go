// Package infisical stands in for infisical/infisical: universal auth and tokens, secrets of one
// folder, and single secrets. Like the real provider it logs in when it is configured, so a wrong
// host or credential fails every operation. It retries a request only after status 429.
package infisical

import (
	"context"
	"os"

	"github.com/zclconf/go-cty/cty"

	"github.com/ephemeral-castle/castle/lab/internal/providers/plugin"
)

const defaultHost = "https://app.infisical.com"

type provider struct{ client *client }

// New returns the provider.
func New() plugin.Provider {
	p := &provider{}
	text := plugin.Attribute{Type: cty.String, Optional: true}
	hidden := plugin.Attribute{Type: cty.String, Optional: true, Sensitive: true}
	object := func(attributes map[string]plugin.Attribute) plugin.Attribute {
		return plugin.Attribute{Optional: true,
			Nested: &plugin.Nested{Mode: plugin.Single, Attributes: attributes}}
	}
	return plugin.Provider{
		Schema: plugin.Block{Attributes: map[string]plugin.Attribute{
			"host":          text,
			"client_id":     hidden,
			"client_secret": hidden,
			"auth": object(map[string]plugin.Attribute{
				"universal": object(map[string]plugin.Attribute{"client_id": hidden,
					"client_secret": hidden}),
				"token":             hidden,
				"organization_slug": text,
			}),
		}},
		Configure: p.configure,
		Resources: map[string]plugin.Resource{"infisical_secret": p.secret()},
		Data:      map[string]plugin.DataSource{"infisical_secrets": p.secrets()},
	}
}

func (p *provider) configure(ctx context.Context, config plugin.Values) error {
	auth := config.Object("auth")
	universal := auth.Object("universal")
	c := newClient(firstOf(config.String("host"), os.Getenv("INFISICAL_HOST"), defaultHost))
	token := auth.String("token")
	if universal == nil && token == "" {
		token = os.Getenv("INFISICAL_TOKEN")
	}
	if token != "" {
		c.token = token
		p.client = c
		return nil
	}
	id := firstOf(universal.String("client_id"), config.String("client_id"),
		os.Getenv("INFISICAL_UNIVERSAL_AUTH_CLIENT_ID"))
	secret := firstOf(universal.String("client_secret"), config.String("client_secret"),
		os.Getenv("INFISICAL_UNIVERSAL_AUTH_CLIENT_SECRET"))
	if err := c.login(ctx, id, secret,
		firstOf(auth.String("organization_slug"),
			os.Getenv("INFISICAL_AUTH_ORGANIZATION_SLUG"))); err != nil {
		return &plugin.Problem{Summary: "Unable to Create Infisical API Client",
			Detail: "An unexpected error occurred when creating the Infisical API client. " +
				"If the error is not clear, please get in touch at infisical.com/slack.\n\n" +
				"Infisical Client Error: " + err.Error()}
	}
	p.client = c
	return nil
}

func firstOf(all ...string) string {
	for _, s := range all {
		if s != "" {
			return s
		}
	}
	return ""
}
