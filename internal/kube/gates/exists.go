package gates

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/zclconf/go-cty/cty"

	"github.com/ephemeral-castle/castle/internal/gate"
	"github.com/ephemeral-castle/castle/internal/kube/client"
)

// ExistsTypes lists the exists blocks that Kubernetes answers.
//
// An object that lacks the labels is foreign. Its adoption would end in its deletion on the day when the
// stage is destroyed, so it is refused.
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
			o := owned{apiVersion: v.String("api_version"), kind: v.String("kind"),
				namespace: v.String("namespace"), name: v.String("name")}
			if err := v.Decode("labels", &o.labels); err != nil {
				return gate.Exists{}, fmt.Errorf("exists %s: labels: %w", name, err)
			}
			object := gate.Object{Kind: o.kind, ID: o.name, Fix: "delete it with kubectl"}
			if o.namespace != "" {
				object.ID = o.namespace + "/" + o.name
			}
			c := client.New(target, "")
			lookup := func(ctx context.Context, _ []gate.Known) (found bool, err error) {
				err = c.Check(func(ctx context.Context, a *client.API) error {
					found, err = o.exists(ctx, a)
					return err
				})(ctx)
				return found, err
			}
			return gate.Exists{Name: name, Object: object, Lookup: lookup}, nil
		},
	}}
}

// owned is an object with the labels of its owner.
type owned struct {
	apiVersion, kind, namespace, name string
	labels                            map[string]string
}

func (o owned) exists(ctx context.Context, a *client.API) (bool, error) {
	in, err := a.Resolve(ctx, o.apiVersion, o.kind)
	if err != nil {
		return false, err
	}
	object, err := a.Get(ctx, client.Selection{
		Resource: in.GroupVersionResource, Namespace: o.namespace, Name: o.name,
	}, o.kind)
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
	for _, key := range slices.Sorted(maps.Keys(o.labels)) {
		if has[key] != o.labels[key] {
			lacks = append(lacks, key+"="+o.labels[key])
		}
	}
	if len(lacks) > 0 {
		return false, gate.Permanent(fmt.Errorf("%s exists and is not castle's: it lacks the label %s; "+
			"delete it, have the stage use another name, or add the label if castle is to own it, and one "+
			"day to delete it",
			client.Title(object), strings.Join(lacks, ", ")))
	}
	return true, nil
}
