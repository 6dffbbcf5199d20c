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

// Variables returns what a ConfigMap or Secret offers to be substituted, and
// whether it is there.
type Variables func(kind, namespace, name string) (map[string]string, bool)

// unknown is what becomes of a variable that no source has.
type unknown int

const (
	empty       unknown = iota // as Flux does it
	keepUnknown                // for whoever does not know all sources: ${name} stays
)

// Substitute replaces the ${variables} of objects, as Flux does after a build. A
// source that is not there is an error unless it is optional.
func (k *Kustomization) Substitute(objects []Object, from Variables) ([]Object, error) {
	return k.substituted(objects, from, empty)
}

func (k *Kustomization) substituted(objects []Object, from Variables, otherwise unknown) ([]Object, error) {
	values, complete := map[string]string{}, true
	for _, s := range k.VariablesFrom {
		var offered map[string]string
		there := false
		if from != nil {
			offered, there = from(s.Kind, k.Namespace, s.Name)
		}
		complete = complete && there
		if !there && !s.Optional && otherwise == empty {
			return nil, fmt.Errorf("substitute from '%s/%s' error: it is not in namespace %s", s.Kind, s.Name, k.Namespace)
		}
		maps.Copy(values, offered)
	}
	maps.Copy(values, k.Variables)
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
		if !known && !complete && otherwise == keepUnknown {
			v = "${" + name + "}"
		}
		return strings.ReplaceAll(v, "\n", ""), true // Flux is not strict: it makes nothing of what no source has
	}
	var all []Object
	for _, o := range objects {
		changed, err := replace(o.Unstructured, mapping)
		if err != nil {
			return nil, fmt.Errorf("%s: %s %s: %w", o.Place, o.GetKind(), o.GetName(), err)
		}
		all = append(all, Object{changed, o.Place})
		if complete {
			k.noteUnset(o, all[len(all)-1], values)
		}
	}
	return all, nil
}

var variableName = regexp.MustCompile(`^[_a-zA-Z][_a-zA-Z0-9]*$`)

// plainVariable is a variable without a default, or what is escaped.
var plainVariable = regexp.MustCompile(`\$\$|\$\{([_a-zA-Z][_a-zA-Z0-9]*)\}`)

// noteUnset notes which variables of an object no source has; became is what came of it.
func (k *Kustomization) noteUnset(o, became Object, values map[string]string) {
	text, err := yaml.Marshal(o.Object)
	if err != nil || isUntouched(o.Unstructured) {
		return
	}
	said := map[string]bool{"": true}
	for _, found := range plainVariable.FindAllStringSubmatch(string(text), -1) {
		if _, known := values[found[1]]; !known && !said[found[1]] {
			said[found[1]] = true
			k.Unset = append(k.Unset, Unset{found[1], became})
		}
	}
}

// untouched is the label or annotation that keeps an object as it is.
const untouched = "kustomize.toolkit.fluxcd.io/substitute"

// replace works on the object's text, so that a number may come of a variable.
func replace(o *unstructured.Unstructured, mapping func(string) (string, bool)) (*unstructured.Unstructured, error) {
	if isUntouched(o) {
		return o, nil
	}
	text, err := yaml.Marshal(o.Object)
	if err != nil {
		return nil, err
	}
	replaced, err := envsubst.Eval(string(text), mapping)
	if err != nil {
		return nil, err
	}
	if replaced == string(text) {
		return o, nil
	}
	changed := &unstructured.Unstructured{}
	data, err := yaml.YAMLToJSON([]byte(replaced))
	if err == nil {
		err = changed.UnmarshalJSON(data)
	}
	return changed, err
}

func isUntouched(o *unstructured.Unstructured) bool {
	return o.GetLabels()[untouched] == "disabled" || o.GetAnnotations()[untouched] == "disabled"
}
