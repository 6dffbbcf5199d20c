package kubernetes

import (
	"context"
	"crypto/x509"
	"errors"
	"fmt"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"time"

	client "k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"
	logsapi "k8s.io/component-base/logs/api/v1"
)

// Cluster is a control plane that runs in this process.
type Cluster struct {
	Kubeconfig     []byte // the administrator's, for this process's own address
	KubeconfigPath string
	Client         client.Interface
	REST           *rest.Config // reads what has not changed from memory
	Routes         *Routes

	ended chan error
}

// Start runs a control plane and returns when it answers /readyz. It lasts
// until ctx ends; a component that ends sooner is reported by Wait.
func Start(ctx context.Context, c Config) (*Cluster, error) {
	c.defaults()
	if err := c.validate(); err != nil {
		return nil, err
	}
	if err := os.MkdirAll(c.Dir, 0o700); err != nil {
		return nil, err
	}
	// Two components in one process both set up logging; the second time is no error.
	logsapi.ReapplyHandling = logsapi.ReapplyHandlingIgnoreUnchanged
	f, err := writeFiles(c)
	if err != nil {
		return nil, err
	}
	l := &Cluster{KubeconfigPath: f.path("kubeconfig"), Routes: &Routes{}, ended: make(chan error, 8)}
	if l.Kubeconfig, err = os.ReadFile(l.KubeconfigPath); err != nil {
		return nil, err
	}
	if l.REST, err = clientcmd.RESTConfigFromKubeConfig(l.Kubeconfig); err != nil {
		return nil, err
	}
	// The lab is its own administrator and needs no client-side rate limit.
	l.REST.QPS, l.REST.Burst = 500, 1000
	l.REST.WarningHandler = rest.NoWarnings{}
	counted := &changes{}
	l.REST.Wrap(func(next http.RoundTripper) http.RoundTripper {
		return &reads{next: next, changes: counted}
	})
	if l.Client, err = client.NewForConfig(l.REST); err != nil {
		return nil, err
	}
	etcd, err := startEtcd(ctx, c.Dir, counted)
	if err != nil {
		return nil, fmt.Errorf("etcd: %w", err)
	}
	e := &egress{client: l.Client, routes: l.Routes}
	if e.nodes, err = newKubelets(l.Client, e, c.CA, c.Logs); err != nil {
		return nil, fmt.Errorf("kubelets: %w", err)
	}
	l.run(ctx, "kubelets", func() error { return e.nodes.run(ctx) })
	l.run(ctx, "kube-apiserver", func() error {
		return runAPIServer(ctx, apiServerFlags(c, f, etcd), c, e.selector())
	})
	if err := l.ready(ctx); err != nil {
		return nil, err
	}
	l.run(ctx, "kube-controller-manager", func() error {
		return runControllerManager(ctx, append(networkFlags(c),
			"--kubeconfig="+l.KubeconfigPath, "--leader-elect=false",
			"--secure-port=0",
			"--controllers="+strings.Join(enabledControllers(), ","), "--controller-start-interval=0s",
			"--kube-api-qps=500", "--kube-api-burst=1000",
			"--node-monitor-period=1s", fmt.Sprintf("--node-monitor-grace-period=%s", c.NodeGrace),
			"--service-account-private-key-file="+f.path("sa.key"), "--root-ca-file="+f.path("ca.crt")))
	})
	l.run(ctx, "kube-scheduler", func() error {
		return runScheduler(ctx, []string{"--kubeconfig=" + l.KubeconfigPath, "--leader-elect=false",
			"--secure-port=0"})
	})
	l.run(ctx, "kwok", func() error { return runKwok(ctx, c, l.KubeconfigPath) })
	l.run(ctx, "networks", func() error { return runNetworks(ctx, c, l.Client) })
	return l, nil
}

// Wait returns when a component has ended, and why.
func (l *Cluster) Wait() error { return <-l.ended }

func (l *Cluster) run(ctx context.Context, name string, component func() error) {
	go func() {
		err := component()
		if err == nil && ctx.Err() == nil {
			err = errors.New("ended")
		}
		if err == nil {
			err = context.Cause(ctx)
		}
		l.ended <- fmt.Errorf("%s: %w", name, err)
	}()
}

func (l *Cluster) ready(ctx context.Context) error {
	tick := time.NewTicker(20 * time.Millisecond)
	defer tick.Stop()
	for {
		_, err := l.Client.Discovery().RESTClient().Get().AbsPath("/readyz").DoRaw(ctx)
		if err == nil {
			return nil
		}
		select {
		case err := <-l.ended:
			return err
		case <-ctx.Done():
			return fmt.Errorf("kube-apiserver: %w; last answer: %w", context.Cause(ctx), err)
		case <-tick.C:
		}
	}
}

type files struct{ dir string }

func (f files) path(name string) string { return filepath.Join(f.dir, name) }

// writeFiles writes the components' input files into the private directory.
func writeFiles(c Config) (files, error) {
	f := files{c.Dir}
	ca, err := parseAuthority(c.CA)
	if err != nil {
		return f, fmt.Errorf("CA: %w", err)
	}
	front, err := parseAuthority(c.AggregatorCA)
	if err != nil {
		return f, fmt.Errorf("aggregator CA: %w", err)
	}
	if err := writeServer(c, ca); err != nil {
		return f, err
	}
	admin, err := ca.issue(subject{name: "lab-administrator", org: "system:masters",
		use: x509.ExtKeyUsageClientAuth})
	if err != nil {
		return f, err
	}
	proxy, err := front.issue(subject{name: "front-proxy-client", use: x509.ExtKeyUsageClientAuth})
	if err != nil {
		return f, err
	}
	config, err := kubeconfig("https://"+c.Listen, c.CA.Certificate, admin)
	if err != nil {
		return f, err
	}
	for name, content := range map[string][]byte{
		"ca.crt": c.CA.Certificate, "front-ca.crt": c.AggregatorCA.Certificate, "sa.key": c.ServiceAccountKey,
		"front.crt": proxy.Certificate, "front.key": proxy.Key,
		"kubeconfig": config, "admission.yaml": c.Admission,
	} {
		if err := os.WriteFile(f.path(name), content, 0o600); err != nil {
			return f, err
		}
	}
	return f, nil
}

// serverPair is the file with the API server's certificate and key: in one file, they always match.
const serverPair = "apiserver.pem"

// ReplaceCertificate gives the API server that runs in c.Dir a certificate with c.CertSANs. The server
// notices it by itself.
func ReplaceCertificate(c Config) error {
	c.defaults()
	ca, err := parseAuthority(c.CA)
	if err != nil {
		return fmt.Errorf("CA: %w", err)
	}
	return writeServer(c, ca)
}

func writeServer(c Config, ca *authority) error {
	names := append([]string{"localhost", "kubernetes", "kubernetes.default", "kubernetes.default.svc",
		"kubernetes.default.svc.cluster.local", "127.0.0.1", c.firstServiceIP()}, c.CertSANs...)
	server, err := ca.issue(subject{name: "kube-apiserver", sans: names, use: x509.ExtKeyUsageServerAuth})
	if err != nil {
		return err
	}
	return os.WriteFile(files{c.Dir}.path(serverPair), append(server.Certificate, server.Key...), 0o600)
}

func apiServerFlags(c Config, f files, etcd string) []string {
	host, port, _ := net.SplitHostPort(c.Listen) // validated
	flags := []string{
		"--bind-address=" + host, "--secure-port=" + port, "--advertise-address=" + c.advertised(host),
		"--endpoint-reconciler-type=none", "--etcd-servers=" + etcd, "--cert-dir=" + f.dir,
		"--tls-cert-file=" + f.path(serverPair), "--tls-private-key-file=" + f.path(serverPair),
		"--client-ca-file=" + f.path("ca.crt"), "--service-cluster-ip-range=" + c.ServiceCIDR,
		"--service-account-issuer=" + c.Issuer,
		"--service-account-key-file=" + f.path("sa.key"), "--service-account-signing-key-file=" +
			f.path("sa.key"),
		"--requestheader-client-ca-file=" + f.path("front-ca.crt"),
		"--requestheader-allowed-names=front-proxy-client",
		"--requestheader-username-headers=X-Remote-User", "--requestheader-group-headers=X-Remote-Group",
		"--requestheader-extra-headers-prefix=X-Remote-Extra-",
		"--proxy-client-cert-file=" + f.path("front.crt"), "--proxy-client-key-file=" + f.path("front.key"),
		"--authorization-mode=Node,RBAC", "--enable-admission-plugins=NodeRestriction",
		"--allow-privileged=true", "--profiling=false",
		"--kubelet-preferred-address-types=InternalIP,ExternalIP,Hostname", // as Talos sets it
	}
	if len(c.Admission) != 0 {
		flags = append(flags, "--admission-control-config-file="+f.path("admission.yaml"))
	}
	for _, extra := range c.Flags {
		flags = append(flags, "--"+extra)
	}
	return flags
}
