package kube

import (
	"errors"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"

	"github.com/zclconf/go-cty/cty"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
)

// judgeFields compares fields of an object as text; empty if all are as wanted.
// A status is worth as much as its age: it is wrong while the object's
// controller has not seen the last change.
func judgeFields(object *unstructured.Unstructured, want map[string]string) string {
	for _, path := range slices.Sorted(maps.Keys(want)) {
		for _, f := range find(object.Object, "", strings.Split(path, ".")) {
			switch {
			case f.why != "":
				return f.why
			case f.value != want[path]:
				return fmt.Sprintf("%s is %s, not %s", f.path, quoted(f.value), quoted(want[path]))
			case strings.HasPrefix(path, "status.") && outdated(object):
				return fmt.Sprintf("%s is %s of an older generation", f.path, quoted(f.value))
			}
		}
	}
	return ""
}

// field is one value deep in an object, or why there is none.
type field struct{ path, value, why string }

// find follows the steps of a path from a place within an object. A step is a
// key; in a list it is the type of an entry (a condition's), or its place,
// counted from 0. The step * goes everywhere at once, and somewhere at least.
func find(at any, path string, steps []string) []field {
	if len(steps) == 0 {
		switch at.(type) {
		case nil:
			return []field{{path: path, why: "has no " + path + " yet"}}
		case map[string]any, []any:
			return []field{{path: path, why: path + " is no single value"}}
		}
		return []field{{path: path, value: fmt.Sprint(at)}}
	}
	below := entries(at)
	keys := []string{steps[0]}
	if steps[0] == "*" && len(below) > 0 {
		keys = slices.Sorted(maps.Keys(below))
	}
	var found []field
	for _, key := range keys {
		to := strings.TrimPrefix(path+"."+key, ".")
		if _, ok := below[key]; !ok {
			found = append(found, field{path: to, why: "has no " + strings.Join(append([]string{to}, steps[1:]...), ".") + " yet"})
			continue
		}
		found = append(found, find(below[key], to, steps[1:])...)
	}
	return found
}

// entries names what a map or a list holds; an entry of a list that has a type
// goes by that, any other one by its place.
func entries(within any) map[string]any {
	switch within := within.(type) {
	case map[string]any:
		return within
	case []any:
		named := map[string]any{}
		for i, entry := range within {
			name := strconv.Itoa(i)
			if fields, ok := entry.(map[string]any); ok {
				if kind, ok := fields["type"].(string); ok {
					name = kind
				}
			}
			named[name] = entry
		}
		return named
	}
	return nil
}

// quoted keeps a word as it is and makes anything else visible.
func quoted(value string) string {
	if value == "" || strings.ContainsAny(value, " \t\n\"") {
		return strconv.Quote(brief(value))
	}
	return brief(value)
}

func validFields(x cty.Value) error {
	if x.LengthInt() == 0 {
		return errors.New("names no field")
	}
	for path, value := range x.AsValueMap() {
		if slices.Contains(strings.Split(path, "."), "") {
			return fmt.Errorf("%q is no path such as status.state", path)
		}
		if value.IsNull() {
			return fmt.Errorf("%s: a value is needed, not null", path)
		}
	}
	return nil
}
