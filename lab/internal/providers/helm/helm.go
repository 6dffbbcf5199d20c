// Package helm stands in for hashicorp/helm 3.1.2. It uses the Helm SDK of the same generation.
//
// It keeps the awkward behaviour of the real provider, because castle has to handle it. The state
// does not keep a failed first install, and the next attempt finds its name in use. An unreachable
// API makes a release look deleted. A plan downloads the chart, and reads the cluster when
// upgrade_install is set without a version. A changed local chart alone is no change.
package helm

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"sync"

	"github.com/zclconf/go-cty/cty"
	"helm.sh/helm/v3/pkg/action"
	"helm.sh/helm/v3/pkg/cli"
	"k8s.io/client-go/tools/clientcmd"

	"github.com/ephemeral-castle/castle/lab/internal/providers/plugin"
)

type provider struct {
	settings *cli.EnvSettings
	// configuration gives Helm access to the cluster, for one namespace.
	configuration func(namespace string) (*action.Configuration, error)
	locate        sync.Mutex // downloads share a cache
}

// New returns the provider.
func New() plugin.Provider {
	p := &provider{settings: cli.New()}
	text := plugin.Attribute{Type: cty.String, Optional: true}
	return plugin.Provider{
		Schema: plugin.Block{Attributes: map[string]plugin.Attribute{
			"kubernetes": {Optional: true,
				Nested: &plugin.Nested{Mode: plugin.Single, Attributes: map[string]plugin.Attribute{
					"config_path": text, "config_context": text,
				}}},
		}},
		Configure: p.configure,
		Resources: p.resources(),
	}
}

func (p *provider) resources() map[string]plugin.Resource {
	return map[string]plugin.Resource{"helm_release": p.release()}
}

func (p *provider) configure(_ context.Context, config plugin.Values) error {
	access := config.Object("kubernetes")
	p.configuration = func(namespace string) (*action.Configuration, error) {
		if access == nil {
			return nil, errors.New("configuration error: missing required structural data")
		}
		loader := &clientcmd.ClientConfigLoadingRules{
			ExplicitPath: firstOf(access.String("config_path"), os.Getenv("KUBE_CONFIG_PATH")),
		}
		if paths := os.Getenv("KUBE_CONFIG_PATHS"); paths != "" { // as in the real provider, it wins
			loader.ExplicitPath, loader.Precedence = "", filepath.SplitList(paths)
		}
		overrides := &clientcmd.ConfigOverrides{CurrentContext: access.String("config_context")}
		overrides.ClusterInfo.Server = os.Getenv("KUBE_HOST") // likewise
		overrides.Context.Namespace = namespace
		c := new(action.Configuration)
		err := c.Init(getter{clientcmd.NewNonInteractiveDeferredLoadingClientConfig(loader, overrides)},
			namespace,
			os.Getenv("HELM_DRIVER"), func(string, ...any) {})
		return c, err
	}
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

func (p *provider) configurationFor(namespace string) (*action.Configuration, error) {
	c, err := p.configuration(namespace)
	if err != nil {
		return nil, &plugin.Problem{Summary: "Error getting helm configuration",
			Detail: fmt.Sprintf("Unable to get Helm configuration for namespace %s: %s", namespace, err)}
	}
	return c, nil
}
