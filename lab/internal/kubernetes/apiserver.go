package kubernetes

import (
	"cmp"
	"context"
	"encoding/json"
	"net"
	"net/http"
	"os"
	"path/filepath"

	"github.com/spf13/pflag"
	apiextensionsapiserver "k8s.io/apiextensions-apiserver/pkg/apiserver"
	"k8s.io/apimachinery/pkg/runtime"
	utilerrors "k8s.io/apimachinery/pkg/util/errors"
	"k8s.io/apiserver/pkg/server/egressselector"
	"k8s.io/apiserver/pkg/util/webhook"
	cliflag "k8s.io/component-base/cli/flag"
	"k8s.io/component-base/version"
	aggregatorscheme "k8s.io/kube-aggregator/pkg/apiserver/scheme"
	"k8s.io/kubernetes/cmd/kube-apiserver/app"
	"k8s.io/kubernetes/cmd/kube-apiserver/app/options"
	"k8s.io/kubernetes/pkg/api/legacyscheme"
	"k8s.io/kubernetes/pkg/controlplane"
	controlplaneapiserver "k8s.io/kubernetes/pkg/controlplane/apiserver"
	generatedopenapi "k8s.io/kubernetes/pkg/generated/openapi"
)

func parse(name string, sets cliflag.NamedFlagSets, args []string) error {
	fs := pflag.NewFlagSet(name, pflag.ContinueOnError)
	for _, f := range sets.FlagSets {
		fs.AddFlagSet(f)
	}
	return fs.Parse(args)
}

// runAPIServer serves until ctx ends. kube-apiserver's own command is avoided:
// it takes over the process's signals and has no place for a dialer.
func runAPIServer(ctx context.Context, args []string, c Config,
	egress *egressselector.EgressSelector) error {
	s := options.NewServerRunOptions()
	if err := parse("kube-apiserver", s.Flags(), args); err != nil {
		return err
	}
	if err := s.GenericServerRunOptions.ComponentGlobalsRegistry.Set(); err != nil {
		return err
	}
	opts, err := s.Complete(ctx)
	if err != nil {
		return err
	}
	if errs := opts.Validate(); len(errs) != 0 {
		return utilerrors.NewAggregate(errs)
	}
	config, err := serverConfig(opts, egress)
	if err != nil {
		return err
	}
	completed, err := config.Complete()
	if err != nil {
		return err
	}
	chain, err := app.CreateServerChain(completed)
	if err != nil {
		return err
	}
	handler := chain.GenericAPIServer.Handler
	handler.FullHandlerChain = tells(c, handler.FullHandlerChain)
	prepared, err := chain.PrepareRun()
	if err != nil {
		return err
	}
	return prepared.Run(ctx)
}

// releases is the file with what /version tells, by the address that a request comes from.
const releases = "releases.json"

// ReplaceReleases has the API server that runs in a directory tell another release, by the address that a
// request comes from: one server stands for those of all control planes.
func ReplaceReleases(dir string, byAddress map[string]string) error {
	text, err := json.Marshal(byAddress)
	if err != nil {
		return err
	}
	path := filepath.Join(dir, releases)
	if err := os.WriteFile(path+".new", text, 0o600); err != nil {
		return err
	}
	return os.Rename(path+".new", path)
}

// release is what /version tells somebody at an address.
func (c *Config) release(address string) string {
	host, _, _ := net.SplitHostPort(address) //nolint:errcheck // then it is in no list
	byAddress := map[string]string{}
	text, err := os.ReadFile(filepath.Join(c.Dir, releases))
	if err == nil {
		_ = json.Unmarshal(text, &byAddress) // without one, the configured release counts
	}
	return cmp.Or(byAddress[host], c.Release)
}

// tells reports every request, and answers /version with the release of the server that it is for.
func tells(c Config, next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if c.Asked != nil {
			c.Asked(r.UserAgent(), r.URL.RequestURI())
		}
		if withoutQuorum(c.Dir) && needsEtcd(r.URL.Path) {
			refuse(w, r.URL.Path)
			return
		}
		release := ""
		if r.URL.Path == "/version" {
			release = c.release(r.RemoteAddr)
		}
		if release == "" {
			next.ServeHTTP(w, r)
			return
		}
		info := version.Get()
		info.GitVersion = release
		w.Header().Set("Content-Type", "application/json")
		json.NewEncoder(w).Encode(info) //nolint:errcheck // a client that has gone needs no answer
	})
}

// serverConfig configures the three servers of kube-apiserver. It sets the egress selector between
// the generic configuration and the configurations derived from it: webhooks, aggregation and the
// proxies all dial through the selector.
func serverConfig(opts options.CompletedOptions, egress *egressselector.EgressSelector) (*app.Config, error) {
	schemes := []*runtime.Scheme{legacyscheme.Scheme, apiextensionsapiserver.Scheme, aggregatorscheme.Scheme}
	generic, informers, storage, err := controlplaneapiserver.BuildGenericConfig(opts.CompletedOptions,
		schemes,
		controlplane.DefaultAPIResourceConfigSource(), generatedopenapi.GetOpenAPIDefinitions)
	if err != nil {
		return nil, err
	}
	generic.EgressSelector = egress
	kube, resolver, admission, err := app.CreateKubeAPIServerConfig(opts, generic, informers, storage)
	if err != nil {
		return nil, err
	}
	plane := kube.ControlPlane
	auth := webhook.NewDefaultAuthenticationInfoResolverWrapper(plane.ProxyTransport,
		plane.Generic.EgressSelector,
		plane.Generic.LoopbackClientConfig, plane.Generic.TracerProvider)
	extensions, err := controlplaneapiserver.CreateAPIExtensionsConfig(*plane.Generic,
		plane.VersionedInformers, admission,
		opts.CompletedOptions, opts.MasterCount, resolver, auth)
	if err != nil {
		return nil, err
	}
	aggregator, err := controlplaneapiserver.CreateAggregatorConfig(*plane.Generic, opts.CompletedOptions,
		plane.VersionedInformers,
		resolver, plane.ProxyTransport, plane.Extra.PeerProxy, admission)
	if err != nil {
		return nil, err
	}
	return &app.Config{Options: opts, KubeAPIs: kube, ApiExtensions: extensions, Aggregator: aggregator}, nil
}
