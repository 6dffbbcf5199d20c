package operators

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"maps"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"github.com/ephemeral-castle/castle/lab/internal/operators/cluster"
)

// fetchSecrets creates the Secret of every ExternalSecret that has none, or has changed since. The
// real operator also refreshes it after each refreshInterval.
func (e *externalSecrets) fetchSecrets(ctx context.Context) error {
	all, err := e.w.List(ctx, externals(), "")
	errs := []error{err}
	for _, external := range all {
		step := fmt.Sprintf("external secret %s %d", external.GetUID(), external.GetGeneration())
		there, err := e.there(ctx, &external)
		errs = append(errs, err)
		if e.good[step] && there && cluster.ConditionOf(external.Object, "Ready") == "True" ||
			!e.w.Passed(step, 2*time.Second) {
			continue
		}
		could, why := e.fetch(ctx, &external)
		err = e.w.SetStatus(ctx, externals(), &external, func(status map[string]any) {
			if why != nil {
				e.w.SetCondition(status, "Ready", "False", "SecretSyncedError", could, 0)
				return
			}
			status["binding"] = map[string]any{"name": target(&external)}
			e.w.SetCondition(status, "Ready", "True", "SecretSynced", "secret synced", 0)
		})
		e.good[step] = why == nil && err == nil
		errs = append(errs, err,
			cluster.About("ExternalSecret "+external.GetNamespace()+"/"+external.GetName(), why))
	}
	return errors.Join(errs...)
}

// there reports whether the Secret of an ExternalSecret exists.
func (e *externalSecrets) there(ctx context.Context, external *unstructured.Unstructured) (bool, error) {
	_, err := e.w.Typed.CoreV1().Secrets(external.GetNamespace()).Get(ctx, target(external),
		metav1.GetOptions{})
	return err == nil, cluster.Unless(err, apierrors.IsNotFound)
}

// fetch creates the Secret. On failure it sets the message of the condition, which never contains
// the cause.
func (e *externalSecrets) fetch(ctx context.Context,
	external *unstructured.Unstructured) (could string, err error) {
	data, err := e.generated(ctx, external)
	if err == nil {
		err = e.named(ctx, external, data)
	}
	if err != nil {
		return "could not get secret data from provider", err
	}
	return e.keep(ctx, external, data)
}

// named adds the values that spec.data names one by one.
func (e *externalSecrets) named(ctx context.Context, external *unstructured.Unstructured,
	data map[string][]byte) error {
	entries, _, err := unstructured.NestedSlice(external.Object, "spec", "data")
	if err != nil {
		return err
	}
	for i, entry := range entries {
		one, _ := entry.(map[string]any)
		ref := cluster.Nested(one, "sourceRef", "storeRef")
		if ref == nil {
			ref = cluster.Nested(external.Object, "spec", "secretStoreRef")
		}
		remote := cluster.Nested(one, "remoteRef")
		store, err := e.store(ctx, external, ref)
		if err == nil {
			data[cluster.Text(one, "secretKey")], err = e.value(ctx, external, store, remote)
		}
		if err != nil {
			return fmt.Errorf("error processing spec.data[%d] (key: %s), err: %w", i,
				cluster.Text(remote, "key"), err)
		}
	}
	return nil
}

// generated returns the data of spec.dataFrom: whole secrets, and the output of generators.
func (e *externalSecrets) generated(ctx context.Context,
	external *unstructured.Unstructured) (map[string][]byte, error) {
	data := map[string][]byte{}
	from, _, err := unstructured.NestedSlice(external.Object, "spec", "dataFrom")
	if err != nil {
		return nil, err
	}
	for i, one := range from {
		entry, _ := one.(map[string]any)
		var made map[string]any
		what := "sourceRef.generatorRef"
		switch remote := cluster.Nested(entry, "extract"); {
		case remote != nil:
			what = "extract"
			made, err = e.extract(ctx, external, entry, remote)
		case cluster.Nested(entry, "sourceRef", "generatorRef") != nil:
			made, err = e.generate(ctx, external, cluster.Nested(entry, "sourceRef", "generatorRef"))
		default:
			err = errors.New("the lab's External Secrets knows extract and generators only")
		}
		if err != nil {
			return nil, fmt.Errorf("error processing spec.dataFrom[%d].%s, err: %w", i, what, err)
		}
		for name, value := range made {
			if data[name], err = bytesOf(value); err != nil {
				return nil, err
			}
		}
	}
	return data, nil
}

func (e *externalSecrets) extract(ctx context.Context, external *unstructured.Unstructured, entry,
	remote map[string]any) (map[string]any, error) {
	ref := cluster.Nested(entry, "sourceRef", "storeRef")
	if ref == nil {
		ref = cluster.Nested(external.Object, "spec", "secretStoreRef")
	}
	store, err := e.store(ctx, external, ref)
	if err != nil {
		return nil, err
	}
	return e.values(ctx, external, store, remote)
}

// generate requests a dynamic secret from Vault. It does not revoke the token of its login, because
// Vault would revoke the secret's lease with it.
func (e *externalSecrets) generate(ctx context.Context, external *unstructured.Unstructured,
	ref map[string]any) (map[string]any, error) {
	if kind := cluster.Text(ref, "kind"); kind != "VaultDynamicSecret" {
		return nil, fmt.Errorf("the lab has no generator %q", kind)
	}
	generator, err := e.w.Untyped.Resource(generators()).Namespace(external.GetNamespace()).Get(ctx,
		cluster.Text(ref, "name"), metav1.GetOptions{})
	if err != nil {
		return nil, err
	}
	vault, err := vaultScope{e.w.Typed, false, external.GetNamespace()}.open(ctx,
		cluster.Nested(generator.Object, "spec", "provider"))
	if err != nil {
		return nil, fmt.Errorf("error using generator: unable to setup Vault client: %w", err)
	}
	if method := cluster.Text(generator.Object, "spec", "method"); method != "" && method != "GET" {
		return nil, fmt.Errorf("the lab's generator knows the method GET only, not %s", method)
	}
	made, err := vault.read(ctx, cluster.Text(generator.Object, "spec", "path"))
	if err != nil {
		return nil, fmt.Errorf("error using generator: %w", err)
	}
	return made, nil
}

const (
	policyOwner = "Owner"
	managed     = "reconcile.external-secrets.io/managed"
)

// keep writes the Secret, unless it has a foreign owner.
func (e *externalSecrets) keep(ctx context.Context, external *unstructured.Unstructured,
	data map[string][]byte) (could string, err error) {
	policy := cmp.Or(cluster.Text(external.Object, "spec", "target", "creationPolicy"), policyOwner)
	if policy != policyOwner && policy != "Orphan" {
		return "could not update secret",
			fmt.Errorf("the lab's External Secrets has no creationPolicy %s", policy)
	}
	secrets := e.w.Typed.CoreV1().Secrets(external.GetNamespace())
	is, err := secrets.Get(ctx, target(external), metav1.GetOptions{})
	missing := apierrors.IsNotFound(err)
	if err != nil && !missing {
		return "could not update secret", err
	}
	if missing {
		is = &corev1.Secret{ObjectMeta: metav1.ObjectMeta{Name: target(external)}}
	}
	owner := metav1.GetControllerOf(is)
	if owner != nil && owner.Kind == external.GetKind() && owner.Name != external.GetName() {
		return "target is owned by another ExternalSecret",
			fmt.Errorf("secret is owned by another ExternalSecret: %s", owner.Name)
	}
	if policy == policyOwner && !metav1.IsControlledBy(is, external) {
		if owner != nil {
			return "failed to take ownership of target secret",
				fmt.Errorf("secret %s is controlled by %s %s", is.Name, owner.Kind, owner.Name)
		}
		is.OwnerReferences = append(is.OwnerReferences,
			*metav1.NewControllerRef(external, external.GroupVersionKind()))
	}
	is.Labels = maps.Clone(is.Labels)
	if is.Labels == nil {
		is.Labels = map[string]string{}
	}
	is.Labels[managed], is.Data = "true", data
	if missing {
		_, err = secrets.Create(ctx, is, metav1.CreateOptions{})
	} else {
		_, err = secrets.Update(ctx, is, metav1.UpdateOptions{})
	}
	return "could not update secret", err
}

// target is the name of the Secret that an ExternalSecret is made into.
func target(external *unstructured.Unstructured) string {
	return cmp.Or(cluster.Text(external.Object, "spec", "target", "name"), external.GetName())
}
