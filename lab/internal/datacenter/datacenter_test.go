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
	"errors"
	"math/big"
	"net"
	"net/http"
	"net/http/httptest"
	"net/netip"
	"os"
	"slices"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"

	"github.com/ephemeral-castle/castle/internal/emulator/infisical"
	"github.com/ephemeral-castle/castle/internal/emulator/proxmox"
	"github.com/ephemeral-castle/castle/internal/emulator/talos"
	"github.com/ephemeral-castle/castle/lab/internal/controlplane"
	"github.com/ephemeral-castle/castle/lab/internal/front"
)

// The test program is also the control plane's process.
func TestMain(m *testing.M) {
	if len(os.Args) == 2 && os.Args[1] == controlplane.Arg {
		if err := controlplane.Main(os.Stdin, os.Stdout); err != nil {
			os.Exit(1)
		}
	}
	os.Exit(m.Run())
}

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

func (l *lines) await(t *testing.T, word string, times int) {
	t.Helper()
	limit := time.After(time.Minute)
	for {
		l.mu.Lock()
		text := l.text.String()
		l.mu.Unlock()
		if strings.Count(text, word) >= times {
			return
		}
		select {
		case <-l.news:
		case <-limit:
			t.Fatalf("%q is not said %d times:\n%s", word, times, text)
		}
	}
}

// One real Kubernetes goes through what machines do to it.
func TestKubernetesLivesAndDiesWithItsMachines(t *testing.T) {
	d, log := start(t, Config{})
	port := freePort(t)
	cp, worker, vip := netip.MustParsePrefix("127.0.7.11/24"), netip.MustParsePrefix("127.0.7.14/24"), "127.0.7.10"
	cpVM := proxmox.VM{ID: 421, Name: "cp-01", Address: cp, Image: "nocloud.img", Config: map[string]string{"cores": "2", "memory": "2048"}}
	workerVM := proxmox.VM{ID: 424, Name: "worker-01", Address: worker, Image: "nocloud.img"}
	first := talos.MachineSpec{Address: cp.Addr().String(), Hostname: "cp-01", ControlPlane: true, TalosVersion: "v1.13.0", KubernetesVersion: "v1.36.3"}
	second := talos.MachineSpec{Address: worker.Addr().String(), Hostname: "worker-01", TalosVersion: "v1.13.0", KubernetesVersion: "v1.36.3"}
	api := net.JoinHostPort(vip, port)

	d.started(cpVM)
	d.started(workerVM)
	d.configured(second) // before there is a cluster that it could join
	d.configured(first)
	d.bootstrapped(spec(t, vip, port))
	log.await(t, "kubernetes: answers at", 2)
	k := client(d)
	awaitNodes(t, k, map[string]corev1.ConditionStatus{"cp-01": "True", "worker-01": "True"})
	if _, err := k.CoreV1().ConfigMaps("default").Create(t.Context(), &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Name: "kept"}}, metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
	open, err := net.Dial("tcp", api)
	if err != nil {
		t.Fatal(err)
	}
	defer open.Close()

	d.stopped(workerVM)
	awaitNodes(t, k, map[string]corev1.ConditionStatus{"cp-01": "True", "worker-01": "Unknown"})

	d.stopped(cpVM)
	if _, err := net.Dial("tcp", api); !errors.Is(err, syscall.ECONNREFUSED) {
		t.Errorf("the last control plane is off, and the API says: %v", err)
	}
	if err := open.SetReadDeadline(time.Now().Add(time.Minute)); err != nil {
		t.Fatal(err)
	}
	if _, err := open.Read(make([]byte, 1)); err == nil || errors.Is(err, os.ErrDeadlineExceeded) {
		t.Errorf("an open connection outlives its machine: %v", err)
	}

	d.started(cpVM)
	d.configured(first)
	log.await(t, "kubernetes: answers at", 4)
	if _, err := client(d).CoreV1().ConfigMaps("default").Get(t.Context(), "kept", metav1.GetOptions{}); err != nil {
		t.Errorf("after the machine is back: %v", err)
	}
	if left := d.Leftovers(); !slices.Contains(left, "Kubernetes blue") {
		t.Errorf("left over: %v", left)
	}

	d.stopped(cpVM)
	d.destroyed(workerVM)
	d.destroyed(cpVM)
	if left := d.Leftovers(); len(left) != 0 {
		t.Errorf("left over: %v", left)
	}
}

func TestMachinesBeyondTheLoopbackAreNotBootedOutside(t *testing.T) {
	d, log := start(t, Config{})
	d.started(proxmox.VM{ID: 1, Name: "cp-01", Image: "nocloud.img", Address: netip.MustParsePrefix("192.0.2.11/24")})
	log.await(t, "not used outside a network namespace", 1)
	if s := d.fleet.Stage("192.0.2.11"); s != talos.Off {
		t.Errorf("stage: %s", s)
	}
}

func TestAVMWithoutAnImageBootsNothing(t *testing.T) {
	d, _ := start(t, Config{})
	d.started(proxmox.VM{ID: 1, Name: "blank", Address: netip.MustParsePrefix("127.0.7.30/24")})
	if s := d.fleet.Stage("127.0.7.30"); s != talos.Off {
		t.Errorf("stage: %s", s)
	}
}

func TestEveryInfisicalFolderHoldsTheUsersSecrets(t *testing.T) {
	v := newVault(Config{Secrets: []string{"OWN_SECRET"}, Faults: Faults{SecretExists: true}})
	s := httptest.NewServer(v.handler())
	defer s.Close()
	token := login(t, s.URL, v)
	names := func() []string {
		r, err := http.NewRequestWithContext(t.Context(), http.MethodGet,
			s.URL+"/api/v3/secrets/raw?workspaceId=p&environment=prod&secretPath=/castle/blue", nil)
		if err != nil {
			t.Fatal(err)
		}
		r.Header.Set("Authorization", "Bearer "+token)
		answer, err := http.DefaultClient.Do(r)
		if err != nil {
			t.Fatal(err)
		}
		defer answer.Body.Close()
		var body struct {
			Secrets []struct{ SecretKey, SecretValue string }
		}
		if err := json.NewDecoder(answer.Body).Decode(&body); err != nil {
			t.Fatal(err)
		}
		var all []string
		for _, secret := range body.Secrets {
			if secret.SecretValue != "" {
				all = append(all, secret.SecretKey)
			}
		}
		return all
	}
	for _, want := range []string{"PROXMOX_TOKEN_ID", "PROXMOX_TOKEN_SECRET", "GITHUB_TOKEN", "OWN_SECRET", "KUBECONFIG_CONTENT"} {
		if !slices.Contains(names(), want) {
			t.Errorf("%s is missing", want)
		}
	}
	if left := v.added(); len(left) != 1 || left[0].Key != "KUBECONFIG_CONTENT" {
		t.Errorf("added by clusters: %v", left)
	}
	v.server.Remove(infisical.Folder{Workspace: "p", Environment: "prod", Path: "/castle/blue"}, "KUBECONFIG_CONTENT")
	if slices.Contains(names(), "KUBECONFIG_CONTENT") {
		t.Error("what was deleted is back")
	}
}

func TestMissingNoticesTheLossOfAForeignVM(t *testing.T) {
	d, _ := start(t, Config{Faults: Faults{GhostVM: 421}})
	if m, left := d.Missing(), d.Leftovers(); len(m) != 0 || len(left) != 0 {
		t.Errorf("missing %v, left over %v", m, left)
	}
	d.proxmox.RemoveVM(421)
	if m := d.Missing(); len(m) != 1 || !strings.Contains(m[0], `VM 421 "prod-database"`) {
		t.Errorf("missing %v", m)
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
	d.mu.Lock()
	defer d.mu.Unlock()
	return d.cluster.process.Client
}

// awaitNodes waits until exactly these nodes are there and as ready as that.
func awaitNodes(t *testing.T, k kubernetes.Interface, want map[string]corev1.ConditionStatus) {
	t.Helper()
	w, err := k.CoreV1().Nodes().Watch(t.Context(), metav1.ListOptions{})
	if err != nil {
		t.Fatal(err)
	}
	defer w.Stop()
	limit, have := time.After(time.Minute), map[string]corev1.ConditionStatus{}
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
			same = same && have[name] == status
		}
		if same {
			return
		}
	}
}

func login(t *testing.T, url string, v *vault) string {
	t.Helper()
	said, err := json.Marshal(map[string]string{"clientId": v.clientID, "clientSecret": v.clientSecret})
	if err != nil {
		t.Fatal(err)
	}
	r, err := http.Post(url+"/api/v1/auth/universal-auth/login", "application/json", bytes.NewReader(said))
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
		Name: "blue", Endpoint: "https://" + net.JoinHostPort(vip, port), VIPs: []string{vip}, APIPort: int(number(port, 0)),
		CACert: ca, CAKey: caKey, AggregatorCACert: front, AggregatorCAKey: frontKey, ServiceAccountKey: account,
		SANs: []string{vip}, ServiceCIDRs: []string{"10.96.0.0/12"}, PodCIDRs: []string{"10.244.0.0/16"}, CoreDNS: true,
	}
}

func authority(t *testing.T) (cert, key []byte) {
	t.Helper()
	k, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	template := &x509.Certificate{SerialNumber: big.NewInt(1), Subject: pkix.Name{CommonName: "test"}, NotBefore: time.Now().Add(-time.Hour),
		NotAfter: time.Now().Add(time.Hour), IsCA: true, BasicConstraintsValid: true, KeyUsage: x509.KeyUsageCertSign}
	der, err := x509.CreateCertificate(rand.Reader, template, template, k.Public(), k)
	if err != nil {
		t.Fatal(err)
	}
	keyDER, err := x509.MarshalECPrivateKey(k)
	if err != nil {
		t.Fatal(err)
	}
	return pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: der}), pem.EncodeToMemory(&pem.Block{Type: "EC PRIVATE KEY", Bytes: keyDER})
}
