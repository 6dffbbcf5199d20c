package gates

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"slices"
	"strings"
	"time"

	"github.com/zclconf/go-cty/cty"
	ctyjson "github.com/zclconf/go-cty/cty/json"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/util/yaml"

	"github.com/ephemeral-castle/castle/internal/gate"
	"github.com/ephemeral-castle/castle/internal/kube/client"
)

// Probe sends objects past a configuration's webhooks in a dry run: the API
// server calls them as it would for real, and stores nothing.
type Probe struct {
	a                        *client.API
	configuration, namespace string
	entries                  []Entry
}

// accepted requires that the webhooks let an object pass.
func (p Probe) accepted(ctx context.Context, object *unstructured.Unstructured) error {
	err := p.Create(ctx, object)
	by, why, denied := denial(err)
	switch {
	case err == nil, apierrors.IsAlreadyExists(err): // admission comes before storage
		return nil
	case denied && p.has(by) && decided(err):
		return gate.Permanent(fmt.Errorf("dry run of %s: webhook %s denies it: %s", p.Title(object), by,
			client.Brief(why)))
	}
	return p.obstacle(object, err)
}

// rejected requires that one of these webhooks denies an object.
func (p Probe) rejected(ctx context.Context, object *unstructured.Unstructured) error {
	err := p.Create(ctx, object)
	by, _, denied := denial(err)
	switch {
	case denied && p.has(by) && decided(err):
		return nil
	case err == nil, apierrors.IsAlreadyExists(err):
		return fmt.Errorf("dry run of %s: no webhook of %s denies it", p.Title(object), p.configuration)
	}
	return p.obstacle(object, err)
}

// obstacle says what kept the webhooks from deciding on an object. A server that
// does not listen yet, has no handler or another certificate, the object's
// namespace or another webhook can come right. An object that the API itself finds
// invalid cannot, and neither can a user without the permission to try.
func (p Probe) obstacle(object *unstructured.Unstructured, err error) error {
	by, why, denied := denial(err)
	message, run := client.Message(err), "dry run of "+p.Title(object)
	switch {
	case denied && p.has(by):
		return fmt.Errorf("%s: webhook %s cannot decide yet: %s", run, by, client.Brief(why))
	case denied:
		return fmt.Errorf("%s: webhook %s, which is not of %s, denies it: %s", run, by, p.configuration,
			client.Brief(why))
	case apierrors.IsInvalid(err), apierrors.IsBadRequest(err):
		return gate.Permanent(fmt.Errorf("%s: the API refuses it before any webhook: %s", run,
			client.Brief(message)))
	case client.LacksPermission(err), message == "":
		return err
	}
	return fmt.Errorf("%s: %s", run, client.Brief(message))
}

// decided reports whether a denial is about the object. A webhook that could not
// decide, because it is busy or cannot read what it needs, denies as well, with the
// code of an error of its own.
func decided(err error) bool {
	var status apierrors.APIStatus
	if !errors.As(err, &status) {
		return false
	}
	code := status.Status().Code
	return code < http.StatusInternalServerError && code != http.StatusTooManyRequests &&
		code != http.StatusRequestTimeout
}

// Create makes the dry run.
func (p Probe) Create(ctx context.Context, object *unstructured.Unstructured) error {
	r, err := p.a.Resolve(ctx, object.GetAPIVersion(), object.GetKind())
	if err != nil {
		return err
	}
	namespace := ""
	if r.Namespaced {
		namespace = cmp.Or(object.GetNamespace(), p.namespace, metav1.NamespaceDefault)
	}
	object = object.DeepCopy()
	object.SetNamespace(namespace)
	// The API waits for its webhooks. A shorter bound than the attempt's tells a
	// webhook that hangs from an API that hangs.
	within := client.DefaultAttempt
	if end, ok := ctx.Deadline(); ok {
		within = time.Until(end) * 3 / 4
	}
	bounded, stop := context.WithTimeout(ctx, within)
	defer stop()
	_, err = p.a.Dynamic.Resource(r.GroupVersionResource).Namespace(namespace).
		Create(bounded, object, metav1.CreateOptions{DryRun: []string{metav1.DryRunAll},
			FieldManager: "castle"})
	if bounded.Err() != nil && ctx.Err() == nil {
		return fmt.Errorf("dry run of %s: no answer within %s: one of its webhooks hangs",
			p.Title(object), within.Round(time.Second/2))
	}
	return err
}

func (p Probe) has(webhook string) bool {
	return slices.ContainsFunc(p.entries, func(e Entry) bool { return e.Name == webhook })
}

// Title is the probe's object as messages name it.
func (p Probe) Title(object *unstructured.Unstructured) string {
	return client.Titled(object.GetKind(), cmp.Or(object.GetNamespace(), p.namespace), object.GetName())
}

// denial reads which webhook denied, and why. A webhook that could not be called
// is no denial: that answer begins with "failed calling webhook".
func denial(err error) (webhook, why string, denied bool) {
	rest, ok := strings.CutPrefix(client.Message(err), `admission webhook "`)
	if !ok {
		return "", "", false
	}
	webhook, rest, _ = strings.Cut(rest, `"`)
	why, denied = strings.CutPrefix(rest, " denied the request")
	return webhook, strings.TrimPrefix(why, ": "), denied
}

func validManifest(x cty.Value) error {
	if !x.IsWhollyKnown() {
		return nil
	}
	objects, err := manifests(x)
	if err == nil && len(objects) == 0 {
		return errors.New("contains no object")
	}
	return err
}

// manifests reads objects from an argument: YAML or JSON text, an object, or a list of these.
func manifests(x cty.Value) ([]*unstructured.Unstructured, error) {
	switch {
	case x == cty.NilVal || !x.IsKnown() || x.IsNull():
		return nil, nil
	case x.Type() == cty.String:
		return documents(x.AsString())
	case x.Type().IsTupleType(), x.Type().IsListType():
		var all []*unstructured.Unstructured
		for _, element := range x.AsValueSlice() {
			some, err := manifests(element)
			if err != nil {
				return nil, err
			}
			all = append(all, some...)
		}
		return all, nil
	case x.Type().IsObjectType(), x.Type().IsMapType():
		encoded, err := ctyjson.Marshal(x, x.Type())
		if err != nil {
			return nil, err
		}
		return documents(string(encoded))
	}
	return nil, fmt.Errorf("is a %s, neither text nor an object", x.Type().FriendlyName())
}

func documents(manifest string) ([]*unstructured.Unstructured, error) {
	var all []*unstructured.Unstructured
	decoder := yaml.NewYAMLOrJSONDecoder(strings.NewReader(manifest), 4096)
	for {
		object := &unstructured.Unstructured{}
		err := decoder.Decode(object)
		switch {
		case errors.Is(err, io.EOF):
			return all, nil
		case err != nil:
			// The decoder's error would quote the manifest, which may hold a secret.
			return nil, errors.New("is not YAML or JSON of objects with a kind")
		case object.GetAPIVersion() == "" || object.GetName() == "":
			return nil, fmt.Errorf("an object of kind %s has no apiVersion or no name", object.GetKind())
		}
		all = append(all, object)
	}
}
