package kubernetes

import (
	"errors"
	"fmt"
	"net"
	"net/netip"
	"strings"
	"time"
)

// KeyPair is a certificate and its private key, both PEM.
type KeyPair struct {
	Certificate, Key []byte
}

// Config configures a control plane, mostly with values of a machine configuration. It contains
// private keys: it travels over pipes, never on a command line.
type Config struct {
	Dir    string // everything that it writes, 0700; a second start there finds the same cluster again
	Logs   string // of processes that run in place of a Deployment's Pods, NAME.log; empty: none does
	Listen string // the API server's address and port on the loopback: 127.0.0.1:6443

	CA                KeyPair // signs the server's certificate and the administrator's
	AggregatorCA      KeyPair // signs the front proxy's
	ServiceAccountKey []byte  // PEM, private
	Issuer            string  // of ServiceAccount tokens
	CertSANs          []string
	ServiceCIDR       string // one, or one of each IP family, separated by a comma
	PodCIDR           string // likewise
	// NodeMasks are arguments of kube-controller-manager that divide PodCIDR: node-cidr-mask-size=24.
	NodeMasks []string
	// Network is what makes a node's network ready: its range of PodCIDR, as flannel wants it (empty); a
	// Pod that somebody installs ("daemonset"); or nothing that the lab could see ("unseen").
	Network string

	// SignedKubelets says that the cluster's authority signs the certificates of the kubelets' servers.
	// Without, they sign their own, and metrics-server gets ready only if it accepts these.
	SignedKubelets bool

	// Release is the one that /version tells, v1.36.3, unless ReplaceReleases names another; empty for the
	// one that is linked.
	Release string
	// Admission is the content of an AdmissionConfiguration file; empty for none.
	Admission []byte
	// Flags are added to kube-apiserver's own: api-audiences=…
	Flags []string

	// Asked is called with every request to the API before it is answered; it may be nil.
	Asked func(userAgent, url string) `json:"-"`

	PodReady  time.Duration // until a Pod without annotation is ready
	NodeGrace time.Duration // until a node whose kubelet is silent is called unknown
}

func (c *Config) defaults() {
	for _, d := range []struct {
		value *string
		or    string
	}{{&c.ServiceCIDR, "10.96.0.0/12"}, {&c.PodCIDR, "10.244.0.0/16"}, {&c.Issuer, "https://" + c.Listen}} {
		if *d.value == "" {
			*d.value = d.or
		}
	}
	if c.PodReady == 0 {
		c.PodReady = 100 * time.Millisecond
	}
	if c.NodeGrace == 0 {
		c.NodeGrace = leaseSeconds * time.Second
	}
}

func (c *Config) validate() error {
	var errs []error
	if c.Dir == "" {
		errs = append(errs, errors.New("directory: empty"))
	}
	a, err := netip.ParseAddrPort(c.Listen)
	if err != nil {
		errs = append(errs, fmt.Errorf("listen address: %w", err))
	} else if !a.Addr().IsLoopback() {
		errs = append(errs, fmt.Errorf("listen address %s: not on the loopback", a))
	}
	for name, p := range map[string]KeyPair{"CA": c.CA, "aggregator CA": c.AggregatorCA} {
		if len(p.Certificate) == 0 || len(p.Key) == 0 {
			errs = append(errs, fmt.Errorf("%s: certificate or key is empty", name))
		}
	}
	if len(c.ServiceAccountKey) == 0 {
		errs = append(errs, errors.New("service account key: empty"))
	}
	for cidr := range strings.SplitSeq(c.ServiceCIDR, ",") {
		if _, _, err := net.ParseCIDR(cidr); err != nil {
			errs = append(errs, fmt.Errorf("service CIDR: %w", err))
		}
	}
	return errors.Join(errs...)
}

// firstServiceIP is the cluster IP of the Service kubernetes.
func (c *Config) firstServiceIP() string {
	first, _, _ := strings.Cut(c.ServiceCIDR, ",")
	p, err := netip.ParsePrefix(first)
	if err != nil {
		return "10.96.0.1"
	}
	return p.Masked().Addr().Next().String()
}

// advertised is the loopback address of the first network's family, which kube-apiserver wants to advertise.
func (c *Config) advertised(listen string) string {
	if strings.Contains(c.firstServiceIP(), ":") {
		return "::1"
	}
	return listen
}
