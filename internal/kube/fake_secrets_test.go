package kube

import (
	"encoding/json"
	"net/http"
	"strings"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/fields"
)

// secrets answers requests for Secrets: a list selected by labels and type, with or without their data, and
// a deletion with its preconditions.
func (f *fakeAPI) secrets(r *http.Request) (answer, bool) {
	at := r.URL.Path
	switch {
	case r.Method == http.MethodGet && at == "/api/v1/secrets":
		selector, err := fields.ParseSelector(r.URL.Query().Get("fieldSelector"))
		if err != nil {
			return failure(400, metav1.StatusReasonBadRequest, "no field selector"), true
		}
		partial := strings.Contains(r.Header.Get("Accept"), "as=PartialObjectMetadataList")
		kind, items := "SecretList", []any{}
		if partial {
			kind = "PartialObjectMetadataList"
		}
		for _, one := range f.below(r) {
			secret := one.(map[string]any)
			if !selector.Matches(fields.Set{"type": secret["type"].(string)}) {
				continue
			}
			if partial {
				secret = map[string]any{"metadata": secret["metadata"]}
			}
			items = append(items, secret)
		}
		return answer{200, map[string]any{"kind": kind, "metadata": map[string]any{}, "items": items}}, true
	case r.Method == http.MethodDelete && strings.Contains(at, "/secrets/"):
		return f.delete(r), true
	}
	return answer{}, false
}

func (f *fakeAPI) delete(r *http.Request) answer {
	object, ok := f.objects[r.URL.Path]
	if !ok {
		return failure(404, metav1.StatusReasonNotFound, "not found")
	}
	var options metav1.DeleteOptions
	if err := json.NewDecoder(r.Body).Decode(&options); err != nil || options.Preconditions == nil {
		return failure(400, metav1.StatusReasonBadRequest, "this API deletes nothing without preconditions")
	}
	meta := object["metadata"].(map[string]any)
	if string(*options.Preconditions.UID) != meta["uid"] ||
		*options.Preconditions.ResourceVersion != meta["resourceVersion"] {
		return failure(409, metav1.StatusReasonConflict, "the object has been modified")
	}
	delete(f.objects, r.URL.Path)
	return answer{200, metav1.Status{TypeMeta: metav1.TypeMeta{APIVersion: "v1", Kind: "Status"},
		Status: metav1.StatusSuccess}}
}
