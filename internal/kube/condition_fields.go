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
		got, why := field(object.Object, path)
		switch {
		case why != "":
			return why
		case got != want[path]:
			return fmt.Sprintf("%s is %s, not %s", path, quoted(got), quoted(want[path]))
		case strings.HasPrefix(path, "status.") && outdated(object):
			return fmt.Sprintf("%s is %s of an older generation", path, quoted(got))
		}
	}
	return ""
}

// field reads a value deep in an object, or says why there is none. A number in
// the path counts a list's entries from 0.
func field(object map[string]any, path string) (value, why string) {
	var at any = object
	for _, step := range strings.Split(path, ".") {
		switch within := at.(type) {
		case map[string]any:
			at = within[step]
		case []any:
			i, err := strconv.Atoi(step)
			if err != nil || i < 0 || i >= len(within) {
				return "", "has no " + path + " yet"
			}
			at = within[i]
		default:
			return "", "has no " + path + " yet"
		}
	}
	switch at.(type) {
	case nil:
		return "", "has no " + path + " yet"
	case map[string]any, []any:
		return "", path + " is no single value"
	}
	return fmt.Sprint(at), ""
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
