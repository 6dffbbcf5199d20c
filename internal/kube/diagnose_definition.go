package kube

import (
	"context"
	"fmt"
	"slices"
	"strings"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/ephemeral-castle/castle/internal/gate"
)

func definitionsResource() schema.GroupVersionResource {
	return schema.GroupVersionResource{Group: "apiextensions.k8s.io", Version: "v1", Resource: "customresourcedefinitions"}
}

// wantedDefinitions explains CustomResourceDefinitions by their names.
func (q *inquiry) wantedDefinitions(ctx context.Context, v gate.Values) {
	var names []string
	if err := v.Decode("names", &names); err != nil {
		return
	}
	for _, name := range names {
		object, sure := q.get(ctx, selection{in: definitionsResource(), name: name}, "CustomResourceDefinition")
		switch {
		case object != nil:
			q.because(definitionCause(object, v.String("version")), describe("crd", "", name))
		case sure:
			q.absent(ctx, "CustomResourceDefinition", "", name, "the operator that brings it is not installed, or was installed without its CRDs")
		}
	}
}

// unserved explains a kind that the API does not know.
func (q *inquiry) unserved(ctx context.Context, absent notServed) {
	group, version, grouped := strings.Cut(absent.where, "/")
	if !grouped {
		version = ""
	}
	all, err := q.a.list(ctx, definitionsResource(), "", "")
	if err != nil {
		q.miss("CustomResourceDefinitions", err)
	}
	for i := range all {
		all[i].SetKind("CustomResourceDefinition") // some lists leave it out
		if text(&all[i], "spec", "names", "kind") != absent.kind || group != "" && text(&all[i], "spec", "group") != group {
			continue
		}
		q.object(&all[i])
		q.because(definitionCause(&all[i], version), describe("crd", "", all[i].GetName()))
		return
	}
	q.because(fmt.Sprintf("there is no CustomResourceDefinition for %s: the operator that brings it is not installed, or was installed without its CRDs", absent.kind),
		"kubectl get crds")
}

// definitionCause says why a kind with a definition is not served, or not in
// the version that is asked for.
func definitionCause(definition *unstructured.Unstructured, version string) string {
	accepted, _ := stateOf(definition, "NamesAccepted")
	established, _ := stateOf(definition, "Established")
	served := servedVersions(definition)
	switch {
	case definition.GetDeletionTimestamp() != nil:
		return title(definition) + " is being deleted: objects of its kind that have finalizers hold it up"
	case accepted.Status == "False":
		return fmt.Sprintf("%s is not accepted: %s", title(definition), accepted.why())
	case established.Status != "True":
		return fmt.Sprintf("%s is there and not established yet", title(definition))
	case version != "" && !slices.Contains(served, version):
		return fmt.Sprintf("%s serves %s and not %s: the operator is of another version than its objects", title(definition), strings.Join(served, ", "), version)
	}
	return ""
}
