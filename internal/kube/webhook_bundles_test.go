package kube

import (
	"encoding/base64"
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/ephemeral-castle/castle/internal/gate"
)

func TestWebhookBundlesAreThoseOfAllConfigurations(t *testing.T) {
	f := newFakeAPI(t)
	for _, kind := range []string{"ValidatingWebhookConfiguration", "MutatingWebhookConfiguration"} {
		f.serves("admissionregistration.k8s.io/v1", kind, strings.ToLower(kind)+"s", false)
	}
	f.serves("apiextensions.k8s.io/v1", "CustomResourceDefinition", "customresourcedefinitions", false)
	ca, other := authority(t), authority(t)
	encoded, others := base64.StdEncoding.EncodeToString(ca), base64.StdEncoding.EncodeToString(other)
	hook := func(bundle string) string {
		return "{clientConfig: {caBundle: " + bundle + ", service: {namespace: system, name: hook}}}"
	}
	f.add(t, admission+"validatingwebhookconfigurations/checks", "{kind: ValidatingWebhookConfiguration, "+
		"webhooks: ["+hook(encoded)+", "+hook(encoded)+", {clientConfig: {url: 'https://outside'}}]}")
	f.add(t, admission+"mutatingwebhookconfigurations/changes",
		"{kind: MutatingWebhookConfiguration, webhooks: ["+hook(encoded)+", "+hook(others)+"]}")
	f.add(t, "/apis/apiextensions.k8s.io/v1/customresourcedefinitions/a.example.org",
		"{kind: CustomResourceDefinition, spec: {conversion: {webhook: "+hook(encoded)+"}}}")
	f.add(t, "/apis/apiextensions.k8s.io/v1/customresourcedefinitions/b.example.org",
		"{kind: CustomResourceDefinition, spec: {conversion: {strategy: None}}}")
	all, err := WebhookBundles(t.Context(), gate.Target{Kubeconfig: f.kubeconfig()})
	if err != nil {
		t.Fatal(err)
	}
	var got []string
	for _, b := range all {
		got = append(got, fmt.Sprint(b.Object, " ", b.Server, " ", slices.Equal(b.CA, ca)))
	}
	want := []string{"ValidatingWebhookConfiguration checks the Service system/hook true",
		"MutatingWebhookConfiguration changes the Service system/hook true",
		"MutatingWebhookConfiguration changes the Service system/hook false",
		"CustomResourceDefinition a.example.org the Service system/hook true"}
	if !slices.Equal(got, want) {
		t.Errorf("got  %q\nwant %q", got, want)
	}
}
