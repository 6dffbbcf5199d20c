package operators

import (
	"context"
	"errors"
	"fmt"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
)

// judgeStores logs in at every store's Infisical or Vault. A store that is found good is
// asked again only when it changes.
func (e *externalSecrets) judgeStores(ctx context.Context) error {
	all, err := e.w.list(ctx, stores(), "")
	var errs []error
	for _, store := range all {
		errs = append(errs, e.judgeOne(ctx, &store))
	}
	return errors.Join(append(errs, err)...)
}

func (e *externalSecrets) judgeOne(ctx context.Context, store *unstructured.Unstructured) error {
	step := fmt.Sprintf("store %s %d", store.GetUID(), store.GetGeneration())
	if conditionOf(store.Object, "Ready") == "True" || !e.w.passed(step, 2*time.Second) || e.mute.holds() {
		return nil
	}
	why := e.login(ctx, store)
	err := e.w.setStatus(ctx, stores(), store, func(status map[string]any) {
		if why != nil {
			e.w.setCondition(status, "Ready", "False", "InvalidProviderConfig", "unable to create client", 0)
			return
		}
		status["capabilities"] = "ReadWrite"
		e.w.setCondition(status, "Ready", "True", "Valid", "store validated", 0)
	})
	return errors.Join(err, about("ClusterSecretStore "+store.GetName(), why))
}

func (e *externalSecrets) login(ctx context.Context, store *unstructured.Unstructured) error {
	provider := nested(store.Object, "spec", "provider", "vault")
	if provider == nil {
		_, _, err := e.open(ctx, store)
		return err
	}
	client, err := openVault(ctx, e.w.typed, provider, "")
	if err != nil {
		return err
	}
	return client.lookup(ctx)
}

// open logs in with the identity that a store of Infisical's names.
func (e *externalSecrets) open(ctx context.Context, store *unstructured.Unstructured) (infisicalClient, string, error) {
	provider, _, err := unstructured.NestedMap(store.Object, "spec", "provider", "infisical")
	if err != nil {
		return infisicalClient{}, "", err
	}
	client := infisicalClient{http: e.http, host: text(provider, "hostAPI")}
	var credentials [2]string
	for i, which := range []string{"clientId", "clientSecret"} {
		at := func(field string) string { return text(provider, "auth", "universalAuthCredentials", which, field) }
		secret, err := e.w.typed.CoreV1().Secrets(at("namespace")).Get(ctx, at("name"), metav1.GetOptions{})
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

// fetchSecrets makes the Secret of every ExternalSecret that has none yet.
func (e *externalSecrets) fetchSecrets(ctx context.Context) error {
	all, err := e.w.list(ctx, externals(), "")
	var errs []error
	for _, external := range all {
		if conditionOf(external.Object, "Ready") == "True" || !e.w.passed(fmt.Sprintf("external secret %s %d", external.GetUID(), external.GetGeneration()), 2*time.Second) {
			continue
		}
		why := e.fetch(ctx, &external)
		errs = append(errs, e.w.setStatus(ctx, externals(), &external, func(status map[string]any) {
			if why != nil {
				e.w.setCondition(status, "Ready", "False", "SecretSyncedError", "could not get secret data from provider", 0)
				return
			}
			status["binding"] = map[string]any{"name": target(&external)}
			e.w.setCondition(status, "Ready", "True", "SecretSynced", "secret synced", 0)
		}), about("ExternalSecret "+external.GetNamespace()+"/"+external.GetName(), why))
	}
	return errors.Join(append(errs, err)...)
}

func (e *externalSecrets) fetch(ctx context.Context, external *unstructured.Unstructured) error {
	data, err := e.generated(ctx, external)
	if err != nil {
		return err
	}
	entries, _, err := unstructured.NestedSlice(external.Object, "spec", "data")
	if err != nil {
		return err
	}
	for _, entry := range entries {
		one, ok := entry.(map[string]any)
		if !ok {
			return errors.New("spec.data: no object")
		}
		value, err := e.value(ctx, text(external.Object, "spec", "secretStoreRef", "name"), nested(one, "remoteRef"))
		if err != nil {
			return err
		}
		data[text(one, "secretKey")] = []byte(value)
	}
	secrets := e.w.typed.CoreV1().Secrets(external.GetNamespace())
	secret := &corev1.Secret{ObjectMeta: metav1.ObjectMeta{
		Name: target(external), OwnerReferences: []metav1.OwnerReference{*metav1.NewControllerRef(external, external.GroupVersionKind())},
	}, Data: data}
	if _, err = secrets.Create(ctx, secret, metav1.CreateOptions{}); apierrors.IsAlreadyExists(err) {
		_, err = secrets.Update(ctx, secret, metav1.UpdateOptions{})
	}
	return err
}

// value reads one value through a store.
func (e *externalSecrets) value(ctx context.Context, name string, remote map[string]any) (string, error) {
	store, err := e.w.untyped.Resource(stores()).Get(ctx, name, metav1.GetOptions{})
	if err != nil {
		return "", err
	}
	if provider := nested(store.Object, "spec", "provider", "vault"); provider != nil {
		vault, err := openVault(ctx, e.w.typed, provider, "")
		if err != nil {
			return "", err
		}
		secret, err := vault.read(ctx, text(provider, "path")+"/data/"+text(remote, "key"))
		if err != nil {
			return "", err
		}
		value, there := nested(secret, "data")[text(remote, "property")].(string)
		if !there {
			return "", fmt.Errorf("cannot find secret data for key: %q", text(remote, "property"))
		}
		return value, nil
	}
	client, token, err := e.open(ctx, store)
	if err != nil {
		return "", err
	}
	in := func(field string) string {
		return text(store.Object, "spec", "provider", "infisical", "secretsScope", field)
	}
	return client.read(ctx, token, scope{in("projectSlug"), in("environmentSlug"), in("secretsPath")}, text(remote, "key"))
}

// generated is what the generators of an ExternalSecret make: database users of Vault's.
func (e *externalSecrets) generated(ctx context.Context, external *unstructured.Unstructured) (map[string][]byte, error) {
	data := map[string][]byte{}
	from, _, err := unstructured.NestedSlice(external.Object, "spec", "dataFrom")
	if err != nil {
		return nil, err
	}
	for _, one := range from {
		entry, _ := one.(map[string]any)
		if ref := nested(entry, "sourceRef", "generatorRef"); text(ref, "kind") != "VaultDynamicSecret" {
			return nil, fmt.Errorf("the lab has no generator %q", text(ref, "kind"))
		}
		generator, err := e.w.untyped.Resource(generators()).Namespace(external.GetNamespace()).Get(ctx, text(entry, "sourceRef", "generatorRef", "name"), metav1.GetOptions{})
		if err != nil {
			return nil, err
		}
		vault, err := openVault(ctx, e.w.typed, nested(generator.Object, "spec", "provider"), external.GetNamespace())
		if err != nil {
			return nil, err
		}
		made, err := vault.read(ctx, text(generator.Object, "spec", "path"))
		if err != nil {
			return nil, err
		}
		for name, value := range made {
			data[name] = fmt.Append(nil, value)
		}
	}
	return data, nil
}

// target is the name of the Secret that an ExternalSecret is made into.
func target(external *unstructured.Unstructured) string {
	if name := text(external.Object, "spec", "target", "name"); name != "" {
		return name
	}
	return external.GetName()
}

// conditionOf reads a condition's status; empty if there is none.
func conditionOf(object map[string]any, typ string) string { return ofCondition(object, typ, "status") }

// messageOf reads what a condition says.
func messageOf(object map[string]any, typ string) string { return ofCondition(object, typ, "message") }

func ofCondition(object map[string]any, typ, field string) string {
	all, _, err := unstructured.NestedSlice(object, "status", "conditions")
	if err != nil {
		return ""
	}
	for _, one := range all {
		if c, ok := one.(map[string]any); ok && c["type"] == typ {
			return text(c, field)
		}
	}
	return ""
}

// about says which object an error is about.
func about(what string, err error) error {
	if err == nil {
		return nil
	}
	return fmt.Errorf("%s: %w", what, err)
}

// whole reads a whole number of an object; what is not there or is none is 0.
func whole(object map[string]any, path ...string) int64 {
	value, _, err := unstructured.NestedInt64(object, path...)
	if err != nil {
		return 0
	}
	return value
}
