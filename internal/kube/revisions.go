package kube

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"path"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"sync"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/ephemeral-castle/castle/internal/gate"
	"github.com/ephemeral-castle/castle/internal/kube/client"
	"github.com/ephemeral-castle/castle/internal/kube/release"
	"github.com/ephemeral-castle/castle/internal/revision"
	"github.com/ephemeral-castle/castle/internal/state"
)

const helmRelease = "helm_release"

// Revisions reads the revisions of a stage's objects in the cluster: those of its kubernetes_* resources, and
// those of its Helm releases.
func Revisions() revision.System {
	const name = "kubernetes"
	read := func(ctx context.Context, s revision.Stage, known []revision.Object) (
		all []revision.Object, err error) {
		resources := slices.DeleteFunc(s.State.Managed(), func(r state.Resource) bool {
			return !slices.Contains(s.InCluster, r.Provider) || r.Deposed
		})
		if known == nil && len(resources) == 0 {
			return nil, nil
		}
		if all = slices.Clone(known); known == nil {
			if all, err = objectsOf(ctx, s.Target, resources); err != nil {
				return nil, err
			}
		}
		err = client.Do(ctx, s.Target, func(ctx context.Context, a *client.API) error {
			return readRevisions(ctx, a, s, all)
		})
		for i := range all {
			all[i].System = name
		}
		return all, err
	}
	return revision.System{Name: name, Read: read}
}

var apiVersion = regexp.MustCompile(`_v\d+((alpha|beta)\d+)?$`)

// KindOf returns the kind that a resource type of the Terraform provider manages, in lower case:
// kubernetes_config_map_v1 is a config_map.
func KindOf(typ string) string {
	return apiVersion.ReplaceAllString(strings.TrimPrefix(typ, "kubernetes_"), "")
}

// objectsOf returns the objects of resources, without revisions. It leaves out resources that are no single
// object, such as kubernetes_labels.
func objectsOf(ctx context.Context, target gate.Target, resources []state.Resource) (
	[]revision.Object, error) {
	found, errs := make([][]revision.Object, len(resources)), make([]error, len(resources))
	var all sync.WaitGroup
	for i, r := range resources {
		id, _ := r.Attributes["id"].(string)
		switch namespace, _ := r.Attributes["namespace"].(string); {
		case r.Type == helmRelease:
			all.Go(func() { found[i], errs[i] = releaseObjects(ctx, target, namespace, id, r.Address) })
		case strings.HasPrefix(r.Type, "kubernetes_") && id != "":
			all.Go(func() { found[i], errs[i] = resourceObject(ctx, target, KindOf(r.Type), id, r.Address) })
		}
	}
	all.Wait()
	return slices.Concat(found...), errors.Join(errs...)
}

func resourceObject(ctx context.Context, target gate.Target, kind, id, address string) (
	found []revision.Object, err error) {
	err = client.Do(ctx, target, func(ctx context.Context, a *client.API) error {
		in, err := a.ResolveBuiltin(ctx, kind)
		namespace, name, namespaced := strings.Cut(id, "/")
		if !namespaced {
			namespace, name = "", id
		}
		if client.IsNotServed(err) || err == nil && namespaced != in.Namespaced {
			return nil
		}
		found = []revision.Object{{Kind: in.Kind, Name: id, Address: address,
			Ref: reference(in.GroupVersionResource, namespace, name)}}
		return err
	})
	return found, err
}

// releaseObjects returns the newest revision of a Helm release and the objects of its manifest. Jobs are left
// out: one with a time to live deletes itself.
func releaseObjects(ctx context.Context, target gate.Target, namespace, name, address string) (
	[]revision.Object, error) {
	own := revision.Object{Kind: "Helm release", Name: namespace + "/" + name, Address: address}
	revisions, err := revisions(ctx, target, "owner=helm,name="+name)
	if err != nil {
		return nil, err
	}
	newest := 0
	for _, s := range revisions {
		version, _ := strconv.Atoi(s.Labels["version"]) // 0 is no revision of Helm's
		if s.Namespace == namespace && version > newest {
			newest, own.Ref = version, reference(client.Core("secrets"), namespace, s.Name)
		}
	}
	all := []revision.Object{own}
	objects, err := release.Objects(ctx, target, namespace, name)
	if gate.KindOf(err) == gate.NotFound {
		return all, nil
	}
	for _, o := range objects {
		if o.Kind == "Job" {
			continue
		}
		one := revision.Object{Kind: o.Kind, Name: o.Name, Address: address}
		if o.Namespace != "" {
			one.Name = o.Namespace + "/" + o.Name
		}
		if !o.Resource.Empty() {
			one.Ref = reference(o.Resource, o.Namespace, o.Name)
		}
		all = append(all, one)
	}
	return all, err
}

// reference returns an object's path in the API.
func reference(r schema.GroupVersionResource, namespace, name string) string {
	root := "/apis/" + r.GroupVersion().String()
	if r.Group == "" {
		root = "/api/" + r.Version
	}
	if namespace != "" {
		root = path.Join(root, "namespaces", namespace)
	}
	return path.Join(root, r.Resource, name)
}

// readRevisions sets the revisions of objects, of absent ones to "". It lists each kind once per namespace.
func readRevisions(ctx context.Context, a *client.API, s revision.Stage, objects []revision.Object) error {
	lists := map[string][]*revision.Object{}
	for i := range objects {
		objects[i].Revision = ""
		if list := path.Dir(objects[i].Ref); objects[i].Ref != "" {
			lists[list] = append(lists[list], &objects[i])
		}
	}
	var all sync.WaitGroup
	errs := make(chan error, len(lists))
	for list, wanted := range lists {
		all.Go(func() {
			items, err := listMetadata(ctx, a, list, nil)
			if err != nil && !apierrors.IsNotFound(err) { // a kind that is not served any more has no objects
				errs <- err
			}
			for _, o := range wanted {
				for _, item := range items {
					if item.Name == path.Base(o.Ref) {
						o.Revision = revisionOf(item.ObjectMeta)
						typ, name, _ := strings.Cut(strings.Split(o.Address, "[")[0], ".")
						if typ != helmRelease && s.Ignores(typ, name) { // others may write into it
							o.Revision = string(item.UID)
						}
					}
				}
			}
		})
	}
	all.Wait()
	close(errs)
	return <-errs
}

// revisionOf of an object without a generation changes with its status, too.
func revisionOf(o metav1.ObjectMeta) string {
	if o.Generation > 0 {
		return fmt.Sprintf("%s/%d", o.UID, o.Generation)
	}
	return fmt.Sprintf("%s/%s", o.UID, o.ResourceVersion)
}

// listMetadata lists objects at a path of the API without their content, which may be secret or large.
func listMetadata(ctx context.Context, a *client.API, list string, params map[string]string) (
	[]metav1.PartialObjectMetadata, error) {
	request := a.Raw.Get().AbsPath(list).
		SetHeader("Accept", "application/json;as=PartialObjectMetadataList;g=meta.k8s.io;v=v1")
	for name, value := range params {
		request.Param(name, value)
	}
	body, err := request.Do(ctx).Raw()
	if err != nil {
		return nil, err
	}
	var found metav1.PartialObjectMetadataList
	if json.Unmarshal(body, &found) != nil || found.Kind != "PartialObjectMetadataList" {
		// An error of the parser could quote its input.
		return nil, fmt.Errorf("kubernetes API at %s: cannot list %s without the content", a.Host, list)
	}
	return found.Items, nil
}
