// Package kube is castle's way to Kubernetes. It wires three packages: client connects and reads, gates
// checks, diagnose explains the findings of a check. Imports point down: kube, diagnose, gates, client.
package kube

import (
	"context"
	"encoding/base64"
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/zclconf/go-cty/cty"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/types"

	"github.com/ephemeral-castle/castle/internal/gate"
	"github.com/ephemeral-castle/castle/internal/kube/client"
	"github.com/ephemeral-castle/castle/internal/kube/diagnose"
	"github.com/ephemeral-castle/castle/internal/kube/gates"
)

// GateTypes lists the gates that Kubernetes answers, each with its Diagnose.
func GateTypes() []gate.Type {
	types := gates.Types()
	for i, t := range types {
		types[i].New = func(name string, target gate.Target, v gate.Values) (gate.Gate, error) {
			g, err := t.New(name, target, v)
			g.Diagnose = diagnose.Gate(t.Name, target, v)
			return g, err
		}
	}
	return types
}

// Reachable is the gate kubernetes_api of a kubeconfig's cluster.
func Reachable(kubeconfig []byte) gate.Gate { return gates.Reachable(kubeconfig) }

// Survey explains a whole cluster, where only a failure inside of it is known.
func Survey(ctx context.Context, target gate.Target) gate.Diagnosis {
	return diagnose.Cluster(ctx, target)
}

// Inline refuses a kubeconfig that runs a program or names a file.
func Inline(kubeconfig []byte) error { return client.Inline(kubeconfig) }

// ClientCertificates returns the certificates, in PEM, that a kubeconfig's users have.
func ClientCertificates(kubeconfig []byte) [][]byte { return client.ClientCertificates(kubeconfig) }

// Authorities returns the certificates, in PEM, by which a kubeconfig trusts its clusters.
func Authorities(kubeconfig []byte) [][]byte { return client.Authorities(kubeconfig) }

// ClusterIdentity identifies the cluster of a kubeconfig by its CA.
func ClusterIdentity(kubeconfig []byte) (string, error) { return client.ClusterIdentity(kubeconfig) }

// ExistsTypes lists the exists blocks that Kubernetes answers. An object that lacks the labels is foreign.
// Its adoption would end in its deletion on the day when the stage is destroyed, so it is refused.
func ExistsTypes() []gate.ExistsType {
	return []gate.ExistsType{{
		Name:    "kubernetes_object",
		Summary: "An object exists in the cluster, and has the labels that identify its owner",
		Attributes: map[string]gate.Attribute{
			"api_version": {Type: cty.String, Required: true, Help: "The group and version, such as \"v1\"."},
			"kind":        {Type: cty.String, Required: true, Help: "The kind, such as \"Namespace\"."},
			"namespace":   {Type: cty.String, Help: "The namespace, for namespaced kinds."},
			"name":        {Type: cty.String, Required: true, Help: "The object's name."},
			"labels": {Type: cty.Map(cty.String), Required: true,
				Help: "The labels that the stage gives it; one that lacks them is not adopted."},
		},
		New: func(name string, target gate.Target, v gate.Values) (gate.Exists, error) {
			var labels map[string]string
			if err := v.Decode("labels", &labels); err != nil {
				return gate.Exists{}, fmt.Errorf("exists %s: labels: %w", name, err)
			}
			object := gate.Object{Kind: v.String("kind"), ID: v.String("name"), Fix: "delete it with kubectl"}
			if namespace := v.String("namespace"); namespace != "" {
				object.ID = namespace + "/" + object.ID
			}
			lookup := func(ctx context.Context) (found bool, err error) {
				err = client.Do(ctx, target, func(ctx context.Context, a *client.API) error {
					in, err := a.Resolve(ctx, v.String("api_version"), object.Kind)
					if err != nil {
						return err
					}
					found, err = isOwn(ctx, a, client.Selection{Resource: in.GroupVersionResource,
						Namespace: v.String("namespace"), Name: v.String("name")}, object.Kind, labels)
					return err
				})
				return found, err
			}
			return gate.Exists{Name: name, Object: object, Lookup: lookup}, nil
		},
	}}
}

// isOwn reports whether an object exists; one that lacks the labels is an error.
func isOwn(ctx context.Context, a *client.API, s client.Selection, kind string, labels map[string]string) (
	bool, error) {
	object, err := a.Get(ctx, s, kind)
	switch {
	case gate.KindOf(err) == gate.NotFound:
		return false, nil
	case err != nil:
		return false, err
	case object.GetDeletionTimestamp() != nil:
		return false, fmt.Errorf("%s is being deleted", client.Title(object))
	}
	has := object.GetLabels()
	var lacks []string
	for _, key := range slices.Sorted(maps.Keys(labels)) {
		if has[key] != labels[key] {
			lacks = append(lacks, key+"="+labels[key])
		}
	}
	if len(lacks) > 0 {
		return false, gate.Permanent(fmt.Errorf("%s exists and is not castle's: it lacks the label %s; "+
			"delete it, have the stage use another name, or add the label if castle is to own it, and one "+
			"day to delete it", client.Title(object), strings.Join(lacks, ", ")))
	}
	return true, nil
}

// Exists reports whether an object exists. Its kind may be written in any case: Terraform's types have no
// capitals (config_map, api_service). Only Kubernetes' own kinds are known by such a name. namespace is
// empty for a cluster-scoped object.
func Exists(ctx context.Context, target gate.Target, kind, namespace, name string) (yes bool, err error) {
	err = client.Do(ctx, target, func(ctx context.Context, a *client.API) error {
		in, err := a.ResolveBuiltin(ctx, kind)
		if err != nil {
			return err
		}
		s := client.Selection{Resource: in.GroupVersionResource, Namespace: namespace, Name: name}
		_, err = a.Get(ctx, s, kind)
		yes = err == nil
		if gate.KindOf(err) == gate.NotFound {
			return nil
		}
		return err
	})
	return yes, err
}

// PendingRelease is a revision of a Helm release that some Helm has begun: it either works on it or was
// killed. Helm refuses the release to everybody until the revision ends, and only that Helm can end it.
type PendingRelease struct {
	Namespace, Name string
	Status          string // pending-install, pending-upgrade or pending-rollback

	secret  string // where Helm keeps the revision
	version metav1.Preconditions
}

// PendingReleases lists the unfinished revisions of all namespaces.
func PendingReleases(ctx context.Context, target gate.Target) ([]PendingRelease, error) {
	var found []PendingRelease
	secrets, err := revisions(ctx, target,
		"owner=helm,status in (pending-install,pending-upgrade,pending-rollback)")
	for _, s := range secrets {
		found = append(found, PendingRelease{
			Namespace: s.Namespace, Name: s.Labels["name"], Status: s.Labels["status"], secret: s.Name,
			version: metav1.Preconditions{UID: &s.UID, ResourceVersion: &s.ResourceVersion},
		})
	}
	return found, err
}

// ReleaseExists reports whether Helm has any revision of a release.
func ReleaseExists(ctx context.Context, target gate.Target, namespace, name string) (bool, error) {
	secrets, err := revisions(ctx, target, "owner=helm,name="+name)
	return slices.ContainsFunc(secrets,
		func(s metav1.PartialObjectMetadata) bool { return s.Namespace == namespace }), err
}

// revisions lists the Secrets of all namespaces in which Helm keeps revisions. It reads their metadata, never
// their data: a revision holds every value of its chart.
func revisions(ctx context.Context, target gate.Target, selector string) (
	found []metav1.PartialObjectMetadata, err error) {
	err = client.Do(ctx, target, func(ctx context.Context, a *client.API) (err error) {
		found, err = listMetadata(ctx, a, "/api/v1/secrets", map[string]string{
			"fieldSelector": client.ReleaseType, "labelSelector": selector})
		return err
	})
	return found, err
}

// RemovePendingRelease deletes one unfinished revision; its objects stay. It deletes nothing, and reports
// that, if the revision has changed since it was listed: then its Helm is alive.
func RemovePendingRelease(ctx context.Context, target gate.Target, r PendingRelease) (
	removed bool, err error) {
	err = client.Do(ctx, target, func(ctx context.Context, a *client.API) error {
		err := a.Dynamic.Resource(client.Core("secrets")).Namespace(r.Namespace).
			Delete(ctx, r.secret, metav1.DeleteOptions{Preconditions: &r.version})
		if apierrors.IsNotFound(err) || apierrors.IsConflict(err) {
			return nil
		}
		removed = err == nil
		return err
	})
	return removed, err
}

// SetDatabasePassword changes the password in the Secret that PGO has for a login role; empty: it changes
// nothing. It reports whether PGO has derived the verifier. PGO keeps one that it finds, also of another
// password, so that goes in the same change.
func SetDatabasePassword(ctx context.Context, target gate.Target, namespace, name, password string) (
	verified bool, err error) {
	secrets := client.Core("secrets")
	err = client.Retry(ctx, target, func(ctx context.Context, a *client.API) error {
		in := client.Selection{Resource: secrets, Namespace: namespace, Name: name}
		have, err := a.Get(ctx, in, "Secret")
		if err != nil {
			return err
		}
		data, _, err := unstructured.NestedStringMap(have.Object, "data")
		encoded := base64.StdEncoding.EncodeToString([]byte(password))
		if verified = data["verifier"] != ""; err != nil || password == "" || data["password"] == encoded {
			return err
		}
		verified = false
		patch, _ := json.Marshal(map[string]any{ //nolint:errcheck // texts have a JSON
			"metadata": map[string]any{"resourceVersion": have.GetResourceVersion()},
			"data":     map[string]any{"password": encoded, "verifier": nil}})
		_, err = a.Dynamic.Resource(secrets).Namespace(namespace).Patch(ctx, name, types.MergePatchType,
			patch, metav1.PatchOptions{})
		return err
	})
	return verified, err
}
