package gitops

import (
	"fmt"
	"maps"
	"regexp"
	"slices"
	"strings"

	"github.com/fluxcd/pkg/envsubst"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"sigs.k8s.io/yaml"
)

// Variables returns the data of a ConfigMap or Secret, and whether it exists.
type Variables func(kind, namespace, name string) (map[string]string, bool)

// Substitute replaces the ${variables} of objects, as Flux does after a build. A
// source that does not exist is an error unless it is optional.
func (k *Kustomization) Substitute(objects []Object, from Variables) ([]Object, error) {
	return k.substituted(objects, from, false)
}

// substituted leaves ${name} in place for a caller that does not know all sources.
func (k *Kustomization) substituted(objects []Object, from Variables, keepUnknown bool) ([]Object, error) {
	values, complete := map[string]string{}, true
	for _, s := range k.VariablesFrom {
		var data map[string]string
		exists := false
		if from != nil {
			data, exists = from(s.Kind, k.Key.Namespace, s.Name)
		}
		complete = complete && exists
		if !exists && !s.Optional && !keepUnknown {
			return nil, fmt.Errorf("substitute from '%s/%s' error: it is not in namespace %s", s.Kind, s.Name,
				k.Key.Namespace)
		}
		maps.Copy(values, data)
	}
	maps.Copy(values, k.spec.PostBuild.Substitute)
	if len(values) == 0 {
		return objects, nil // Flux then leaves even $$ as it is
	}
	for _, name := range slices.Sorted(maps.Keys(values)) {
		if !variableName.MatchString(name) {
			return nil, fmt.Errorf("variable %s: a name has letters, digits and underscores", name)
		}
	}
	mapping := func(name string) (string, bool) {
		v, known := values[name]
		if !known && !complete && keepUnknown {
			v = "${" + name + "}"
		}
		return strings.ReplaceAll(v, "\n", ""), true // Flux is not strict: an unknown variable becomes empty
	}
	var all []Object
	for _, o := range objects {
		changed, text, err := replace(o.Unstructured, mapping)
		if err != nil {
			return nil, fmt.Errorf("%s: %s %s: %w", o.At, o.GetKind(), o.GetName(), err)
		}
		all = append(all, Object{changed, o.At})
		if complete {
			k.noteUnset(text, all[len(all)-1], values)
		}
	}
	return all, nil
}

var (
	variableName = regexp.MustCompile(`^[_a-zA-Z][_a-zA-Z0-9]*$`)
	// plainVariable is a variable without a default, or an escaped dollar sign.
	plainVariable = regexp.MustCompile(`\$\$|\$\{([_a-zA-Z][_a-zA-Z0-9]*)\}`)
)

// noteUnset notes which variables in an object's text no source has.
func (k *Kustomization) noteUnset(text string, o Object, values map[string]string) {
	seen := map[string]bool{"": true}
	for _, found := range plainVariable.FindAllStringSubmatch(text, -1) {
		if _, known := values[found[1]]; !known && !seen[found[1]] {
			seen[found[1]] = true
			k.Unset = append(k.Unset, Unset{found[1], o})
		}
	}
}

// replace substitutes in the object's text, so that a variable may hold a number. It
// returns the text as it was; "" if the object's label or annotation forbids it.
func replace(o *unstructured.Unstructured, mapping func(string) (string, bool)) (*unstructured.Unstructured,
	string, error) {
	const label = "kustomize.toolkit.fluxcd.io/substitute"
	if o.GetLabels()[label] == "disabled" || o.GetAnnotations()[label] == "disabled" {
		return o, "", nil
	}
	text, err := yaml.Marshal(o.Object)
	if err != nil {
		return nil, "", err
	}
	replaced, err := envsubst.Eval(string(text), mapping)
	if err != nil || replaced == string(text) {
		return o, string(text), err
	}
	changed := &unstructured.Unstructured{}
	data, err := yaml.YAMLToJSON([]byte(replaced))
	if err == nil {
		err = changed.UnmarshalJSON(data)
	}
	return changed, string(text), err
}
