package operators

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"time"

	admissionv1 "k8s.io/api/admission/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/ephemeral-castle/castle/lab/internal/operators/cluster"
)

// externalSecrets is the operator's three Deployments in one: the webhook, the
// cert-controller that fills its authority in, and the controller that reviewers
// stores and fetches secrets.
type externalSecrets struct {
	w    *cluster.View
	h    *webhook
	http *http.Client
	mute *cluster.Fault  // it has not looked at the store yet
	good map[string]bool // what needs no further look, as it is now
}

func newExternalSecrets(w *cluster.View, routes Routes, client *http.Client) *externalSecrets {
	const path = "/validate-external-secrets-io-v1-"
	return &externalSecrets{w: w, http: client, mute: w.Fault("conditions-none",
		"external-secrets.io/v1/clustersecretstores"),
		good: map[string]bool{},
		h: &webhook{
			w: w, routes: routes, workload: "external-secrets-webhook", port: 10250,
			service: "external-secrets-webhook", secret: "external-secrets-webhook",
			fill: each(validating(w, "secretstore-validate"),
				unlessFault(w.Fault("cabundle-empty", "externalsecret-validate"), validating(w,
					"externalsecret-validate"))),
			// It listens as soon as it has a certificate; the caBundle comes last.
			certified: 4 * time.Second, listens: 4 * time.Second,
			reviewers: map[string]reviewer{
				path + "secretstore":        reviewStore,
				path + "clustersecretstore": reviewStore,
				path + "externalsecret":     reviewExternalSecret,
			},
		}}
}

func stores() schema.GroupVersionResource {
	return schema.GroupVersionResource{Group: "external-secrets.io", Version: "v1",
		Resource: "clustersecretstores"}
}

func secretStores() schema.GroupVersionResource {
	return schema.GroupVersionResource{Group: "external-secrets.io", Version: "v1", Resource: "secretstores"}
}

func externals() schema.GroupVersionResource {
	return schema.GroupVersionResource{Group: "external-secrets.io", Version: "v1",
		Resource: "externalsecrets"}
}

func generators() schema.GroupVersionResource {
	return schema.GroupVersionResource{Group: "generators.external-secrets.io", Version: "v1alpha1",
		Resource: "vaultdynamicsecrets"}
}

func (e *externalSecrets) Look(ctx context.Context) error {
	hook, err := e.w.Deployment(ctx, e.h.workload)
	if err != nil {
		return err
	}
	rotator, err := e.w.Deployment(ctx, "external-secrets-cert-controller")
	if err != nil {
		return err
	}
	namespace := ""
	if hook != nil && (rotator != nil || e.h.serving()) {
		namespace = hook.Namespace
	}
	if err := e.h.look(ctx, namespace); err != nil {
		return err
	}
	controller, err := e.w.Deployment(ctx, "external-secrets")
	if err != nil || controller == nil {
		return err
	}
	return errors.Join(e.checkStores(ctx), e.fetchSecrets(ctx))
}

func (e *externalSecrets) Close() { e.h.close() }

func reviewStore(_ context.Context, r *admissionv1.AdmissionRequest) error {
	if r.Operation == admissionv1.Delete {
		return nil
	}
	var store unstructured.Unstructured
	if err := json.Unmarshal(r.Object.Raw, &store.Object); err != nil {
		return err
	}
	if vault := cluster.Nested(store.Object, "spec", "provider", "vault"); vault != nil {
		return reviewVault(vault, r.Kind.Kind == clusterStore, r.Namespace)
	}
	provider, found, err := unstructured.NestedMap(store.Object, "spec", "provider", "infisical")
	if err != nil || !found {
		return err // of another provider: the lab does not review it
	}
	at := func(path ...string) string { return cluster.Text(provider, path...) }
	if at("secretsScope", "environmentSlug") == "" || at("secretsScope", "projectSlug") == "" {
		return errors.New("secretsScope.projectSlug and secretsScope.environmentSlug cannot be empty")
	}
	credentials := []string{"auth", "universalAuthCredentials"}
	if _, found, err := unstructured.NestedMap(provider, credentials...); err != nil || !found {
		return err
	}
	for _, which := range []string{"clientId", "clientSecret"} {
		if at(append(credentials, which, "key")...) == "" {
			return errors.New("universalAuthCredentials.clientId and " +
				"universalAuthCredentials.clientSecret cannot be empty")
		}
		if r.Kind.Kind == "ClusterSecretStore" && at(append(credentials, which, "namespace")...) == "" {
			return errors.New("cluster scope requires namespace")
		}
	}
	return nil
}

// reviewVault requires neither an authority nor, in a ClusterSecretStore, a namespace.
func reviewVault(provider map[string]any, clusterWide bool, namespace string) error {
	elsewhere := func(path ...string) bool {
		named := cluster.Text(provider, append(path, "namespace")...)
		return !clusterWide && named != "" && named != namespace
	}
	if jwt := cluster.Nested(provider, "auth", "jwt"); jwt != nil {
		account := []string{"auth", "jwt", "kubernetesServiceAccountToken"}
		switch {
		case cluster.Nested(jwt, "secretRef") != nil:
			if elsewhere("auth", "jwt", "secretRef") {
				return fmt.Errorf("invalid Auth.Jwt.SecretRef: %w", errOtherNamespace)
			}
		case cluster.Nested(provider, account...) == nil:
			return errNoTokenSource
		case elsewhere(append(account, "serviceAccountRef")...):
			return fmt.Errorf("invalid Auth.Jwt.KubernetesServiceAccountToken.ServiceAccountRef: %w",
				errOtherNamespace)
		}
	}
	if elsewhere("auth", "tokenSecretRef") {
		return fmt.Errorf("invalid Auth.TokenSecretRef: %w", errOtherNamespace)
	}
	return nil
}

func reviewExternalSecret(_ context.Context, r *admissionv1.AdmissionRequest) error {
	if r.Operation == admissionv1.Delete {
		return nil
	}
	var secret struct {
		Spec struct {
			Data     []any `json:"data"`
			DataFrom []any `json:"dataFrom"`
		} `json:"spec"`
	}
	if err := json.Unmarshal(r.Object.Raw, &secret); err != nil {
		return err
	}
	if len(secret.Spec.Data) == 0 && len(secret.Spec.DataFrom) == 0 {
		return errors.New("either data or dataFrom should be specified")
	}
	return nil
}
