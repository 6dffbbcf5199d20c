package kube

import (
	"context"
	"crypto/x509"
	"encoding/pem"
	"errors"
	"fmt"
	"net"
	"net/http"
	"net/url"
	"sync"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/runtime/serializer"
	utilnet "k8s.io/apimachinery/pkg/util/net"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/metadata"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"

	"github.com/ephemeral-castle/castle/internal/gate"
)

// attempt is how long one check may take. A healthy API answers in
// milliseconds; one that does not answer within this is as good as down.
const attempt = 10 * time.Second

// cluster is the way to one cluster's API. It connects at the first question,
// because gates are made long before their cluster stands.
type cluster struct {
	attempt time.Duration
	open    func() (*api, error)
}

// api is an opened cluster.
type api struct {
	host    string // host:port, for messages
	server  *url.URL
	http    *http.Client
	raw     rest.Interface
	dynamic dynamic.Interface
	// watching has connections of its own: one that hangs in a watch cannot be
	// given up, and the next attempt would hang in it too.
	watching metadata.Interface

	// expires is when the kubeconfig's own certificate does; zero if it has none.
	expires time.Time

	mu    sync.Mutex
	known map[string]resource // what resolve has found; kinds do not move
}

// newCluster is the cluster of a target, or, with an address (host or
// host:port), the same cluster through that address.
func newCluster(target gate.Target, address string) *cluster {
	return &cluster{attempt: attempt, open: sync.OnceValues(func() (*api, error) {
		return open(target.Kubeconfig, address)
	})}
}

func open(kubeconfig []byte, address string) (*api, error) {
	config, err := restConfig(kubeconfig)
	if err != nil {
		return nil, err
	}
	server, err := url.Parse(config.Host)
	if err != nil || server.Host == "" {
		return nil, fmt.Errorf("kubeconfig: the server %q is no URL", config.Host)
	}
	if address != "" {
		server.Host = withPort(address, server.Port())
		config.Host = server.String()
	}
	client, err := rest.HTTPClientFor(config)
	if err != nil {
		return nil, fmt.Errorf("kubeconfig: %w", err)
	}
	raw, err := rest.UnversionedRESTClientForConfigAndClient(config, client)
	if err != nil {
		return nil, fmt.Errorf("kubeconfig: %w", err)
	}
	objects, err := dynamic.NewForConfigAndClient(config, client)
	if err != nil {
		return nil, fmt.Errorf("kubeconfig: %w", err)
	}
	watching, err := metadata.NewForConfig(config)
	if err != nil {
		return nil, fmt.Errorf("kubeconfig: %w", err)
	}
	return &api{
		host: server.Host, server: server, http: client, raw: raw, dynamic: objects, watching: watching,
		expires: expires(config.CertData), known: map[string]resource{},
	}, nil
}

// restConfig reads a kubeconfig's current context and nothing else: no
// environment, no proxy from it, no service account.
func restConfig(kubeconfig []byte) (*rest.Config, error) {
	if len(kubeconfig) == 0 {
		return nil, errors.New("kubeconfig: no platform has said one yet")
	}
	config, err := clientcmd.RESTConfigFromKubeConfig(kubeconfig)
	switch {
	case clientcmd.IsConfigurationInvalid(err), clientcmd.IsEmptyConfig(err):
		return nil, fmt.Errorf("kubeconfig: %w", err)
	case err != nil:
		// A parser's error may quote what it could not read, keys included.
		return nil, errors.New("kubeconfig: is not readable as one")
	}
	if err := rest.LoadTLSFiles(config); err != nil {
		return nil, fmt.Errorf("kubeconfig: %w", err)
	}
	if config.Proxy == nil {
		config.Proxy = func(*http.Request) (*url.URL, error) { return nil, nil }
	}
	// client-go's default of 5 questions a second is meant for controllers that share an API.
	config.QPS, config.Burst = 50, 100
	config.WarningHandler = rest.NoWarnings{}
	config.UserAgent = "castle"
	answers := runtime.NewScheme()
	metav1.AddToGroupVersion(answers, schema.GroupVersion{Version: "v1"})
	config.NegotiatedSerializer = serializer.NewCodecFactory(answers).WithoutConversion()
	return config, nil
}

// withPort adds a port to a host that has none.
func withPort(address, port string) string {
	if _, _, err := net.SplitHostPort(address); err == nil {
		return address
	}
	if port == "" {
		port = "443"
	}
	return net.JoinHostPort(address, port)
}

// ask makes a gate's Check of a question to the API: bounded, and with its
// error explained. An attempt that the caller ended is the caller's error.
func (c *cluster) ask(question func(context.Context, *api) error) func(context.Context) error {
	return func(caller context.Context) error {
		a, err := c.open()
		if err != nil {
			return gate.Permanent(err)
		}
		ctx, stop := context.WithTimeout(caller, c.attempt)
		defer stop()
		err = question(ctx, a)
		switch {
		case err == nil:
			return nil
		case caller.Err() != nil:
			return caller.Err()
		case ctx.Err() != nil:
			// Its connection may lead to a machine that is gone.
			utilnet.CloseIdleConnectionsFor(a.http.Transport)
			return fmt.Errorf("kubernetes API at %s: no answer within %s", a.host, c.attempt)
		}
		if apierrors.IsUnauthorized(err) {
			return a.unauthorized(message(err))
		}
		return explain(a.host, err)
	}
}

// unauthorized is the answer to a user that the API does not know. It never
// says why, but the kubeconfig may.
func (a *api) unauthorized(said string) error {
	if !a.expires.IsZero() && time.Now().After(a.expires) {
		said = "its certificate has expired on " + day(a.expires)
	}
	return gate.Permanent(fmt.Errorf("kubernetes API at %s refuses the kubeconfig's user: %s", a.host, brief(said)))
}

// expires reads when a client's certificate ends.
func expires(encoded []byte) time.Time {
	block, _ := pem.Decode(encoded)
	if block == nil {
		return time.Time{}
	}
	certificate, err := x509.ParseCertificate(block.Bytes)
	if err != nil {
		return time.Time{}
	}
	return certificate.NotAfter
}
