// Package talos stands in for siderolabs/talos 0.10. It generates configurations with Talos' own
// machinery and calls machines through Talos' own client. Only the Terraform side is a stand-in.
//
// Each call behaves as in the real provider. It tries an insecure connection first, for a machine
// in maintenance mode, and then one with the client certificate. It retries every error but
// InvalidArgument until the resource's timeout, AlreadyExists included.
package talos

import (
	"time"

	"github.com/zclconf/go-cty/cty"

	"github.com/ephemeral-castle/castle/lab/internal/providers/plugin"
)

// These versions are built into release 0.10.1 of the provider, whichever machinery is linked here.
const (
	defaultTalosVersion      = "v1.12"
	defaultKubernetesVersion = "1.35.0"
	installerImage           = "ghcr.io/siderolabs/installer:v1.12.0"
)

// New returns the provider.
func New() plugin.Provider {
	f := &imageFactory{}
	return plugin.Provider{
		Schema:    plugin.Block{Attributes: map[string]plugin.Attribute{"image_factory_url": optionalText()}},
		Configure: f.configure,
		Resources: map[string]plugin.Resource{
			"talos_machine_secrets":             machineSecrets(),
			"talos_machine_configuration_apply": configurationApply(),
			"talos_machine_bootstrap":           bootstrap(),
			"talos_cluster_kubeconfig":          kubeconfig(),
			"talos_image_factory_schematic":     imageFactorySchematic(f),
		},
		Data: map[string]plugin.DataSource{
			"talos_client_configuration":  clientConfiguration(),
			"talos_machine_configuration": machineConfiguration(),
		},
	}
}

func requiredText() plugin.Attribute { return plugin.Attribute{Type: cty.String, Required: true} }
func optionalText() plugin.Attribute { return plugin.Attribute{Type: cty.String, Optional: true} }
func computedText() plugin.Attribute { return plugin.Attribute{Type: cty.String, Computed: true} }
func eitherText() plugin.Attribute {
	return plugin.Attribute{Type: cty.String, Optional: true, Computed: true}
}
func keptID() plugin.Attribute {
	return plugin.Attribute{Type: cty.String, Computed: true, Keep: true}
}

func secret(a plugin.Attribute) plugin.Attribute {
	a.Sensitive = true
	return a
}

// object is a nested object with the flags of like.
func object(like plugin.Attribute, attributes map[string]plugin.Attribute) plugin.Attribute {
	like.Type = cty.NilType
	like.Nested = &plugin.Nested{Mode: plugin.Single, Attributes: attributes}
	return like
}

// access is the client_configuration: the administrator's credentials for Talos.
func access(like plugin.Attribute) plugin.Attribute {
	return object(like, map[string]plugin.Attribute{
		"ca_certificate": like, "client_certificate": like, "client_key": secret(like),
	})
}

func timeouts(names ...string) plugin.Attribute {
	all := map[string]plugin.Attribute{}
	for _, name := range names {
		all[name] = optionalText()
	}
	return object(optionalText(), all)
}

const defaultTimeout = 10 * time.Minute

func timeout(v plugin.Values, name string) (time.Duration, error) {
	given := v.Object("timeouts").String(name)
	if given == "" {
		return defaultTimeout, nil
	}
	d, err := time.ParseDuration(given)
	if err != nil {
		return 0, &plugin.Problem{Summary: "Timeout Cannot Be Parsed", Detail: "timeout for \"" + name +
			"\" cannot be parsed, " + err.Error()}
	}
	return d, nil
}

// planEndpoint gives an absent endpoint the node's value.
func planEndpoint(p *plugin.Plan) {
	if p.Change.Config["endpoint"].IsNull() && p.Change.Config["node"].IsKnown() {
		p.Change.Planned["endpoint"] = p.Change.Config["node"]
	}
}

func problem(summary string, err error) error {
	return &plugin.Problem{Summary: summary, Detail: err.Error()}
}
