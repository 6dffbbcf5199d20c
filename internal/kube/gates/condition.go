package gates

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"

	"github.com/zclconf/go-cty/cty"

	"github.com/ephemeral-castle/castle/internal/gate"
	"github.com/ephemeral-castle/castle/internal/kube/client"
)

// condition checks one entry of status.conditions of any object, or of several, or fields that mean the same
// in a kind without conditions, or only that the object exists. An object without conditions is closed: no
// controller has seen it.
func condition() definition {
	return definition{gate.Type{
		Name: "condition",
		Summary: "an object, or every object that is selected, exists and has a condition or the values " +
			"of fields",
		Attributes: map[string]gate.Attribute{
			"kind": required(named("the objects' kind: ClusterSecretStore")),
			"api_version": text(validVersion,
				"the kind's group and version; needed only where several groups have the kind"),
			"namespace": named("the objects' namespace; with neither it nor name, all namespaces"),
			"name":      named("one object's name; without it, every object that selector selects"),
			"selector":  text(validSelector, "labels: app=web,tier!=test; all objects of the kind if absent"),
			"count": {Type: cty.Number, Valid: gate.ValidCount,
				Help: "how many objects there have to be at least; default 1"},
			"type": text(validWord, "the condition's type; default Ready"),
			"status": text(oneOf("True", "False", "Unknown"),
				"the condition's status: True, False or Unknown; default True"),
			"fields": {Type: cty.Map(cty.String), Valid: validFields,
				Help: `values by path: { "status.state" = "deployed" }, with * for everything at a place ` +
					`and an entry's type or number in a list: "status.disks.*.conditions.Ready.status"; "" ` +
					`is a field that nobody has set; a condition is checked as well only if type or status ` +
					`is given`},
			"exists": {Type: cty.Bool, Help: "true only requires the object, whatever its status"},
		},
		Check: validCondition,
	}, func(v gate.Values) (Check, error) {
		var fields map[string]string
		if err := v.Decode("fields", &fields); err != nil {
			return nil, fmt.Errorf("fields: %w", err)
		}
		condition := ""
		if v.Has("type") || v.Has("status") || len(fields) == 0 && !v.Bool("exists") {
			condition = cmp.Or(v.String("type"), "Ready")
		}
		return func(ctx context.Context, a *client.API) error {
			objects, err := selectObjects(ctx, a, v)
			if err != nil {
				return err
			}
			var closed []*gate.Finding
			for _, object := range objects {
				status := cmp.Or(v.String("status"), "True")
				closed = append(closed, lacks(&object, condition, status, fields))
			}
			return together(closed)
		}, nil
	}}
}

func validCondition(v gate.Values) error {
	given := func(name string) bool { _, ok := v[name]; return ok }
	if given("name") && given("selector") {
		return errors.New("name and selector: only one of them can select the objects")
	}
	if given("name") && v.Int("count") > 1 {
		return errors.New("name and count: a name selects one object")
	}
	for _, other := range []string{"type", "status", "fields"} {
		if v.Bool("exists") && given(other) {
			return fmt.Errorf("exists and %s: exists checks nothing else of the object", other)
		}
	}
	if v.String("kind") == "Secret" && given("fields") {
		return errors.New("fields: a gate must not compare a Secret's data")
	}
	return nil
}

// selectObjects reads the objects; arguments that do not fit their kind are a permanent error.
func selectObjects(ctx context.Context, a *client.API, v gate.Values) ([]client.Object, error) {
	kind, namespace, name := v.String("kind"), v.String("namespace"), v.String("name")
	var (
		r   client.Resource
		err error
	)
	if v.Has("api_version") {
		r, err = a.Resolve(ctx, v.String("api_version"), kind)
	} else {
		r, err = a.ResolveKind(ctx, kind)
	}
	switch {
	case err != nil:
		return nil, err
	case r.Namespaced && name != "" && namespace == "":
		return nil, gate.Permanent(fmt.Errorf("%s %s: the kind is namespaced; set namespace", kind, name))
	case !r.Namespaced && namespace != "":
		return nil, gate.Permanent(fmt.Errorf("%s: the kind is cluster-scoped; leave namespace out", kind))
	}
	s := client.Selection{Resource: r.GroupVersionResource, Namespace: namespace, Name: name,
		Labels: v.String("selector")}
	if name != "" {
		object, err := a.Get(ctx, s, kind)
		if err != nil {
			return nil, err
		}
		return []client.Object{*object}, nil
	}
	objects, err := a.List(ctx, s, kind)
	where := client.In(namespace)
	if s.Labels != "" {
		where += " with " + s.Labels
	}
	switch {
	case err != nil:
		return nil, err
	case len(objects) == 0:
		return nil, problem(gate.NoObjects, "", "no %s%s exists yet", kind, where)
	case len(objects) < v.Int("count"):
		return nil, fmt.Errorf("%d of %d %s%s exist", len(objects), v.Int("count"), kind, where)
	}
	return objects, nil
}

// lacks is the finding of what an object lacks; nil if nothing. The condition is empty if none is checked.
// Its own message comes before its age: a controller may leave status.observedGeneration behind as it fails.
func lacks(object *client.Object, condition, status string, fields map[string]string) *gate.Finding {
	if found := terminating(object); found != nil {
		return found
	}
	if condition != "" {
		is, why := unmet(object, condition, status)
		seen := cmp.Or(is.ObservedGeneration, object.GetGeneration())
		if why == "" && (outdated(object) || seen != object.GetGeneration()) {
			why = condition + " is " + status + " of an older generation"
		}
		if why != "" {
			return problem("", client.Title(object), "%s", why)
		}
	}
	return checkFields(object, fields)
}

// unmet finds a condition and explains why it has not the status; empty if it has.
func unmet(object *client.Object, condition, status string) (is client.Condition, why string) {
	is, found := client.ConditionOf(object, condition)
	switch {
	case !found:
		return is, "has no condition " + condition + " yet"
	case is.Status != status && is.Why() == "":
		return is, fmt.Sprintf("%s is %s", condition, is.Status)
	case is.Status != status:
		return is, fmt.Sprintf("%s is %s: %s", condition, is.Status, is.Why())
	}
	return is, ""
}

// outdated reports whether an object's controller has not seen the object's last change, by its own report.
func outdated(object *client.Object) bool {
	generation, found := client.Observed(object)
	return found && generation != object.GetGeneration()
}

// checkFields compares fields of an object as text; nil if all are as wanted. A status is outdated while the
// object's controller has not seen the last change.
func checkFields(object *client.Object, want map[string]string) *gate.Finding {
	for _, path := range slices.Sorted(maps.Keys(want)) {
		kind, isStatus := SpecDiffers, strings.HasPrefix(path, "status.")
		if isStatus {
			kind = ""
		}
		why := differs(object.Object, "", strings.Split(path, "."), want[path])
		if why == "" && isStatus && outdated(object) {
			why = fmt.Sprintf("%s is %s of an older generation", path, quoted(want[path]))
		}
		if why != "" {
			return problem(kind, client.Title(object), "%s", why)
		}
	}
	return nil
}

// differs follows the steps of a path from a place within an object, and explains the first value that is not
// as wanted; empty if all are. A step is a key; in a list it is the type of an entry (a condition's), or its
// index. The step * matches every entry, and requires at least one. An empty value wants the field unset.
func differs(at any, path string, steps []string, want string) string {
	if text, err := json.Marshal(at); len(steps) == 0 && want == "" && err == nil {
		if slices.Contains([]string{"null", `""`, "[]", "{}"}, string(text)) {
			return ""
		}
		return fmt.Sprintf("%s is %s, and should not be set", path, client.Brief(string(text)))
	}
	if len(steps) == 0 {
		switch at.(type) {
		case nil:
			return "has no " + path + " yet"
		case map[string]any, []any:
			return path + " is not a single value"
		}
		if is := fmt.Sprint(at); is != want {
			return fmt.Sprintf("%s is %s, not %s", path, quoted(is), quoted(want))
		}
		return ""
	}
	below, keys := entries(at), steps[:1]
	if steps[0] == "*" && len(below) > 0 {
		keys = slices.Sorted(maps.Keys(below))
	}
	for _, key := range keys {
		to := strings.TrimPrefix(path+"."+key, ".")
		inner, ok := below[key]
		if !ok && want == "" && path != "" && below != nil {
			continue
		}
		if !ok {
			return "has no " + strings.Join(append([]string{to}, steps[1:]...), ".") + " yet"
		}
		if why := differs(inner, to, steps[1:], want); why != "" {
			return why
		}
	}
	return ""
}

// entries names the entries of a map or a list; one of a list goes by its type, or else by its index.
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
		return strconv.Quote(client.Brief(value))
	}
	return client.Brief(value)
}

func validFields(x cty.Value) error {
	if x.LengthInt() == 0 {
		return errors.New("is empty; name at least one field")
	}
	for path, value := range x.AsValueMap() {
		if slices.Contains(strings.Split(path, "."), "") {
			return fmt.Errorf("%q is not a path such as status.state", path)
		}
		if value.IsNull() {
			return fmt.Errorf("%s: a value is required, not null", path)
		}
	}
	return nil
}
