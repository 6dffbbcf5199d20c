package cilium

import (
	"context"
	_ "embed"
	"encoding/json"
	"strings"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"sigs.k8s.io/yaml"

	"github.com/ephemeral-castle/castle/lab/internal/operators/cluster"
)

// The kinds that the operator creates: kind, plural, scope, versions of which the first is stored.
//
//go:embed kinds.yaml
var kinds []byte

// kind is one of the table. A kind without a schema accepts every field.
type kind struct {
	Kind, Plural, Scope string
	Versions            []string
	ShortNames          []string
	Columns             []any
	Required            []string
	Spec                map[string]any
}

func definitions() schema.GroupVersionResource {
	return schema.GroupVersionResource{Group: "apiextensions.k8s.io", Version: "v1",
		Resource: "customresourcedefinitions"}
}

// define creates the kinds that are missing, and notes when all are established.
func (c *Cilium) define(ctx context.Context) error {
	if c.defined || !c.w.Passed("cilium kinds", 3*time.Second) {
		return nil
	}
	var all []kind
	if err := yaml.Unmarshal(kinds, &all); err != nil {
		return err
	}
	established := true
	for _, k := range all {
		of := c.w.Untyped.Resource(definitions())
		object, err := of.Get(ctx, k.Plural+".cilium.io", metav1.GetOptions{})
		if apierrors.IsNotFound(err) {
			object, err = of.Create(ctx, k.definition(), metav1.CreateOptions{})
		}
		if err != nil {
			return cluster.Unless(err, apierrors.IsAlreadyExists)
		}
		established = established && cluster.ConditionOf(object.Object, "Established") == "True"
	}
	c.defined = established
	return nil
}

func (k kind) definition() *unstructured.Unstructured {
	spec := k.Spec
	if spec == nil {
		spec = map[string]any{"x-kubernetes-preserve-unknown-fields": true}
	} else {
		spec = map[string]any{"properties": spec}
	}
	spec["type"] = "object"
	var versions []any
	for i, name := range k.Versions {
		versions = append(versions, map[string]any{
			"name": name, "served": true, "storage": i == 0,
			"subresources":             map[string]any{"status": map[string]any{}},
			"additionalPrinterColumns": append([]any{}, k.Columns...),
			"schema": map[string]any{"openAPIV3Schema": map[string]any{"type": "object",
				"required": append([]string{"metadata"}, k.Required...),
				"properties": map[string]any{"spec": spec, "status": map[string]any{"type": "object",
					"x-kubernetes-preserve-unknown-fields": true}}}},
		})
	}
	object := &unstructured.Unstructured{}
	data, err := json.Marshal(map[string]any{ // into the types of decoded JSON
		"apiVersion": "apiextensions.k8s.io/v1", "kind": "CustomResourceDefinition",
		"metadata": map[string]any{"name": k.Plural + ".cilium.io",
			"labels": map[string]any{"io.cilium.k8s.crd.schema.version": "1.31.11"}},
		"spec": map[string]any{"group": "cilium.io", "scope": k.Scope, "versions": versions,
			"names": map[string]any{"kind": k.Kind, "listKind": k.Kind + "List", "plural": k.Plural,
				"singular": strings.ToLower(k.Kind), "categories": []string{"cilium"},
				"shortNames": k.ShortNames}},
	})
	if err == nil {
		err = json.Unmarshal(data, &object.Object)
	}
	if err != nil {
		panic(err) // the table is part of the program
	}
	return object
}
