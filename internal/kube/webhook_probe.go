package kube

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"strings"
	"time"

	"github.com/zclconf/go-cty/cty"
	ctyjson "github.com/zclconf/go-cty/cty/json"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/util/yaml"

	"github.com/ephemeral-castle/castle/internal/gate"
)

// probe sends objects past a configuration's webhooks in a dry run: the API
// server calls them as it would for real, and keeps nothing.
type probe struct {
	a             *api
	configuration string
	entries       []entry
	namespace     string
}

// accepted wants an object to be let through.
func (p probe) accepted(ctx context.Context, object *unstructured.Unstructured) error {
	err := p.create(ctx, object)
	by, why, denied := denial(err)
	switch {
	case err == nil, apierrors.IsAlreadyExists(err): // admission comes before storage
		return nil
	case denied && p.has(by) && judged(err):
		return gate.Permanent(fmt.Errorf("dry run of %s: webhook %s denies it: %s", p.title(object), by, brief(why)))
	}
	return p.inTheWay(object, err)
}

// rejected wants an object to be denied, and by one of these webhooks.
func (p probe) rejected(ctx context.Context, object *unstructured.Unstructured) error {
	err := p.create(ctx, object)
	by, _, denied := denial(err)
	switch {
	case denied && p.has(by) && judged(err):
		return nil
	case err == nil, apierrors.IsAlreadyExists(err):
		return fmt.Errorf("dry run of %s: no webhook of %s denies it", p.title(object), p.configuration)
	}
	return p.inTheWay(object, err)
}

// inTheWay says what kept the webhooks from judging an object. A server that
// does not listen yet, has no handler or another certificate, an object's
// namespace or another webhook can come right; an object that the API itself
// finds wrong cannot, and neither can a user without the right to try.
func (p probe) inTheWay(object *unstructured.Unstructured, err error) error {
	by, why, denied := denial(err)
	what := p.title(object)
	switch {
	case denied && p.has(by):
		return fmt.Errorf("dry run of %s: webhook %s cannot judge it yet: %s", what, by, brief(why))
	case denied:
		return fmt.Errorf("dry run of %s: webhook %s, which is not of %s, denies it: %s", what, by, p.configuration, brief(why))
	case apierrors.IsInvalid(err), apierrors.IsBadRequest(err):
		return gate.Permanent(fmt.Errorf("dry run of %s: it does not get as far as a webhook: %s", what, brief(message(err))))
	case apierrors.IsUnauthorized(err), apierrors.IsForbidden(err) && lacksRight(message(err)), message(err) == "":
		return err
	}
	return fmt.Errorf("dry run of %s: %s", what, brief(message(err)))
}

// judged reports whether a denial is about the object. A webhook that could not
// decide, because it is busy or cannot read what it needs, says no as well, with
// the code of an error of its own.
func judged(err error) bool {
	var status apierrors.APIStatus
	if !errors.As(err, &status) {
		return false
	}
	code := status.Status().Code
	return code < http.StatusInternalServerError && code != http.StatusTooManyRequests && code != http.StatusRequestTimeout
}

// lacksRight tells an answer about the user from one about the object: a quota,
// a namespace that goes and the rules for Pods forbid as well.
func lacksRight(message string) bool {
	return strings.Contains(message, `User "`) && strings.Contains(message, `" cannot `)
}

func (p probe) create(ctx context.Context, object *unstructured.Unstructured) error {
	r, err := p.a.resolve(ctx, object.GetAPIVersion(), object.GetKind())
	if err != nil {
		return err
	}
	namespace := ""
	if r.namespaced {
		namespace = cmp.Or(object.GetNamespace(), p.namespace, metav1.NamespaceDefault)
	}
	object = object.DeepCopy()
	object.SetNamespace(namespace)
	// The API waits for its webhooks. One that hangs must be told from an API
	// that does, so the attempt's end is not the dry run's.
	within := attempt
	if end, ok := ctx.Deadline(); ok {
		within = time.Until(end) * 3 / 4
	}
	bounded, stop := context.WithTimeout(ctx, within)
	defer stop()
	_, err = p.a.dynamic.Resource(r.GroupVersionResource).Namespace(namespace).
		Create(bounded, object, metav1.CreateOptions{DryRun: []string{metav1.DryRunAll}, FieldManager: "castle"})
	if bounded.Err() != nil && ctx.Err() == nil {
		return fmt.Errorf("dry run of %s: no answer within %s: one of its webhooks hangs", p.title(object), within.Round(time.Second/2))
	}
	return err
}

func (p probe) has(webhook string) bool {
	for _, e := range p.entries {
		if e.name == webhook {
			return true
		}
	}
	return false
}

func (p probe) title(object *unstructured.Unstructured) string {
	return titled(object.GetKind(), cmp.Or(object.GetNamespace(), p.namespace), object.GetName())
}

// denial reads which webhook said no, and why. A webhook that could not be
// called is no denial: that answer begins with "failed calling webhook".
func denial(err error) (webhook, why string, denied bool) {
	rest, ok := strings.CutPrefix(message(err), `admission webhook "`)
	if !ok {
		return "", "", false
	}
	webhook, rest, _ = strings.Cut(rest, `"`)
	why, denied = strings.CutPrefix(rest, " denied the request")
	return webhook, strings.TrimPrefix(why, ": "), denied
}

// message is what the API server itself said. It puts "Internal error
// occurred" in front of a webhook that could not be called.
func message(err error) string {
	var status apierrors.APIStatus
	if !errors.As(err, &status) {
		return ""
	}
	return strings.TrimPrefix(status.Status().Message, "Internal error occurred: ")
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
			return nil, errors.New("is no YAML or JSON of objects with a kind")
		case object.GetAPIVersion() == "" || object.GetName() == "":
			return nil, fmt.Errorf("an object of kind %s has no apiVersion or no name", object.GetKind())
		}
		all = append(all, object)
	}
}
