package operators

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/ephemeral-castle/castle/lab/internal/operators/cluster"
)

const clusterStore = "ClusterSecretStore" // the other kind is in a namespace

// checkStores logs in to the Infisical or Vault of each store. It checks a valid store again only
// after a change; the real External Secrets checks it every five minutes.
func (e *externalSecrets) checkStores(ctx context.Context) error {
	var errs []error
	for _, kind := range []schema.GroupVersionResource{stores(), secretStores()} {
		all, err := e.w.List(ctx, kind, "")
		errs = append(errs, err)
		for _, store := range all {
			errs = append(errs, e.checkStore(ctx, kind, &store))
		}
	}
	return errors.Join(errs...)
}

func (e *externalSecrets) checkStore(ctx context.Context, kind schema.GroupVersionResource,
	store *unstructured.Unstructured) error {
	step := fmt.Sprintf("store %s %d", store.GetUID(), store.GetGeneration())
	if e.good[step] && cluster.ConditionOf(store.Object, "Ready") == "True" ||
		!e.w.Passed(step, 2*time.Second) ||
		e.mute.Holds() {
		return nil
	}
	unable, why := e.login(ctx, store)
	err := e.w.SetStatus(ctx, kind, store, func(status map[string]any) {
		if why != nil {
			e.w.SetCondition(status, "Ready", "False", "InvalidProviderConfig", "unable to "+unable, 0)
			return
		}
		status["capabilities"] = "ReadWrite"
		e.w.SetCondition(status, "Ready", "True", "Valid", "store validated", 0)
	})
	e.good[step] = why == nil && err == nil
	return errors.Join(err, cluster.About(store.GetKind()+" "+store.GetName(), why))
}

// login returns the message of the condition for a failed login, and the reason.
func (e *externalSecrets) login(ctx context.Context,
	store *unstructured.Unstructured) (unable string, err error) {
	provider := cluster.Nested(store.Object, "spec", "provider", "vault")
	if provider == nil {
		_, _, err := e.open(ctx, store)
		return "create client", err
	}
	from := vaultScope{e.w.Typed, store.GetKind() == clusterStore, store.GetNamespace()}
	client, err := from.open(ctx, provider)
	if err != nil {
		return "create client", err
	}
	defer client.leave(ctx)
	if from.unknown(provider) {
		return "", nil // whose credentials it will be, nobody knows before there is an ExternalSecret
	}
	if err := client.lookup(ctx); err != nil {
		return "validate store", fmt.Errorf("invalid vault credentials: %w", err)
	}
	return "", nil
}

// open logs in with the identity that a store of Infisical's names.
func (e *externalSecrets) open(ctx context.Context,
	store *unstructured.Unstructured) (infisicalClient, string, error) {
	provider, _, err := unstructured.NestedMap(store.Object, "spec", "provider", "infisical")
	if err != nil {
		return infisicalClient{}, "", err
	}
	client := infisicalClient{http: e.http, host: cluster.Text(provider, "hostAPI")}
	var credentials [2]string
	for i, which := range []string{"clientId", "clientSecret"} {
		at := func(field string) string {
			return cluster.Text(provider, "auth", "universalAuthCredentials", which, field)
		}
		namespace := store.GetNamespace()
		if store.GetKind() == clusterStore {
			namespace = at("namespace")
		}
		secret, err := e.w.Typed.CoreV1().Secrets(namespace).Get(ctx, at("name"), metav1.GetOptions{})
		if err != nil {
			return client, "", err
		}
		if credentials[i] = string(secret.Data[at("key")]); credentials[i] == "" {
			return client, "", fmt.Errorf("secret %s/%s has no %s", secret.Namespace, secret.Name, at("key"))
		}
	}
	token, err := client.login(ctx, credentials[0], credentials[1])
	return client, token, err
}

// store returns the store of an ExternalSecret. The kind defaults to a SecretStore in the same
// namespace. store returns an error for a store that is not ready.
func (e *externalSecrets) store(ctx context.Context, external *unstructured.Unstructured,
	ref map[string]any) (*unstructured.Unstructured, error) {
	kind, in, namespace := "SecretStore", secretStores(), external.GetNamespace()
	if cluster.Text(ref, "kind") == clusterStore {
		kind, in, namespace = clusterStore, stores(), ""
	}
	store, err := e.w.Untyped.Resource(in).Namespace(namespace).Get(ctx, cluster.Text(ref, "name"),
		metav1.GetOptions{})
	if err != nil {
		return nil, fmt.Errorf("could not get %s %q, %w", kind, cluster.Text(ref, "name"), err)
	}
	if cluster.ConditionOf(store.Object, "Ready") != "True" {
		return nil, fmt.Errorf("%s %q is not ready", kind, cluster.Text(ref, "name"))
	}
	return store, nil
}

// value reads one value through a store.
func (e *externalSecrets) value(ctx context.Context, external, store *unstructured.Unstructured,
	remote map[string]any) ([]byte, error) {
	if cluster.Nested(store.Object, "spec", "provider", "vault") != nil {
		secret, err := e.values(ctx, external, store, remote)
		if err != nil {
			return nil, err
		}
		property := cluster.Text(remote, "property")
		if property == "" {
			return json.Marshal(secret)
		}
		value, there := secret[property]
		if !there {
			return nil, fmt.Errorf("cannot find secret data for key: %q", property)
		}
		return bytesOf(value)
	}
	client, token, err := e.open(ctx, store)
	if err != nil {
		return nil, err
	}
	in := func(field string) string {
		return cluster.Text(store.Object, "spec", "provider", "infisical", "secretsScope", field)
	}
	value, err := client.read(ctx, token, scope{in("projectSlug"), in("environmentSlug"), in("secretsPath")},
		cluster.Text(remote, "key"))
	return []byte(value), err
}

// values reads a whole secret of Vault's.
func (e *externalSecrets) values(ctx context.Context, external, store *unstructured.Unstructured,
	remote map[string]any) (map[string]any, error) {
	provider := cluster.Nested(store.Object, "spec", "provider", "vault")
	if provider == nil {
		return nil, errors.New("the lab's External Secrets extracts from Vault only")
	}
	vault, err := vaultScope{e.w.Typed, store.GetKind() == clusterStore,
		external.GetNamespace()}.open(ctx, provider)
	if err != nil {
		return nil, err
	}
	defer vault.leave(ctx)
	return vault.secret(ctx, provider, cluster.Text(remote, "key"))
}
