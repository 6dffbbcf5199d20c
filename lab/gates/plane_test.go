package gates_test

import (
	"context"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"flag"
	"fmt"
	"math/big"
	"os"
	"sync"
	"testing"
	"time"

	"github.com/go-logr/logr"
	"k8s.io/client-go/dynamic"
	"k8s.io/klog/v2"

	"github.com/ephemeral-castle/castle/lab/internal/kubernetes"
	"github.com/ephemeral-castle/castle/lab/internal/kubernetes/kubernetestest"
)

// plane is the control plane of all tests, as its administrator has it:
// Kubeconfig, REST, Client and Routes, and a client for objects of any kind.
type plane struct {
	cluster *kubernetes.Cluster
	dynamic dynamic.Interface
	mapper  *mapper
}

// begun starts the control plane on the first call. It is a package variable because a process can
// hold only one control plane.
var begun func() (*plane, error)

func TestMain(m *testing.M) {
	os.Exit(run(m))
}

func run(m *testing.M) int {
	flag.Parse()
	dir, err := os.MkdirTemp("", "lab-gates-") // a castle would tidy up castle-…
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 1
	}
	defer os.RemoveAll(dir)
	if !testing.Verbose() {
		klog.SetLogger(logr.Discard())
	}
	begun = sync.OnceValues(func() (*plane, error) { return begin(dir) })
	return m.Run()
}

// control returns the running control plane.
func control(t testing.TB) *plane {
	t.Helper()
	p, err := begun()
	if err != nil {
		t.Fatal(err)
	}
	return p
}

// begin's control plane lasts as long as the process.
func begin(dir string) (*plane, error) {
	c, err := kubernetestest.Config(dir)
	if err != nil {
		return nil, err
	}
	cluster, err := kubernetes.Start(context.Background(), c)
	if err != nil {
		return nil, err
	}
	objects, err := dynamic.NewForConfig(cluster.REST)
	if err != nil {
		return nil, err
	}
	return &plane{cluster: cluster, dynamic: objects, mapper: newMapper(cluster.Client.Discovery())}, nil
}

func newKey() *ecdsa.PrivateKey {
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		panic(err) // the system has no randomness
	}
	return key
}

func encode(key *ecdsa.PrivateKey) []byte {
	der, err := x509.MarshalECPrivateKey(key)
	if err != nil {
		panic(err) // the curve is one that it knows
	}
	return pem.EncodeToMemory(&pem.Block{Type: "EC PRIVATE KEY", Bytes: der})
}

// newAuthority is self-signed and good for signing, and for serving as the hosts.
func newAuthority(name string, hosts ...string) (kubernetes.KeyPair, error) {
	key := newKey()
	template := &x509.Certificate{
		SerialNumber: big.NewInt(1), Subject: pkix.Name{CommonName: name}, DNSNames: hosts,
		NotBefore: time.Now().Add(-time.Hour), NotAfter: time.Now().Add(time.Hour), IsCA: true,
		BasicConstraintsValid: true,
		KeyUsage:              x509.KeyUsageCertSign | x509.KeyUsageDigitalSignature,
	}
	der, err := x509.CreateCertificate(rand.Reader, template, template, key.Public(), key)
	return kubernetes.KeyPair{Certificate: pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: der}),
		Key: encode(key)}, err
}
