package kube

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/zclconf/go-cty/cty"
	apierrors "k8s.io/apimachinery/pkg/api/errors"

	"github.com/ephemeral-castle/castle/internal/gate"
)

// ExistsTypes lists what an adoption may ask Kubernetes.
//
// An object that lacks the labels is somebody else's. To take it over would end
// in its deletion on the day when the stage is destroyed, so it is refused.
func ExistsTypes() []gate.ExistsType {
	return []gate.ExistsType{{
		Name:    "kubernetes_object",
		Summary: "An object is in the cluster, and carries the labels that say whose it is",
		Attributes: map[string]gate.Attribute{
			"api_version": {Type: cty.String, Required: true, Help: "The group and version, such as \"v1\"."},
			"kind":        {Type: cty.String, Required: true, Help: "The kind, such as \"Namespace\"."},
			"namespace":   {Type: cty.String, Help: "The namespace, for kinds that live in one."},
			"name":        {Type: cty.String, Required: true, Help: "The object's name."},
			"labels":      {Type: cty.Map(cty.String), Required: true, Help: "The labels that the stage gives it; one that lacks them is not adopted."},
		},
		New: func(name string, target gate.Target, values gate.Values) (gate.Exists, error) {
			q := objectQuestion{
				apiVersion: values.String("api_version"), kind: values.String("kind"),
				namespace: values.String("namespace"), name: values.String("name"),
			}
			if err := values.Decode("labels", &q.labels); err != nil {
				return gate.Exists{}, fmt.Errorf("exists %s: labels: %w", name, err)
			}
			c := newCluster(target, "")
			object := gate.Object{Kind: q.kind, ID: q.name, Fix: "delete it with kubectl"}
			if q.namespace != "" {
				object.ID = q.namespace + "/" + q.name
			}
			return gate.Exists{Name: name, Object: object, Lookup: func(ctx context.Context, _ []gate.Known) (found bool, err error) {
				err = c.ask(func(ctx context.Context, a *api) error {
					found, err = q.ask(ctx, a)
					return err
				})(ctx)
				return found, err
			}}, nil
		},
	}}
}

type objectQuestion struct {
	apiVersion, kind, namespace, name string
	labels                            map[string]string
}

func (q objectQuestion) ask(ctx context.Context, a *api) (bool, error) {
	in, err := a.resolve(ctx, q.apiVersion, q.kind)
	if err != nil {
		return false, err
	}
	object, err := a.get(ctx, in.GroupVersionResource, q.namespace, q.name)
	switch {
	case apierrors.IsNotFound(err):
		return false, nil
	case err != nil:
		return false, err
	case object.GetDeletionTimestamp() != nil:
		return false, fmt.Errorf("%s is being deleted", title(object))
	}
	has := object.GetLabels()
	var lacks []string
	for _, key := range slices.Sorted(maps.Keys(q.labels)) {
		if has[key] != q.labels[key] {
			lacks = append(lacks, key+"="+q.labels[key])
		}
	}
	if len(lacks) > 0 {
		return false, gate.Permanent(fmt.Errorf("%s is there and is not castle's: it lacks the label %s; "+
			"delete it, have the stage use another name, or give it the label if castle is to own it, and one day to delete it",
			title(object), strings.Join(lacks, ", ")))
	}
	return true, nil
}
