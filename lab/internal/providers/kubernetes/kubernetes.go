// Package kubernetes stands in for hashicorp/kubernetes. It uses client-go.
//
// The real provider is built on Terraform's old SDK, and the resources here behave likewise. An
// absent argument may have a default in the state. A plan shows values that the API server computes
// as unchanged until they have changed.
package kubernetes

import (
	"context"
	"os"
	"strings"
	"sync"

	"github.com/zclconf/go-cty/cty"
	corev1 "k8s.io/client-go/kubernetes/typed/core/v1"
	"k8s.io/client-go/tools/clientcmd"

	"github.com/ephemeral-castle/castle/lab/internal/providers/plugin"
)

type provider struct {
	// connect makes a client, when one is needed: during a plan there may be no
	// kubeconfig yet.
	connect func() (corev1.CoreV1Interface, error)
}

// New returns the provider.
func New() plugin.Provider {
	p := &provider{}
	return plugin.Provider{
		Schema: plugin.Block{Attributes: map[string]plugin.Attribute{
			"config_path":    {Type: cty.String, Optional: true},
			"config_context": {Type: cty.String, Optional: true},
		}},
		Configure: p.configure,
		Resources: p.resources(),
	}
}

func (p *provider) resources() map[string]plugin.Resource {
	return map[string]plugin.Resource{
		"kubernetes_namespace_v1":  p.namespace(),
		"kubernetes_secret_v1":     p.secret(),
		"kubernetes_config_map_v1": p.configMap(),
	}
}

func (p *provider) configure(_ context.Context, config plugin.Values) error {
	path := config.String("config_path")
	if path == "" {
		path = os.Getenv("KUBE_CONFIG_PATH")
	}
	loader := &clientcmd.ClientConfigLoadingRules{ExplicitPath: path}
	overrides := &clientcmd.ConfigOverrides{CurrentContext: config.String("config_context")}
	// As in the real provider, this variable wins over the file.
	overrides.ClusterInfo.Server = os.Getenv("KUBE_HOST")
	p.connect = sync.OnceValues(func() (corev1.CoreV1Interface, error) {
		c, err := clientcmd.NewNonInteractiveDeferredLoadingClientConfig(loader, overrides).ClientConfig()
		if err != nil {
			return nil, err
		}
		return corev1.NewForConfig(c)
	})
	return nil
}

// split reads the id of a namespaced object.
func split(id string) (namespace, name string, err error) {
	namespace, name, ok := strings.Cut(id, "/")
	if !ok || namespace == "" || name == "" || strings.Contains(name, "/") {
		return "", "",
			&plugin.Problem{Summary: `Unexpected ID format ("` + id + `"), expected "namespace/name".`}
	}
	return namespace, name, nil
}

// importByID takes the id as it is; the read that follows an import does the rest.
func importByID(_ context.Context, id string) (plugin.Values, error) {
	return plugin.Values{"id": cty.StringVal(id)}, nil
}
