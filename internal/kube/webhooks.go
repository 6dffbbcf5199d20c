package kube

import (
	"context"
	"encoding/base64"
	"strings"

	admissionv1 "k8s.io/api/admissionregistration/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"github.com/ephemeral-castle/castle/internal/gate"
	"github.com/ephemeral-castle/castle/internal/kube/client"
)

// Bundle is a caBundle, by which the API server trusts the server of a webhook.
type Bundle struct {
	Object string // ValidatingWebhookConfiguration longhorn-webhook-validator
	Server string // Service longhorn-system/longhorn-admission-webhook, or a URL
	CA     []byte // in PEM
}

// WebhookBundles lists the caBundles of a cluster's admission and conversion webhooks, equal ones of an
// object once. A URL may have none: the API server's system trusts it.
func WebhookBundles(ctx context.Context, target gate.Target) (all []Bundle, err error) {
	err = client.Do(ctx, target, func(ctx context.Context, a *client.API) error {
		all = nil
		for _, kind := range []string{"ValidatingWebhookConfiguration", "MutatingWebhookConfiguration",
			"CustomResourceDefinition"} {
			resource := client.Definitions
			if kind != "CustomResourceDefinition" {
				resource = admissionv1.SchemeGroupVersion.WithResource(strings.ToLower(kind) + "s")
			}
			objects, err := a.List(ctx, client.Selection{Resource: resource}, kind)
			if err != nil {
				return err
			}
			for _, o := range objects {
				all = append(all, bundlesOf(kind+" "+o.GetName(), o.Object)...)
			}
		}
		return nil
	})
	return all, err
}

// bundlesOf returns the caBundles of a webhook configuration or of a definition with a conversion webhook.
func bundlesOf(name string, object map[string]any) (all []Bundle) {
	webhooks, _, _ := unstructured.NestedSlice(object, "webhooks")
	if conversion, has, _ := unstructured.NestedMap(object, "spec", "conversion", "webhook"); has {
		webhooks = append(webhooks, conversion)
	}
	for _, webhook := range webhooks {
		fields, _ := webhook.(map[string]any)
		text := func(path ...string) string {
			text, _, _ := unstructured.NestedString(fields, append([]string{"clientConfig"}, path...)...)
			return text
		}
		b := Bundle{Object: name, Server: text("url")}
		b.CA, _ = base64.StdEncoding.DecodeString(text("caBundle")) //nolint:errcheck // then it is none
		if b.Server == "" {
			b.Server = "the Service " + text("service", "namespace") + "/" + text("service", "name")
		} else if len(b.CA) == 0 {
			continue
		}
		if n := len(all); n == 0 || string(all[n-1].CA) != string(b.CA) {
			all = append(all, b)
		}
	}
	return all
}
