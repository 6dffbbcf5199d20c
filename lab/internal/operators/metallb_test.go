package operators

import (
	"bytes"
	"crypto/tls"
	"crypto/x509"
	"encoding/base64"
	"encoding/json"
	"net/http"
	"strings"
	"testing"
	"time"

	admissionv1 "k8s.io/api/admission/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/ephemeral-castle/castle/lab/internal/operators/cluster"
	"github.com/ephemeral-castle/castle/lab/internal/operators/clustertest"
)

// ask calls a webhook as the API server does, trusting the caBundle only.
func ask(t *testing.T, address, serverName, path string, bundle []byte,
	request admissionv1.AdmissionRequest) *admissionv1.AdmissionResponse {
	t.Helper()
	roots := x509.NewCertPool()
	if !roots.AppendCertsFromPEM(bundle) {
		t.Fatal("the caBundle holds no certificate")
	}
	client := http.Client{
		Transport: &http.Transport{TLSClientConfig: &tls.Config{RootCAs: roots, ServerName: serverName}},
	}
	defer client.CloseIdleConnections()
	body, err := json.Marshal(admissionv1.AdmissionReview{Request: &request})
	if err != nil {
		t.Fatal(err)
	}
	response, err := client.Post("https://"+address+path, "application/json", strings.NewReader(string(body)))
	if err != nil {
		t.Fatal(err)
	}
	defer response.Body.Close()
	var review admissionv1.AdmissionReview
	if err := json.NewDecoder(response.Body).Decode(&review); err != nil {
		t.Fatal(err)
	}
	return review.Response
}

func TestMetalLBsAuthorityConvertsItsPeersToo(t *testing.T) {
	s := newStage(1, clustertest.Deployment("metallb-system", "metallb-controller"),
		configuration("metallb-webhook-configuration"))
	m := newMetalLB(s.World, routes{})
	defer m.Close()
	s.Create(t, definitions(),
		`{"apiVersion":"apiextensions.k8s.io/v1","kind":"CustomResourceDefinition",
		"metadata":{"name":"bgppeers.metallb.io"},
		"spec":{"conversion":{"strategy":"Webhook","webhook":{
			"clientConfig":{"service":{"name":"metallb-webhook-service"}}}}}}`)
	s.Look(t, m)
	s.Later(t, 3*time.Second, m)
	d := s.Get(t, definitions(), "", "bgppeers.metallb.io")
	got, err := base64.StdEncoding.DecodeString(cluster.Text(d.Object, "spec", "conversion", "webhook",
		"clientConfig", "caBundle"))
	if err != nil || len(got) == 0 || !bytes.Equal(got, bundle(t, s, "metallb-webhook-configuration")) {
		t.Errorf("definition: %v %v", d.Object["spec"], err)
	}
}

const metallbWorkload = "metallb-system/metallb-controller:9443"

func TestMetalLBsWebhookIsTrustedBeforeItListensAndListensLate(t *testing.T) {
	s, r := newStage(1, clustertest.Deployment("metallb-system", "metallb-controller"),
		configuration("metallb-webhook-configuration")), routes{}
	s.World.Faults.Times = map[string]time.Duration{"webhook-late": time.Minute}
	m := newMetalLB(s.World, r)
	defer m.Close()
	s.Look(t, m)
	if bundle(t, s, "metallb-webhook-configuration") != nil {
		t.Error("the caBundle is there before its time")
	}
	s.Later(t, 3*time.Second, m)
	if bundle(t, s, "metallb-webhook-configuration") == nil {
		t.Error("no caBundle after its time")
	}
	s.Later(t, 5*time.Second, m)
	s.Later(t, 59*time.Second, m)
	if len(r) > 0 {
		t.Errorf("it listens before a minute and its own time have passed: %v", r)
	}
	s.Later(t, time.Second, m)
	if r[metallbWorkload] == "" {
		t.Fatalf("it does not listen: %v", r)
	}
	answer := ask(t, r[metallbWorkload], "metallb-webhook-service.metallb-system.svc",
		"/validate-metallb-io-v1beta1-l2advertisement",
		bundle(t, s, "metallb-webhook-configuration"),
		admissionv1.AdmissionRequest{UID: "1", Operation: admissionv1.Create, Namespace: "metallb-system"})
	if !answer.Allowed || answer.UID != "1" {
		t.Errorf("answer: %+v", answer)
	}
}

// The operator starts again, on the same machine or in a cluster that was recovered.
func TestAWebhookKeepsItsCertificateOverARestart(t *testing.T) {
	s := newStage(0, clustertest.Deployment("metallb-system", "metallb-controller"),
		configuration("metallb-webhook-configuration"))
	var bundles [][]byte
	for _, pause := range []time.Duration{0, time.Hour, 366 * 24 * time.Hour} {
		m := newMetalLB(s.World, routes{})
		s.Later(t, pause, m)
		bundles = append(bundles, bundle(t, s, "metallb-webhook-configuration"))
		m.Close()
	}
	if !bytes.Equal(bundles[0], bundles[1]) {
		t.Error("another one")
	}
	if bytes.Equal(bundles[1], bundles[2]) {
		t.Error("it has expired")
	}
}

func TestMetalLBStopsListeningWhenItsControllerIsGone(t *testing.T) {
	s, r := newStage(0, clustertest.Deployment("metallb-system", "metallb-controller")), routes{}
	m := newMetalLB(s.World, r)
	defer m.Close()
	s.Look(t, m)
	if len(r) != 1 {
		t.Fatalf("routes: %v", r)
	}
	if err := s.World.Typed.AppsV1().Deployments("metallb-system").Delete(t.Context(), "metallb-controller",
		metav1.DeleteOptions{}); err != nil {
		t.Fatal(err)
	}
	s.Look(t, m)
	if len(r) != 0 {
		t.Errorf("routes: %v", r)
	}
}
