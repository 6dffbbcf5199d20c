// Package client connects to one cluster's Kubernetes API. It is the only user of client-go. It owns what
// every check shares: the connection, the lookup of kinds, reads and watches of objects, the texts of errors,
// and Helm's releases. Three rules hold for all checks:
//
//   - Each attempt has its own timeout: an API that hangs costs one attempt and not the whole wait.
//   - A check waits for what may still pass: a refused connection, a missing object, a kind without a CRD. A
//     certificate of another cluster and a user without permissions are permanent.
//   - The cluster is reached with its kubeconfig alone, not by the environment or a pod's service account.
package client

import (
	"cmp"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"encoding/pem"
	"errors"
	"fmt"
	"maps"
	"net"
	"net/http"
	"net/url"
	"slices"
	"sync"
	"time"

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

// DefaultAttempt bounds one check. A healthy API answers in milliseconds.
const DefaultAttempt = 10 * time.Second

// Cluster leads to one cluster's API. It connects at the first check: gates are older than it.
type Cluster struct {
	Attempt time.Duration // bounds each check and the beginning of each watch
	open    func() (*API, error)
}

// API is an open connection to a cluster.
type API struct {
	Host    string // host:port, for messages
	Server  *url.URL
	HTTP    *http.Client
	Raw     rest.Interface
	Dynamic dynamic.Interface
	// Read receives the selection and the result of each read. A copy of the API may have another Read.
	Read func(Selection, ...Object)
	// watching has connections of its own: one that hangs in a watch cannot be given up, and the next
	// attempt would hang in it too.
	watching metadata.Interface

	expires time.Time // of the kubeconfig's client certificate; zero if it has none
	known   *sync.Map // what find has found, as []Resource; kinds do not move
}

// New returns the cluster of a target, or, with an address (host or host:port), the API server there.
func New(target gate.Target, address string) *Cluster {
	return &Cluster{Attempt: DefaultAttempt, open: sync.OnceValues(func() (*API, error) {
		return Open(target.Kubeconfig, address)
	})}
}

// APIPort is where a control plane's own API server listens, whatever port a load balancer before it has.
const APIPort = "6443"

// Open connects with a kubeconfig, to a control plane's address instead of its server if one is given.
func Open(kubeconfig []byte, address string) (*API, error) {
	config, err := restConfig(kubeconfig)
	if err != nil {
		return nil, err
	}
	server, err := url.Parse(config.Host)
	if err != nil || server.Host == "" {
		return nil, fmt.Errorf("kubeconfig: the server %q is no URL", config.Host)
	}
	if address != "" {
		server.Host = withPort(address, APIPort)
		config.Host = server.String()
	}
	a := &API{Host: server.Host, Server: server, Read: func(Selection, ...Object) {}, known: &sync.Map{}}
	if certificates := Certificates(config.CertData); len(certificates) > 0 {
		a.expires = certificates[0].NotAfter
	}
	var errs [4]error
	if a.HTTP, errs[0] = rest.HTTPClientFor(config); errs[0] == nil {
		a.Raw, errs[1] = rest.UnversionedRESTClientForConfigAndClient(config, a.HTTP)
		a.Dynamic, errs[2] = dynamic.NewForConfigAndClient(config, a.HTTP)
		a.watching, errs[3] = metadata.NewForConfig(config)
	}
	if err := errors.Join(errs[:]...); err != nil {
		return nil, fmt.Errorf("kubeconfig: %w", err)
	}
	return a, nil
}

// restConfig reads a kubeconfig's current context alone: no environment, no proxy of it, no service account.
func restConfig(kubeconfig []byte) (*rest.Config, error) {
	if len(kubeconfig) == 0 {
		return nil, errors.New("kubeconfig: no platform has output one yet")
	}
	if err := Inline(kubeconfig); err != nil {
		return nil, err
	}
	config, err := clientcmd.RESTConfigFromKubeConfig(kubeconfig)
	switch {
	case clientcmd.IsConfigurationInvalid(err), clientcmd.IsEmptyConfig(err):
		return nil, fmt.Errorf("kubeconfig: %w", err)
	case err != nil:
		// A parser's error may quote the unreadable text, keys included.
		return nil, errors.New("kubeconfig: is not valid YAML of kind Config")
	}
	if config.Proxy == nil {
		config.Proxy = func(*http.Request) (*url.URL, error) { return nil, nil }
	}
	// client-go's default of 5 requests a second is meant for controllers that share an API.
	config.QPS, config.Burst = 50, 100
	config.WarningHandler = rest.NoWarnings{}
	config.UserAgent = "castle"
	answers := runtime.NewScheme()
	metav1.AddToGroupVersion(answers, schema.GroupVersion{Version: "v1"})
	config.NegotiatedSerializer = serializer.NewCodecFactory(answers).WithoutConversion()
	return config, nil
}

// Inline refuses a kubeconfig that runs a program or names a file, in any of its users and clusters: kubectl
// and providers may select another context than castle. Such a file may come from a state that somebody else
// has written, and would run his program or send the contents of a file to his server. A text that is no
// kubeconfig passes: nothing can use it.
func Inline(kubeconfig []byte) error {
	config, err := clientcmd.Load(kubeconfig)
	if err != nil {
		return nil
	}
	refuse := func(kind, name, what string) error {
		return fmt.Errorf("kubeconfig: the %s %q %s, which castle refuses: whoever can write the state "+
			"would choose it\n  output a kubeconfig that has its certificates and keys, or a token, in "+
			"itself (certificate-authority-data, client-certificate-data, client-key-data, token)", kind,
			name, what)
	}
	for _, name := range slices.Sorted(maps.Keys(config.AuthInfos)) {
		switch user, plugin := config.AuthInfos[name], config.AuthInfos[name].AuthProvider; {
		case user.Exec != nil:
			return refuse("user", name, fmt.Sprintf("runs the program %q (exec)", user.Exec.Command))
		case plugin != nil:
			return refuse("user", name, fmt.Sprintf("uses the plugin %q (auth-provider)", plugin.Name))
		case user.ClientCertificate+user.ClientKey+user.TokenFile != "":
			return refuse("user", name, fmt.Sprintf("names the file %q",
				cmp.Or(user.ClientCertificate, user.ClientKey, user.TokenFile)))
		}
	}
	for _, name := range slices.Sorted(maps.Keys(config.Clusters)) {
		if file := config.Clusters[name].CertificateAuthority; file != "" {
			return refuse("cluster", name, fmt.Sprintf("names the file %q", file))
		}
	}
	return nil
}

// ClientCertificates returns the certificates, in PEM, that a kubeconfig's users have.
func ClientCertificates(kubeconfig []byte) (all [][]byte) {
	config, err := clientcmd.Load(kubeconfig)
	if err != nil {
		return nil
	}
	for _, user := range config.AuthInfos {
		all = append(all, user.ClientCertificateData)
	}
	return all
}

// Authorities returns the certificates, in PEM, by which a kubeconfig trusts its clusters.
func Authorities(kubeconfig []byte) (all [][]byte) {
	config, err := clientcmd.Load(kubeconfig)
	if err != nil {
		return nil
	}
	for _, cluster := range config.Clusters {
		all = append(all, cluster.CertificateAuthorityData)
	}
	return all
}

// withPort adds a port to a host that has none.
func withPort(address, port string) string {
	if _, _, err := net.SplitHostPort(address); err == nil {
		return address
	}
	return net.JoinHostPort(address, port)
}

// Do makes one attempt of a function on a target's API.
func Do(ctx context.Context, target gate.Target, do func(context.Context, *API) error) error {
	return New(target, "").Check(do)(ctx)
}

// Check makes a gate's Check of a function on the API: bounded, and with its error explained. An attempt
// that the caller ended returns the caller's error.
func (c *Cluster) Check(do func(context.Context, *API) error) func(context.Context) error {
	return func(caller context.Context) error {
		a, err := c.open()
		if err != nil {
			return gate.Permanent(err)
		}
		ctx, stop := context.WithTimeout(caller, c.Attempt)
		defer stop()
		err = do(ctx, a)
		switch {
		case err == nil:
			return nil
		case caller.Err() != nil:
			return caller.Err()
		case ctx.Err() != nil:
			// Its connection may lead to a machine that is gone.
			utilnet.CloseIdleConnectionsFor(a.HTTP.Transport)
			return fmt.Errorf("kubernetes API at %s: no answer within %s", a.Host, c.Attempt)
		}
		return a.Explain(err)
	}
}

// ClusterIdentity identifies the cluster of a kubeconfig: the SHA-256 of its certificate authority. It needs
// no connection. A cluster that was created anew has another identity, even at the same address.
func ClusterIdentity(kubeconfig []byte) (string, error) {
	config, err := restConfig(kubeconfig)
	if err != nil {
		return "", err
	}
	// The certificates are hashed, not the text: the same authority may be written with other line ends.
	digest, found := sha256.New(), false
	for block, rest := pem.Decode(config.CAData); block != nil; block, rest = pem.Decode(rest) {
		found = true
		digest.Write(block.Bytes)
	}
	if !found {
		return "", errors.New("kubeconfig: carries no certificate authority")
	}
	return hex.EncodeToString(digest.Sum(nil)), nil
}
