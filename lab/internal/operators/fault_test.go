package operators

import (
	"crypto/tls"
	"crypto/x509"
	"net/http"
	"strings"
	"testing"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"

	"github.com/ephemeral-castle/castle/lab/internal/operators/cluster"
	"github.com/ephemeral-castle/castle/lab/internal/operators/clustertest"
)

// faulty returns a stage with a fault of ten seconds, and the fault's reports.
func faulty(t *testing.T, name string, objects ...runtime.Object) (*clustertest.Stage, *[]string) {
	t.Helper()
	s, told := newStage(0, objects...), &[]string{}
	s.World.Faults.Times = map[string]time.Duration{name: 10 * time.Second}
	s.World.Turn = func(turn cluster.Turn) {
		word := turn.Fault + " begins"
		if turn.Ends {
			word = turn.Fault + " ends"
		}
		*told = append(*told, word)
	}
	return s, told
}

func wantTold(t *testing.T, told *[]string, want ...string) {
	t.Helper()
	if got := strings.Join(*told, ", "); got != strings.Join(want, ", ") {
		t.Errorf("told: %s, want %s", got, strings.Join(want, ", "))
	}
}

func TestAFaultHoldsForItsTimeAndNeverAgain(t *testing.T) {
	s, told := faulty(t, "crd-absent")
	f := s.World.Fault("crd-absent", "ipaddresspools")
	var held []bool
	for _, pause := range []time.Duration{0, 9 * time.Second, time.Second, time.Hour} {
		s.Time = s.Time.Add(pause)
		held = append(held, f.Holds())
	}
	if held[0] != true || held[1] != true || held[2] != false || held[3] != false {
		t.Errorf("it held: %v", held)
	}
	wantTold(t, told, "crd-absent begins", "crd-absent ends")
	s.World.Faults.Times["crd-absent"] = 0 // as an operator is told that comes after it
	if over := s.World.Fault("crd-absent", "ipaddresspools"); over.Holds() || over.Comes() ||
		!s.World.Asked("crd-absent") {
		t.Error("a fault that is over holds again, or is forgotten")
	}
	wantTold(t, told, "crd-absent begins", "crd-absent ends")
}

func TestAFaultCountsFromCastlesFirstRequestAfterItBegan(t *testing.T) {
	s, told := faulty(t, "crd-absent")
	s.World.Asks = &cluster.Asks{}
	f := s.World.Fault("crd-absent", "ipaddresspools")
	ask := func(url string) { s.World.Asks.Add(s.Time, url) }
	ask("/apis/apiextensions.k8s.io/v1/customresourcedefinitions/ipaddresspools.metallb.io") // too early
	for _, step := range []struct {
		pause time.Duration
		url   string
		holds bool
	}{
		{time.Second, "", true},
		{20 * time.Second, "/api/v1/nodes", true}, // asks for something else
		{time.Second, "?fieldSelector=metadata.name%3Dipaddresspools.metallb.io", true},
		{9 * time.Second, "", true},
		{time.Second, "", false},
	} {
		s.Time = s.Time.Add(step.pause)
		if step.url != "" {
			ask(step.url)
		}
		if got := f.Holds(); got != step.holds {
			t.Errorf("after %s and %q it holds: %v", step.pause, step.url, got)
		}
	}
	wantTold(t, told, "crd-absent begins", "crd-absent ends")
}

func TestAFaultThatNobodyMeetsEnds(t *testing.T) {
	s, _ := faulty(t, "crd-absent")
	s.World.Asks = &cluster.Asks{}
	f := s.World.Fault("crd-absent", "ipaddresspools")
	f.Holds()
	s.Time = s.Time.Add(30 * time.Second)
	if !f.Holds() {
		t.Error("it is over without its time")
	}
	s.Time = s.Time.Add(10 * time.Second)
	if f.Holds() {
		t.Error("it lasts for ever")
	}
}

func TestMetalLBsHandlerIsMissingWhileTheWebhookRefuses(t *testing.T) {
	s, told := faulty(t, "webhook-refuses", clustertest.Deployment("metallb-system", "metallb-controller"),
		configuration("metallb-webhook-configuration"))
	r := routes{}
	m := newMetalLB(s.World, r)
	defer m.Close()
	s.Look(t, m)
	post := func(path string) int {
		t.Helper()
		roots := x509.NewCertPool()
		roots.AppendCertsFromPEM(bundle(t, s, "metallb-webhook-configuration"))
		client := http.Client{
			Transport: &http.Transport{
				TLSClientConfig: &tls.Config{RootCAs: roots,
					ServerName: "metallb-webhook-service.metallb-system.svc"},
			},
		}
		defer client.CloseIdleConnections()
		body := `{"request":{"uid":"1","operation":"CREATE","namespace":"metallb-system",` +
			`"object":{"metadata":{"name":"a"},"spec":{"addresses":["192.0.2.0/24"]}}}}`
		response, err := client.Post("https://"+r[metallbWorkload]+"/validate-metallb-io-v1beta1-"+path,
			"application/json", strings.NewReader(body))
		if err != nil {
			t.Fatal(err)
		}
		response.Body.Close()
		return response.StatusCode
	}
	if pool, advertisement := post("ipaddresspool"), post("l2advertisement"); pool != 200 ||
		advertisement != 404 {
		t.Errorf("pool %d, advertisement %d", pool, advertisement)
	}
	s.Later(t, 10*time.Second, m)
	wantTold(t, told, "webhook-refuses begins", "webhook-refuses ends") // though nobody called
	if status := post("l2advertisement"); status != 200 {
		t.Errorf("afterwards: %d", status)
	}
}

func TestExternalSecretsSecondWebhookLacksAuthorityForAWhile(t *testing.T) {
	s, told := faulty(t, "cabundle-empty", configuration("secretstore-validate"),
		configuration("externalsecret-validate"),
		clustertest.Deployment("external-secrets", "external-secrets-webhook"),
		clustertest.Deployment("external-secrets", "external-secrets-cert-controller"))
	e := newExternalSecrets(s.World, routes{}, nil)
	defer e.Close()
	s.Look(t, e)
	if bundle(t, s, "secretstore-validate") == nil || bundle(t, s, "externalsecret-validate") != nil ||
		!e.h.serving() {
		t.Error("not the second configuration alone lacks the authority, or the webhook does not serve")
	}
	s.Later(t, 10*time.Second, e)
	if bundle(t, s, "externalsecret-validate") == nil {
		t.Error("afterwards: no authority")
	}
	wantTold(t, told, "cabundle-empty begins", "cabundle-empty ends")
}

func TestAStoreHasNoStatusForAWhile(t *testing.T) {
	s, told := faulty(t, "conditions-none", clustertest.Deployment("external-secrets", "external-secrets"))
	e := newExternalSecrets(s.World, routes{}, nil)
	s.Look(t, e)
	wantTold(t, told) // nothing lacks a status yet
	s.Create(t, stores(), `{"apiVersion":"external-secrets.io/v1","kind":"ClusterSecretStore",`+
		`"metadata":{"name":"infisical"},"spec":{}}`)
	s.Look(t, e)
	if status, found := s.Get(t, stores(), "", "infisical").Object["status"]; found {
		t.Errorf("status: %v", status)
	}
	s.Time = s.Time.Add(10 * time.Second)
	if err := e.Look(t.Context()); err == nil ||
		!strings.Contains(err.Error(), "ClusterSecretStore infisical") {
		t.Errorf("the store names no credentials, and nobody says so: %v", err)
	}
	if got := cluster.ConditionOf(s.Get(t, stores(), "", "infisical").Object, "Ready"); got != "False" {
		t.Errorf("afterwards: Ready %q", got)
	}
	wantTold(t, told, "conditions-none begins", "conditions-none ends")
}

func TestLonghornsAuthorityHasExpiredAndIsRenewed(t *testing.T) {
	s, told := faulty(t, "ca-expired", longhornObjects()...)
	r := routes{}
	l := newLonghorn(s.World, r, t.TempDir())
	defer l.Close()
	handshake := func() error {
		t.Helper()
		c, err := s.World.Typed.AdmissionregistrationV1().ValidatingWebhookConfigurations().Get(t.Context(),
			validator, metav1.GetOptions{})
		if err != nil {
			t.Fatal(err)
		}
		roots := x509.NewCertPool()
		roots.AppendCertsFromPEM(c.Webhooks[0].ClientConfig.CABundle)
		connection, err := tls.Dial("tcp", r["longhorn-system/longhorn-manager:9502"], &tls.Config{
			RootCAs: roots, ServerName: "longhorn-admission-webhook.longhorn-system.svc", Time: s.World.Now})
		if err == nil {
			connection.Close()
		}
		return err
	}
	s.Look(t, l)
	if err := handshake(); err == nil ||
		!strings.Contains(err.Error(), "certificate has expired or is not yet valid") {
		t.Errorf("handshake: %v", err)
	}
	s.Later(t, 10*time.Second, l)
	s.Look(t, l)
	if err := handshake(); err != nil {
		t.Errorf("afterwards: %v", err)
	}
	wantTold(t, told, "ca-expired begins", "ca-expired ends")
}

func TestMetalLBsDefinitionsComeLate(t *testing.T) {
	text := "\n---\napiVersion: apiextensions.k8s.io/v1\nkind: CustomResourceDefinition\nmetadata:\n" +
		"  name: ipaddresspools.metallb.io\n" +
		"---\napiVersion: apiextensions.k8s.io/v1\nkind: CustomResourceDefinition\nmetadata:\n" +
		"  name: bgppeers.metallb.io\n"
	s, told := faulty(t, "crd-absent",
		&corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Namespace: "metallb-system",
			Name: "metallb-late-crds"}, Data: map[string]string{"crds.yaml": text}})
	m := newMetalLB(s.World, routes{})
	s.Look(t, m)
	if _, err := s.World.Untyped.Resource(definitions()).Get(t.Context(), "ipaddresspools.metallb.io",
		metav1.GetOptions{}); !apierrors.IsNotFound(err) {
		t.Errorf("before its time: %v", err)
	}
	s.Later(t, 10*time.Second, m)
	s.Look(t, m) // what is there stays there
	s.Get(t, definitions(), "", "ipaddresspools.metallb.io")
	s.Get(t, definitions(), "", "bgppeers.metallb.io")
	wantTold(t, told, "crd-absent begins", "crd-absent ends")
}

func TestTheSpeakersLabelComesLate(t *testing.T) {
	speaker := &appsv1.DaemonSet{ObjectMeta: metav1.ObjectMeta{Namespace: "metallb-system",
		Name: "metallb-speaker"}}
	s, told := faulty(t, "daemonset-no-node",
		&corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: "worker-01"}}, speaker)
	m := newMetalLB(s.World, routes{})
	label := func() string {
		t.Helper()
		n, err := s.World.Typed.CoreV1().Nodes().Get(t.Context(), "worker-01", metav1.GetOptions{})
		if err != nil {
			t.Fatal(err)
		}
		return n.Labels[SpeakerLabel]
	}
	s.Look(t, m)
	wantTold(t, told) // its controller has not seen it
	speaker.Status.ObservedGeneration = 1
	if _, err := s.World.Typed.AppsV1().DaemonSets("metallb-system").UpdateStatus(t.Context(), speaker,
		metav1.UpdateOptions{}); err != nil {
		t.Fatal(err)
	}
	s.Look(t, m)
	if label() != "" {
		t.Error("the node is labelled before its time")
	}
	s.Later(t, 10*time.Second, m)
	if label() != "true" {
		t.Error("the node is not labelled")
	}
	wantTold(t, told, "daemonset-no-node begins", "daemonset-no-node ends")
}

// Without a fault the stand-ins do not change the charts' objects.
func TestNobodyLabelsNodesUnasked(t *testing.T) {
	speaker := &appsv1.DaemonSet{ObjectMeta: metav1.ObjectMeta{Namespace: "metallb-system",
		Name: "metallb-speaker"}, Status: appsv1.DaemonSetStatus{ObservedGeneration: 1}}
	s := newStage(0, &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: "worker-01"}}, speaker)
	m := newMetalLB(s.World, routes{})
	s.Look(t, m)
	n, err := s.World.Typed.CoreV1().Nodes().Get(t.Context(), "worker-01", metav1.GetOptions{})
	if err != nil || len(n.Labels) != 0 {
		t.Errorf("labels: %v %v", n.Labels, err)
	}
}
