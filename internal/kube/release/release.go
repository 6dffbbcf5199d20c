// Package release compares an installed Helm release with the cluster and restores what differs. Terraform
// and Helm look at a release's record alone. The record is a Secret with the rendered manifest. The API
// server decides what differs: it applies each object in a dry run, and the result is compared with the live
// object. A field that the manifest does not set is no difference. Nothing here prints or keeps a value;
// objects are named with paths of fields.
package release

import (
	"bufio"
	"bytes"
	"cmp"
	"context"
	"encoding/base64"
	"errors"
	"fmt"
	"io"
	"strconv"
	"time"

	"github.com/siderolabs/gen/xslices"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	jsonutil "k8s.io/apimachinery/pkg/util/json"
	yamlstream "k8s.io/apimachinery/pkg/util/yaml"
	"sigs.k8s.io/yaml"

	"github.com/ephemeral-castle/castle/internal/gate"
	"github.com/ephemeral-castle/castle/internal/kube/client"
)

// Object identifies an object of a release's manifest. Namespace is empty for a cluster-scoped one.
type Object struct {
	APIVersion string `json:"api_version"`
	Kind       string `json:"kind"`
	Namespace  string `json:"namespace,omitempty"`
	Name       string `json:"name"`
	// Resource serves it; empty if the API does not know the kind.
	Resource schema.GroupVersionResource `json:"-"`
}

// String is the object as messages name it: deployment metallb-system/controller.
func (o Object) String() string { return client.Titled(o.Kind, o.Namespace, o.Name) }

// Objects lists the objects of a release's manifest, in the order in which Helm installs them. Hooks are no
// part of it. A release that is not installed is a finding of kind NotFound.
func Objects(ctx context.Context, target gate.Target, namespace, name string) ([]Object, error) {
	var found []Object
	err := do(ctx, target, func(ctx context.Context, a *client.API) error {
		all, err := manifest(ctx, a, namespace, name)
		found = append(found, xslices.Map(all, func(m manifested) Object { return m.object })...)
		return err
	})
	return found, err
}

// longest bounds the comparison of one release, which may have a hundred objects.
const longest = 2 * time.Minute

func do(ctx context.Context, target gate.Target, work func(context.Context, *client.API) error) error {
	cluster := client.New(target, "")
	cluster.Attempt = longest
	return cluster.Check(work)(ctx)
}

// manifested is one object of a manifest.
type manifested struct {
	object Object
	wanted *client.Object
	// in is where the object lives. It has no resource if the API does not serve the kind.
	in client.Selection
}

// manifest reads the objects of the release's deployed revision, as Helm creates them.
func manifest(ctx context.Context, a *client.API, namespace, name string) ([]manifested, error) {
	text, err := deployed(ctx, a, namespace, name)
	if err != nil {
		return nil, err
	}
	objects, err := parse(text)
	if err != nil { // without the parser's text, which could quote a Secret
		return nil, fmt.Errorf("release %s/%s: castle cannot read its manifest", namespace, name)
	}
	all := make([]manifested, len(objects))
	for i, o := range objects {
		if all[i], err = located(ctx, a, o, namespace, name); err != nil {
			return nil, err
		}
	}
	return all, nil
}

// parse returns the objects of a manifest, those of lists one by one.
func parse(text []byte) (all []*client.Object, err error) {
	for documents := yamlstream.NewYAMLReader(bufio.NewReader(bytes.NewReader(text))); ; {
		document, err := documents.Read()
		if errors.Is(err, io.EOF) {
			return all, nil
		}
		one := &client.Object{}
		if err == nil {
			document, err = yaml.YAMLToJSON(document)
		}
		if err == nil {
			err = jsonutil.Unmarshal(document, &one.Object)
		}
		switch {
		case err != nil:
			return nil, err
		case one.IsList():
			err = one.EachListItem(func(item runtime.Object) error {
				all = append(all, item.(*client.Object))
				return nil
			})
		case len(one.Object) > 0:
			all = append(all, one)
		}
		if err != nil {
			return nil, err
		}
	}
}

// deployed returns the manifest of the release's newest deployed revision.
func deployed(ctx context.Context, a *client.API, namespace, name string) ([]byte, error) {
	revisions, err := a.Dynamic.Resource(client.Core("secrets")).Namespace(namespace).
		List(ctx, metav1.ListOptions{FieldSelector: client.ReleaseType,
			LabelSelector: "owner=helm,status=deployed,name=" + name})
	if err != nil {
		return nil, err
	}
	newest, encoded := 0, ""
	for _, s := range revisions.Items {
		if version, err := strconv.Atoi(s.GetLabels()["version"]); err == nil && version > newest {
			newest, encoded = version, client.Text(&s, "data", "release")
		}
	}
	if newest == 0 {
		return nil, client.NotFound("release", namespace, name)
	}
	text, err := decode(encoded)
	if err != nil {
		return nil, fmt.Errorf("release %s/%s: castle cannot read revision %d", namespace, name, newest)
	}
	return text, nil
}

// decode reads the manifest in a revision, which is in base64 as all data of a Secret.
func decode(encoded string) ([]byte, error) {
	data, err := base64.StdEncoding.DecodeString(encoded)
	if err != nil {
		return nil, err
	}
	r, err := client.ReadRelease(data)
	return []byte(r.Manifest), err
}

// Helm marks what it owns with these, and adds to a release only objects that have them.
const (
	managedBy        = "app.kubernetes.io/managed-by"
	releaseName      = "meta.helm.sh/release-name"
	releaseNamespace = "meta.helm.sh/release-namespace"
)

// located adds Helm's marks to an object of a manifest, and finds where it lives.
func located(ctx context.Context, a *client.API, o *client.Object, namespace, name string) (
	manifested, error) {
	withoutNulls(o.Object)
	o.SetLabels(with(o.GetLabels(), managedBy, "Helm"))
	o.SetAnnotations(with(with(o.GetAnnotations(), releaseName, name), releaseNamespace, namespace))
	m := manifested{wanted: o,
		object: Object{APIVersion: o.GetAPIVersion(), Kind: o.GetKind(), Name: o.GetName()}}
	if m.object.Name == "" || m.object.Kind == "" {
		return m, fmt.Errorf("release %s/%s: an object of its manifest has no kind or no name",
			namespace, name)
	}
	in, err := a.Resolve(ctx, m.object.APIVersion, m.object.Kind)
	if client.IsNotServed(err) {
		m.object.Namespace = o.GetNamespace()
		return m, nil
	}
	if err != nil {
		return m, err
	}
	if m.object.Resource = in.GroupVersionResource; in.Namespaced {
		m.object.Namespace = cmp.Or(o.GetNamespace(), namespace)
	}
	o.SetNamespace(m.object.Namespace)
	m.in = client.Selection{Resource: in.GroupVersionResource, Namespace: m.object.Namespace,
		Name: m.object.Name}
	return m, nil
}

func with(all map[string]string, key, value string) map[string]string {
	if all == nil {
		all = map[string]string{}
	}
	all[key] = value
	return all
}

// withoutNulls removes fields that are null: for the API they are as good as absent.
func withoutNulls(value any) {
	switch value := value.(type) {
	case map[string]any:
		for key, field := range value {
			if field == nil {
				delete(value, key)
			}
			withoutNulls(field)
		}
	case []any:
		for _, item := range value {
			withoutNulls(item)
		}
	}
}
