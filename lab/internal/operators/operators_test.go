package operators

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"encoding/json"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	admissionv1 "k8s.io/api/admission/v1"
	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"
	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	untypedfake "k8s.io/client-go/dynamic/fake"
	typedfake "k8s.io/client-go/kubernetes/fake"

	"github.com/ephemeral-castle/castle/internal/emulator/infisical"
)

// routes records what was registered.
type routes map[string]string

func (r routes) Register(workload, address string) { r[workload] = address }
func (r routes) Unregister(workload string)        { delete(r, workload) }

// stage is a cluster of fakes with a clock that stands still until it is moved.
type stage struct {
	*world
	time time.Time
}

func newStage(t *testing.T, speed float64, objects ...runtime.Object) *stage {
	t.Helper()
	kinds := map[schema.GroupVersionResource]string{
		pools(): "IPAddressPoolList", stores(): "ClusterSecretStoreList", externals(): "ExternalSecretList",
		repositories(): "GitRepositoryList", kustomizations(): "KustomizationList", longhornKind("nodes"): "NodeList",
	}
	s := &stage{time: time.Date(2026, 2, 1, 12, 0, 0, 0, time.UTC)}
	s.world = newWorld(typedfake.NewClientset(objects...), untypedfake.NewSimpleDynamicClientWithCustomListKinds(runtime.NewScheme(), kinds),
		speed, func() time.Time { return s.time })
	return s
}

func (s *stage) look(t *testing.T, o operator) {
	t.Helper()
	if err := o.look(t.Context()); err != nil {
		t.Fatal(err)
	}
}

// later moves the clock and looks again.
func (s *stage) later(t *testing.T, d time.Duration, o operator) {
	t.Helper()
	s.time = s.time.Add(d)
	s.look(t, o)
}

func (s *stage) put(t *testing.T, in schema.GroupVersionResource, text string) {
	t.Helper()
	var object unstructured.Unstructured
	if err := json.Unmarshal([]byte(text), &object.Object); err != nil {
		t.Fatal(err)
	}
	if _, err := s.untyped.Resource(in).Namespace(object.GetNamespace()).Create(t.Context(), &object, metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
}

func (s *stage) get(t *testing.T, in schema.GroupVersionResource, namespace, name string) *unstructured.Unstructured {
	t.Helper()
	object, err := s.untyped.Resource(in).Namespace(namespace).Get(t.Context(), name, metav1.GetOptions{})
	if err != nil {
		t.Fatal(err)
	}
	return object
}

func deployment(namespace, name string) *appsv1.Deployment {
	return &appsv1.Deployment{ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: name}, Status: appsv1.DeploymentStatus{ReadyReplicas: 1}}
}

func configuration(name string) *admissionregistrationv1.ValidatingWebhookConfiguration {
	return &admissionregistrationv1.ValidatingWebhookConfiguration{ObjectMeta: metav1.ObjectMeta{Name: name},
		Webhooks: []admissionregistrationv1.ValidatingWebhook{{Name: "one"}, {Name: "two"}}}
}

func (s *stage) bundle(t *testing.T, name string) []byte {
	t.Helper()
	c, err := s.typed.AdmissionregistrationV1().ValidatingWebhookConfigurations().Get(t.Context(), name, metav1.GetOptions{})
	if err != nil {
		t.Fatal(err)
	}
	if string(c.Webhooks[0].ClientConfig.CABundle) != string(c.Webhooks[1].ClientConfig.CABundle) {
		t.Error("one webhook of the configuration has the authority, the other has not")
	}
	return c.Webhooks[0].ClientConfig.CABundle
}

// ask calls a webhook as the API server does, trusting the caBundle only.
func ask(t *testing.T, address, serverName, path string, bundle []byte, request admissionv1.AdmissionRequest) *admissionv1.AdmissionResponse {
	t.Helper()
	roots := x509.NewCertPool()
	if !roots.AppendCertsFromPEM(bundle) {
		t.Fatal("the caBundle holds no certificate")
	}
	client := http.Client{Transport: &http.Transport{TLSClientConfig: &tls.Config{RootCAs: roots, ServerName: serverName}}}
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

const metallbWorkload = "metallb-system/metallb-controller:9443"

func TestMetalLBsWebhookIsTrustedBeforeItListensAndListensLate(t *testing.T) {
	s, r := newStage(t, 1, deployment("metallb-system", "metallb-controller"), configuration("metallb-webhook-configuration")), routes{}
	m := newMetalLB(s.world, r, time.Minute)
	defer m.close()
	s.look(t, m)
	if s.bundle(t, "metallb-webhook-configuration") != nil {
		t.Error("the caBundle is there before its time")
	}
	s.later(t, 3*time.Second, m)
	if s.bundle(t, "metallb-webhook-configuration") == nil {
		t.Error("no caBundle after its time")
	}
	s.later(t, 64*time.Second, m)
	if len(r) > 0 {
		t.Errorf("it listens before a minute and its own time have passed: %v", r)
	}
	s.later(t, time.Second, m)
	if r[metallbWorkload] == "" {
		t.Fatalf("it does not listen: %v", r)
	}
	answer := ask(t, r[metallbWorkload], "metallb-webhook-service.metallb-system.svc", "/validate-metallb-io-v1beta1-l2advertisement",
		s.bundle(t, "metallb-webhook-configuration"), admissionv1.AdmissionRequest{UID: "1", Operation: admissionv1.Create, Namespace: "metallb-system"})
	if !answer.Allowed || answer.UID != "1" {
		t.Errorf("answer: %+v", answer)
	}
}

func TestMetalLBStopsListeningWhenItsControllerIsGone(t *testing.T) {
	s, r := newStage(t, 0, deployment("metallb-system", "metallb-controller")), routes{}
	m := newMetalLB(s.world, r, 0)
	defer m.close()
	s.look(t, m)
	if len(r) != 1 {
		t.Fatalf("routes: %v", r)
	}
	if err := s.typed.AppsV1().Deployments("metallb-system").Delete(t.Context(), "metallb-controller", metav1.DeleteOptions{}); err != nil {
		t.Fatal(err)
	}
	s.look(t, m)
	if len(r) != 0 {
		t.Errorf("routes: %v", r)
	}
}

func TestMetalLBJudgesPoolsInItsOwnWords(t *testing.T) {
	s := newStage(t, 0, deployment("metallb-system", "metallb-controller"))
	m := newMetalLB(s.world, routes{}, 0)
	defer m.close()
	s.look(t, m)
	s.put(t, pools(), `{"apiVersion":"metallb.io/v1beta1","kind":"IPAddressPool","metadata":{"name":"main","namespace":"metallb-system"},"spec":{"addresses":["192.168.1.240-192.168.1.249"]}}`)
	for _, c := range []struct{ namespace, name, addresses, want string }{
		{"metallb-system", "other", `"192.168.2.0/24","10.0.0.1-10.0.0.9"`, ""},
		{"metallb-system", "main", `"192.168.1.240-192.168.1.250"`, ""}, // an update of itself
		{"default", "other", `"192.168.2.0/24"`, "resource must be created in metallb-system namespace"},
		{"metallb-system", "other", `"192.168.1.248-192.168.1.255"`, `CIDR "192.168.1.248/29" in pool "other" overlaps with already defined CIDR "192.168.1.248/31"`},
		{"metallb-system", "other", `"192.168.1.300"`, `parsing address pool other: invalid CIDR "192.168.1.300" in pool "other": invalid CIDR "192.168.1.300"`},
		{"metallb-system", "other", `"10.0.0.9-10.0.0.1"`, `parsing address pool other: invalid CIDR "10.0.0.9-10.0.0.1" in pool "other": invalid IP range "10.0.0.9-10.0.0.1": start IP "10.0.0.9" is after the end IP "10.0.0.1"`},
		{"metallb-system", "other", ``, "parsing address pool other: pool has no prefixes defined"},
	} {
		object := `{"metadata":{"name":"` + c.name + `","namespace":"` + c.namespace + `"},"spec":{"addresses":[` + c.addresses + `]}}`
		err := m.pool(t.Context(), &admissionv1.AdmissionRequest{Operation: admissionv1.Create, Namespace: c.namespace, Object: runtime.RawExtension{Raw: []byte(object)}})
		got := ""
		if err != nil {
			got = err.Error()
		}
		if got != c.want {
			t.Errorf("%s in %s: %q, want %q", c.addresses, c.namespace, got, c.want)
		}
	}
}

const store = `{"apiVersion":"external-secrets.io/v1","kind":"ClusterSecretStore","metadata":{"name":"infisical","uid":"1","generation":1},"spec":{"provider":{"infisical":{
	"hostAPI":"HOST","secretsScope":{"projectSlug":"castle","environmentSlug":"prod"},"auth":{"universalAuthCredentials":{
	"clientId":{"namespace":"external-secrets","name":"identity","key":"clientId"},"clientSecret":{"namespace":"external-secrets","name":"identity","key":"clientSecret"}}}}}}}`

func TestAStoreIsReadyOnceItsIdentityMayLogIn(t *testing.T) {
	server := httptest.NewTLSServer(infisical.New(infisical.Config{ClientID: "id", ClientSecret: "right"}).Handler())
	defer server.Close()
	identity := &corev1.Secret{ObjectMeta: metav1.ObjectMeta{Namespace: "external-secrets", Name: "identity"},
		Data: map[string][]byte{"clientId": []byte("id"), "clientSecret": []byte("wrong")}}
	s := newStage(t, 0, deployment("external-secrets", "external-secrets"), identity)
	s.put(t, stores(), strings.ReplaceAll(store, "HOST", server.URL))
	e := newExternalSecrets(s.world, routes{}, server.Client())
	defer e.close()

	err := e.look(t.Context())
	if err == nil || !strings.Contains(err.Error(), "ClusterSecretStore infisical: ") || !strings.Contains(err.Error(), "401: Invalid credentials") {
		t.Errorf("the lab's log says %v", err)
	}
	if strings.Contains(err.Error(), "wrong") {
		t.Errorf("the lab's log says the secret: %v", err)
	}
	if got := s.get(t, stores(), "", "infisical"); conditionOf(got.Object, "Ready") != "False" {
		t.Errorf("status: %v", got.Object["status"])
	}
	identity.Data["clientSecret"] = []byte("right")
	if _, err := s.typed.CoreV1().Secrets("external-secrets").Update(t.Context(), identity, metav1.UpdateOptions{}); err != nil {
		t.Fatal(err)
	}
	s.look(t, e)
	if got := s.get(t, stores(), "", "infisical"); conditionOf(got.Object, "Ready") != "True" {
		t.Errorf("status: %v", got.Object["status"])
	}
}

func TestExternalSecretsRefusesWhatItCannotUse(t *testing.T) {
	request := func(kind, object string) *admissionv1.AdmissionRequest {
		return &admissionv1.AdmissionRequest{Operation: admissionv1.Create, Kind: metav1.GroupVersionKind{Kind: kind}, Object: runtime.RawExtension{Raw: []byte(object)}}
	}
	for _, c := range []struct {
		judge              judge
		kind, object, want string
	}{
		{judgeStore, "ClusterSecretStore", strings.ReplaceAll(store, "HOST", "https://eu.infisical.com"), ""},
		{judgeStore, "ClusterSecretStore", `{"spec":{"provider":{"infisical":{"auth":{},"secretsScope":{"projectSlug":"","environmentSlug":""}}}}}`,
			"secretsScope.projectSlug and secretsScope.environmentSlug cannot be empty"},
		{judgeExternalSecret, "ExternalSecret", `{"spec":{"secretStoreRef":{"name":"infisical"}}}`, "either data or dataFrom should be specified"},
		{judgeExternalSecret, "ExternalSecret", `{"spec":{"dataFrom":[{"extract":{"key":"A"}}]}}`, ""},
	} {
		got := ""
		if err := c.judge(t.Context(), request(c.kind, c.object)); err != nil {
			got = err.Error()
		}
		if got != c.want {
			t.Errorf("%s: %q, want %q", c.object, got, c.want)
		}
	}
}

const (
	gitRepository = `{"apiVersion":"source.toolkit.fluxcd.io/v1","kind":"GitRepository","metadata":{"name":"flux-system","namespace":"flux-system","uid":"2","generation":1},
		"spec":{"url":"https://git.example.com/me/cluster","ref":{"branch":"main"},"secretRef":{"name":"flux-system"}}}`
	rootKustomization = `{"apiVersion":"kustomize.toolkit.fluxcd.io/v1","kind":"Kustomization","metadata":{"name":"flux-system","namespace":"flux-system","uid":"3","generation":1},
		"spec":{"sourceRef":{"kind":"GitRepository","name":"flux-system"},"prune":true,"interval":"10m"}}`
)

func TestFluxConvergesWhenCredentialsAndVariablesAreThere(t *testing.T) {
	s := newStage(t, 0, deployment("flux-system", "source-controller"), deployment("flux-system", "kustomize-controller"))
	s.put(t, repositories(), gitRepository)
	s.put(t, kustomizations(), rootKustomization)
	f := newFlux(s.world)
	root := func() *unstructured.Unstructured { return s.get(t, kustomizations(), "flux-system", "flux-system") }

	s.look(t, f)
	if got := s.get(t, repositories(), "flux-system", "flux-system"); conditionOf(got.Object, "Ready") != "False" {
		t.Errorf("a repository without credentials: %v", got.Object["status"])
	}
	if conditionOf(root().Object, "Ready") != "False" {
		t.Errorf("a Kustomization without an artifact: %v", root().Object["status"])
	}
	create(t, s, &corev1.Secret{ObjectMeta: metav1.ObjectMeta{Namespace: "flux-system", Name: "flux-system"},
		Data: map[string][]byte{"username": []byte("git"), "password": []byte("token")}})
	s.look(t, f)
	revision := text(s.get(t, repositories(), "flux-system", "flux-system").Object, "status", "artifact", "revision")
	if !strings.HasPrefix(revision, "main@sha1:") || text(root().Object, "status", "lastAppliedRevision") != revision {
		t.Errorf("artifact %q, root: %v", revision, root().Object["status"])
	}
	s.look(t, f)
	apps := func() string {
		return conditionOf(s.get(t, kustomizations(), "flux-system", "apps").Object, "Ready")
	}
	if apps() != "False" {
		t.Errorf("apps without cluster-vars: %s", apps())
	}
	create(t, s, &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Namespace: "flux-system", Name: "cluster-vars"}})
	for range 3 { // one for each link of the chain
		s.look(t, f)
	}
	if apps() != "True" {
		t.Errorf("apps: %v", s.get(t, kustomizations(), "flux-system", "apps").Object["status"])
	}
}

func TestFluxPrunesWhatAGoneRootHasBrought(t *testing.T) {
	s := newStage(t, 0, deployment("flux-system", "source-controller"), deployment("flux-system", "kustomize-controller"))
	s.put(t, repositories(), strings.Replace(gitRepository, `,"secretRef":{"name":"flux-system"}`, "", 1))
	s.put(t, kustomizations(), rootKustomization)
	f := newFlux(s.world)
	s.look(t, f)
	s.get(t, kustomizations(), "flux-system", "apps")
	if err := s.untyped.Resource(kustomizations()).Namespace("flux-system").Delete(t.Context(), "flux-system", metav1.DeleteOptions{}); err != nil {
		t.Fatal(err)
	}
	s.look(t, f)
	left, err := s.list(t.Context(), kustomizations(), "")
	if err != nil || len(left) > 0 {
		t.Errorf("left: %v %v", left, err)
	}
}

func TestAFailingOperatorIsReportedOnce(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		ctx, cancel := context.WithCancel(t.Context())
		looks, reports := 0, []string{}
		o := failing{func() {
			if looks++; looks == 3 {
				cancel()
			}
		}}
		play(ctx, o, func(err error) { reports = append(reports, err.Error()) })
		if len(reports) != 1 || !strings.Contains(reports[0], "panic: odd object") {
			t.Errorf("after %d looks: %q", looks, reports)
		}
	})
}

type failing struct{ looked func() }

func (f failing) look(context.Context) error {
	f.looked()
	panic("odd object")
}
func (f failing) close() {}

func create(t *testing.T, s *stage, object runtime.Object) {
	t.Helper()
	var err error
	switch o := object.(type) {
	case *corev1.Secret:
		_, err = s.typed.CoreV1().Secrets(o.Namespace).Create(t.Context(), o, metav1.CreateOptions{})
	case *corev1.ConfigMap:
		_, err = s.typed.CoreV1().ConfigMaps(o.Namespace).Create(t.Context(), o, metav1.CreateOptions{})
	}
	if err != nil {
		t.Fatal(err)
	}
}
