package datacenter

import (
	"bytes"
	"context"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/json"
	"encoding/pem"
	"math/big"
	"net"
	"net/http"
	"net/netip"
	"strings"
	"sync"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"

	"github.com/ephemeral-castle/castle/internal/emulator/talos"
	"github.com/ephemeral-castle/castle/lab/internal/front"
)

// patience is for machines that do ten other things.
const patience = 3 * time.Minute

// lines is a log that can be waited for.
type lines struct {
	mu   sync.Mutex
	text bytes.Buffer
	news chan struct{}
}

func (l *lines) Write(p []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.text.Write(p)
	select {
	case l.news <- struct{}{}:
	default:
	}
	return len(p), nil
}

func (l *lines) String() string {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.text.String()
}

func (l *lines) await(t *testing.T, word string, times int) {
	t.Helper()
	limit := time.After(patience)
	for {
		text := l.String()
		if strings.Count(text, word) >= times {
			return
		}
		select {
		case <-l.news:
		case <-limit:
			t.Fatalf("%q does not occur %d times:\n%s", word, times, text)
		}
	}
}

func start(t *testing.T, c Config) (*Datacenter, *lines) {
	t.Helper()
	a, err := front.NewAuthority()
	if err != nil {
		t.Fatal(err)
	}
	log := &lines{news: make(chan struct{}, 1)}
	c.Dir, c.Authority, c.Log = t.TempDir(), a, log
	c.Front, c.FrontPort, c.Speed = netip.MustParseAddr("127.0.7.2"), uint16(number(freePort(t), 0)), 1000
	ctx, cancel := context.WithCancel(context.Background())
	d, err := Start(ctx, c)
	if err != nil {
		cancel()
		t.Fatal(err)
	}
	t.Cleanup(func() {
		d.Close()
		cancel()
	})
	return d, log
}

func client(d *Datacenter) kubernetes.Interface {
	d.kube.mu.Lock()
	defer d.kube.mu.Unlock()
	return d.kube.cluster.process.Client
}

// awaitNodes waits until exactly these nodes are there and as ready as that. One that has said that it is not
// ready is called unknown when it has been silent for some seconds.
func awaitNodes(t *testing.T, k kubernetes.Interface, want map[string]corev1.ConditionStatus) {
	t.Helper()
	w, err := k.CoreV1().Nodes().Watch(t.Context(), metav1.ListOptions{})
	if err != nil {
		t.Fatal(err)
	}
	defer w.Stop()
	limit, have := time.After(patience), map[string]corev1.ConditionStatus{}
	for {
		select {
		case e := <-w.ResultChan():
			n, ok := e.Object.(*corev1.Node)
			if !ok {
				t.Fatalf("watch: %v", e)
			}
			for _, c := range n.Status.Conditions {
				if c.Type == corev1.NodeReady {
					have[n.Name] = c.Status
				}
			}
		case <-limit:
			t.Fatalf("nodes: %v, want %v", have, want)
		}
		same := len(have) == len(want)
		for name, status := range want {
			silent := status == corev1.ConditionFalse && have[name] == corev1.ConditionUnknown
			same = same && (have[name] == status || silent)
		}
		if same {
			return
		}
	}
}

func login(t *testing.T, url string, v *folders) string {
	t.Helper()
	credentials, err := json.Marshal(map[string]string{"clientId": v.clientID,
		"clientSecret": v.clientSecret})
	if err != nil {
		t.Fatal(err)
	}
	r, err := http.Post(url+"/api/v1/auth/universal-auth/login", "application/json",
		bytes.NewReader(credentials))
	if err != nil {
		t.Fatal(err)
	}
	defer r.Body.Close()
	var body struct{ AccessToken string }
	if err := json.NewDecoder(r.Body).Decode(&body); err != nil || body.AccessToken == "" {
		t.Fatalf("login: %v", err)
	}
	return body.AccessToken
}

func freePort(t *testing.T) string {
	t.Helper()
	a, err := freeAddress()
	if err != nil {
		t.Fatal(err)
	}
	_, port, err := net.SplitHostPort(a)
	if err != nil {
		t.Fatal(err)
	}
	return port
}

func spec(t *testing.T, vip, port string) talos.ClusterSpec {
	t.Helper()
	ca, caKey := authority(t)
	front, frontKey := authority(t)
	_, account := authority(t)
	return talos.ClusterSpec{
		Name: "blue", Endpoint: "https://" + net.JoinHostPort(vip, port), VIPs: []string{vip},
		APIPort: int(number(port, 0)),
		CACert:  ca, CAKey: caKey, AggregatorCACert: front, AggregatorCAKey: frontKey,
		ServiceAccountKey: account,
		ServiceCIDRs:      []string{"10.96.0.0/12"},
		PodCIDRs:          []string{"10.244.0.0/16"}, CoreDNS: true,
	}
}

func authority(t *testing.T) (cert, key []byte) {
	t.Helper()
	k, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	template := &x509.Certificate{SerialNumber: big.NewInt(1), Subject: pkix.Name{CommonName: "test"},
		NotBefore: time.Now().Add(-time.Hour),
		NotAfter:  time.Now().Add(time.Hour), IsCA: true, BasicConstraintsValid: true,
		KeyUsage: x509.KeyUsageCertSign}
	der, err := x509.CreateCertificate(rand.Reader, template, template, k.Public(), k)
	if err != nil {
		t.Fatal(err)
	}
	keyDER, err := x509.MarshalECPrivateKey(k)
	if err != nil {
		t.Fatal(err)
	}
	return pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: der}),
		pem.EncodeToMemory(&pem.Block{Type: "EC PRIVATE KEY", Bytes: keyDER})
}
