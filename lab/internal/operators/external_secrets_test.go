package operators

import (
	"net/http/httptest"
	"strings"
	"testing"

	admissionv1 "k8s.io/api/admission/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"

	"github.com/ephemeral-castle/castle/internal/emulator/infisical"

	"github.com/ephemeral-castle/castle/lab/internal/operators/cluster"
	"github.com/ephemeral-castle/castle/lab/internal/operators/clustertest"
)

const store = `{"apiVersion":"external-secrets.io/v1","kind":"ClusterSecretStore",
	"metadata":{"name":"infisical","uid":"1","generation":1},"spec":{"provider":{"infisical":{
	"hostAPI":"HOST","secretsScope":{"projectSlug":"castle","environmentSlug":"prod"},
	"auth":{"universalAuthCredentials":{
	"clientId":{"namespace":"external-secrets","name":"identity","key":"clientId"},
	"clientSecret":{"namespace":"external-secrets","name":"identity","key":"clientSecret"}}}}}}}`

func TestAStoreIsReadyOnceItsIdentityMayLogIn(t *testing.T) {
	server := httptest.NewTLSServer(infisical.New(infisical.Config{ClientID: "id",
		ClientSecret: "right"}).Handler())
	defer server.Close()
	identity := &corev1.Secret{ObjectMeta: metav1.ObjectMeta{Namespace: "external-secrets", Name: "identity"},
		Data: map[string][]byte{"clientId": []byte("id"), "clientSecret": []byte("wrong")}}
	s := newStage(0, clustertest.Deployment("external-secrets", "external-secrets"), identity)
	s.Create(t, stores(), strings.ReplaceAll(store, "HOST", server.URL))
	e := newExternalSecrets(s.World, routes{}, server.Client())
	defer e.Close()

	err := e.Look(t.Context())
	if err == nil || !strings.Contains(err.Error(), "ClusterSecretStore infisical: ") ||
		!strings.Contains(err.Error(), "401: Invalid credentials") {
		t.Errorf("the lab's log says %v", err)
	}
	if strings.Contains(err.Error(), "wrong") {
		t.Errorf("the lab's log says the secret: %v", err)
	}
	if got := s.Get(t, stores(), "", "infisical"); cluster.ConditionOf(got.Object, "Ready") != "False" {
		t.Errorf("status: %v", got.Object["status"])
	}
	identity.Data["clientSecret"] = []byte("right")
	if _, err := s.World.Typed.CoreV1().Secrets("external-secrets").Update(t.Context(), identity,
		metav1.UpdateOptions{}); err != nil {
		t.Fatal(err)
	}
	s.Look(t, e)
	if got := s.Get(t, stores(), "", "infisical"); cluster.ConditionOf(got.Object, "Ready") != "True" {
		t.Errorf("status: %v", got.Object["status"])
	}
}

func TestExternalSecretsRefusesWhatItCannotUse(t *testing.T) {
	request := func(kind, object string) *admissionv1.AdmissionRequest {
		return &admissionv1.AdmissionRequest{Operation: admissionv1.Create,
			Kind: metav1.GroupVersionKind{Kind: kind}, Object: runtime.RawExtension{Raw: []byte(object)}}
	}
	for _, c := range []struct {
		reviewer           reviewer
		kind, object, want string
	}{
		{reviewStore, "ClusterSecretStore",
			strings.ReplaceAll(store, "HOST", "https://eu.infisical.com"), ""},
		{reviewStore, "ClusterSecretStore",
			`{"spec":{"provider":{"infisical":{"auth":{},"secretsScope":{"projectSlug":"",` +
				`"environmentSlug":""}}}}}`,
			"secretsScope.projectSlug and secretsScope.environmentSlug cannot be empty"},
		{reviewStore, "ClusterSecretStore",
			`{"spec":{"provider":{"vault":{"server":"https://v","auth":{"tokenSecretRef":{"name":"t",` +
				`"key":"t"}}}}}}`, ""},
		{reviewStore, "ClusterSecretStore",
			`{"spec":{"provider":{"vault":{"server":"https://v","auth":{"jwt":{"role":"r"}}}}}}`,
			errNoTokenSource.Error()},
		{reviewStore, "SecretStore",
			`{"metadata":{"namespace":"app"},"spec":{"provider":{"vault":{"server":"https://v",` +
				`"auth":{"tokenSecretRef":{"namespace":"other","name":"t","key":"t"}}}}}}`,
			"invalid Auth.TokenSecretRef: " + errOtherNamespace.Error()},
		{reviewExternalSecret, "ExternalSecret", `{"spec":{"secretStoreRef":{"name":"infisical"}}}`,
			"either data or dataFrom should be specified"},
		{reviewExternalSecret, "ExternalSecret", `{"spec":{"dataFrom":[{"extract":{"key":"A"}}]}}`, ""},
	} {
		got := ""
		if err := c.reviewer(t.Context(), request(c.kind, c.object)); err != nil {
			got = err.Error()
		}
		if got != c.want {
			t.Errorf("%s: %q, want %q", c.object, got, c.want)
		}
	}
}
