package helm

import (
	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/client-go/discovery"
	"k8s.io/client-go/discovery/cached/memory"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/restmapper"
	"k8s.io/client-go/tools/clientcmd"
)

// burst permits Helm to request many kinds at once, as the real provider does.
const burst = 100

// getter makes Helm's clients from one kubeconfig, with nothing cached on disk.
type getter struct{ config clientcmd.ClientConfig }

// ToRawKubeConfigLoader is part of Helm's interface.
func (g getter) ToRawKubeConfigLoader() clientcmd.ClientConfig { return g.config }

// ToRESTConfig is part of Helm's interface.
func (g getter) ToRESTConfig() (*rest.Config, error) { return g.config.ClientConfig() }

// ToDiscoveryClient is part of Helm's interface.
func (g getter) ToDiscoveryClient() (discovery.CachedDiscoveryInterface, error) {
	c, err := g.ToRESTConfig()
	if err != nil {
		return nil, err
	}
	c.Burst = burst
	client, err := discovery.NewDiscoveryClientForConfig(c)
	if err != nil {
		return nil, err
	}
	return memory.NewMemCacheClient(client), nil
}

// ToRESTMapper is part of Helm's interface.
func (g getter) ToRESTMapper() (meta.RESTMapper, error) {
	client, err := g.ToDiscoveryClient()
	if err != nil {
		return nil, err
	}
	return restmapper.NewShortcutExpander(restmapper.NewDeferredDiscoveryRESTMapper(client), client, nil), nil
}
