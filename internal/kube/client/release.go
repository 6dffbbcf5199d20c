package client

import (
	"context"
	"encoding/json"
	"fmt"
	"slices"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/ephemeral-castle/castle/internal/gate"
)

// Exists reports whether an object exists. Its kind may be written in any case: Terraform's types have no
// capitals (config_map, api_service). Only Kubernetes' own kinds are known by such a name. namespace is
// empty for a cluster-scoped object.
func Exists(ctx context.Context, target gate.Target, kind, namespace, name string) (yes bool, err error) {
	err = New(target, "").Check(func(ctx context.Context, a *API) error {
		in, err := a.resolveBuiltin(ctx, kind)
		if err != nil {
			return err
		}
		_, err = a.Get(ctx, Selection{Resource: in.GroupVersionResource, Namespace: namespace, Name: name},
			kind)
		if gate.KindOf(err) == gate.NotFound {
			return nil
		}
		yes = err == nil
		return err
	})(ctx)
	return yes, err
}

// PendingRelease is a revision of a Helm release that some Helm has begun: it either works on it or was
// killed. Helm refuses the release to everybody until the revision ends, and only the Helm that began it can
// end it.
type PendingRelease struct {
	Namespace, Name string
	Status          string // pending-install, pending-upgrade or pending-rollback

	secret  string // where Helm keeps the revision
	version metav1.Preconditions
}

// Helm 3 and 4 keep each revision in a Secret of this type with these labels.
const (
	ReleaseType      = "type=helm.sh/release.v1"
	pendingRevisions = "owner=helm,status in (pending-install,pending-upgrade,pending-rollback)"
)

// PendingReleases lists the unfinished revisions of all namespaces. It reads the Secrets' metadata, never
// their data: a revision holds every value of its chart.
func PendingReleases(ctx context.Context, target gate.Target) ([]PendingRelease, error) {
	var found []PendingRelease
	err := New(target, "").Check(func(ctx context.Context, a *API) error {
		secrets, err := a.revisions(ctx, pendingRevisions)
		for _, s := range secrets {
			found = append(found, PendingRelease{
				Namespace: s.Namespace, Name: s.Labels["name"], Status: s.Labels["status"],
				secret: s.Name, version: metav1.Preconditions{UID: &s.UID,
					ResourceVersion: &s.ResourceVersion},
			})
		}
		return err
	})(ctx)
	return found, err
}

// ReleaseExists reports whether Helm has any revision of a release.
func ReleaseExists(ctx context.Context, target gate.Target, namespace, name string) (yes bool, err error) {
	err = New(target, "").Check(func(ctx context.Context, a *API) error {
		secrets, err := a.revisions(ctx, "owner=helm,name="+name)
		yes = slices.ContainsFunc(secrets,
			func(s metav1.PartialObjectMetadata) bool { return s.Namespace == namespace })
		return err
	})(ctx)
	return yes, err
}

// revisions lists the Secrets of all namespaces in which Helm keeps revisions.
func (a *API) revisions(ctx context.Context, selector string) ([]metav1.PartialObjectMetadata, error) {
	body, err := a.Raw.Get().AbsPath("/api/v1/secrets").
		Param("fieldSelector", ReleaseType).Param("labelSelector", selector).
		SetHeader("Accept", "application/json;as=PartialObjectMetadataList;g=meta.k8s.io;v=v1").Do(ctx).Raw()
	if err != nil {
		return nil, err
	}
	var secrets metav1.PartialObjectMetadataList
	if err := json.Unmarshal(body, &secrets); err != nil || secrets.Kind != "PartialObjectMetadataList" {
		// An error of the parser could quote its input.
		return nil, fmt.Errorf("kubernetes API at %s: cannot list Secrets without their data", a.Host)
	}
	return secrets.Items, nil
}

// RemovePendingRelease deletes one unfinished revision; its objects stay. It deletes nothing, and reports
// that, if the revision has changed since it was listed: then its Helm is alive.
func RemovePendingRelease(ctx context.Context, target gate.Target, r PendingRelease) (removed bool,
	err error) {
	err = New(target, "").Check(func(ctx context.Context, a *API) error {
		err := a.Dynamic.Resource(Core("secrets")).Namespace(r.Namespace).
			Delete(ctx, r.secret, metav1.DeleteOptions{Preconditions: &r.version})
		if apierrors.IsNotFound(err) || apierrors.IsConflict(err) {
			return nil
		}
		removed = err == nil
		return err
	})(ctx)
	return removed, err
}
