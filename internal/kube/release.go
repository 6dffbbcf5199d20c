package kube

import (
	"context"
	"encoding/json"
	"fmt"
	"slices"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/ephemeral-castle/castle/internal/gate"
)

// PendingRelease is a revision of a Helm release that some Helm has begun: it is
// either at work or was killed. Helm refuses the release to everybody until the
// revision ends, and only the Helm that began it can end it.
type PendingRelease struct {
	Namespace, Name string
	Status          string // pending-install, pending-upgrade or pending-rollback

	secret  string // where Helm keeps the revision
	version metav1.Preconditions
}

// Helm 3 and 4 keep each revision in a Secret of this type with these labels.
const (
	releaseType      = "type=helm.sh/release.v1"
	pendingRevisions = "owner=helm,status in (pending-install,pending-upgrade,pending-rollback)"
)

// PendingReleases lists the unfinished revisions of all namespaces. It reads
// what is written on the Secrets, never what is in them: a revision holds every
// value that its chart was given.
func PendingReleases(ctx context.Context, target gate.Target) ([]PendingRelease, error) {
	var found []PendingRelease
	err := newCluster(target, "").ask(func(ctx context.Context, a *api) error {
		secrets, err := a.revisions(ctx, pendingRevisions)
		if err != nil {
			return err
		}
		for _, s := range secrets {
			found = append(found, PendingRelease{
				Namespace: s.Namespace, Name: s.Labels["name"], Status: s.Labels["status"],
				secret: s.Name, version: metav1.Preconditions{UID: &s.UID, ResourceVersion: &s.ResourceVersion},
			})
		}
		return nil
	})(ctx)
	return found, err
}

// ReleaseExists reports whether Helm has any revision of a release.
func ReleaseExists(ctx context.Context, target gate.Target, namespace, name string) (yes bool, err error) {
	err = newCluster(target, "").ask(func(ctx context.Context, a *api) error {
		secrets, err := a.revisions(ctx, "owner=helm,name="+name)
		yes = slices.ContainsFunc(secrets, func(s metav1.PartialObjectMetadata) bool { return s.Namespace == namespace })
		return err
	})(ctx)
	return yes, err
}

// revisions lists the Secrets of all namespaces that Helm keeps revisions in.
func (a *api) revisions(ctx context.Context, selector string) ([]metav1.PartialObjectMetadata, error) {
	body, err := a.raw.Get().AbsPath("/api/v1/secrets").
		Param("fieldSelector", releaseType).Param("labelSelector", selector).
		SetHeader("Accept", "application/json;as=PartialObjectMetadataList;g=meta.k8s.io;v=v1").Do(ctx).Raw()
	if err != nil {
		return nil, err
	}
	var secrets metav1.PartialObjectMetadataList
	if err := json.Unmarshal(body, &secrets); err != nil || secrets.Kind != "PartialObjectMetadataList" {
		// An error of the parser could quote what it stumbled over.
		return nil, fmt.Errorf("kubernetes API at %s: cannot list Secrets without what is in them", a.host)
	}
	return secrets.Items, nil
}

// RemovePendingRelease deletes one unfinished revision; what it has installed
// stays. It deletes nothing, and says so, if the revision is not any more as it
// was listed: then its Helm is alive.
func RemovePendingRelease(ctx context.Context, target gate.Target, r PendingRelease) (removed bool, err error) {
	secrets := schema.GroupVersionResource{Version: "v1", Resource: "secrets"}
	err = newCluster(target, "").ask(func(ctx context.Context, a *api) error {
		err := a.dynamic.Resource(secrets).Namespace(r.Namespace).Delete(ctx, r.secret, metav1.DeleteOptions{Preconditions: &r.version})
		if apierrors.IsNotFound(err) || apierrors.IsConflict(err) {
			return nil
		}
		removed = err == nil
		return err
	})(ctx)
	return removed, err
}
