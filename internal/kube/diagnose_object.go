package kube

import (
	"path"
	"slices"
	"strings"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"sigs.k8s.io/yaml"

	"github.com/ephemeral-castle/castle/internal/secret"
)

// lastApplied is a second copy of an object, with everything that was in it.
const lastApplied = "kubectl.kubernetes.io/last-applied-configuration"

// object keeps an object as a person reads it: without the book-keeping of who
// set which field, and without what it should not tell.
func (q *inquiry) object(object *unstructured.Unstructured) {
	text, err := yaml.Marshal(shown(object))
	if err != nil {
		q.miss(title(object), err)
		return
	}
	q.keep(path.Join("objects", strings.ToLower(object.GetKind()), object.GetNamespace(), object.GetName()+".yaml"), text)
}

// shown is a copy of an object with everything hidden that could be a
// credential. Of Secrets and ConfigMaps only the names of the keys are left.
func shown(object *unstructured.Unstructured) map[string]any {
	copied := object.DeepCopy()
	copied.SetManagedFields(nil)
	annotations := copied.GetAnnotations()
	if _, held := annotations[lastApplied]; held {
		annotations[lastApplied] = secret.Mask
		copied.SetAnnotations(annotations)
	}
	if slices.Contains([]string{"Secret", "ConfigMap"}, copied.GetKind()) {
		for _, field := range []string{"data", "stringData", "binaryData"} {
			if values, ok := copied.Object[field].(map[string]any); ok {
				for key := range values {
					values[key] = secret.Mask
				}
			}
		}
		return copied.Object
	}
	hidden, _ := hide(copied.Object).(map[string]any)
	return hidden
}

// hide goes through everything in an object. An environment variable has its
// name beside its value, everything else has it before.
func hide(value any) any {
	switch x := value.(type) {
	case map[string]any:
		name, _ := x["name"].(string)
		for key, inner := range x {
			held, isText := inner.(string)
			switch {
			case isText && (secret.LikelyName(key) || key == "value" && secret.LikelyName(name)):
				x[key] = secret.Mask
			case isText && key == "caBundle":
				x[key] = bundled(held)
			default:
				x[key] = hide(inner)
			}
		}
	case []any:
		for i := range x {
			x[i] = hide(x[i])
		}
	case string:
		return secret.HideLikely(x)
	}
	return value
}

// describe is the command that shows an object with its events.
func describe(kind, namespace, name string) string {
	command := "kubectl "
	if namespace != "" {
		command += "-n " + namespace + " "
	}
	return command + "describe " + strings.ToLower(kind) + " " + name
}
