package gates

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"

	"github.com/zclconf/go-cty/cty"
	apierrors "k8s.io/apimachinery/pkg/api/errors"

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
			"kind": {Type: cty.String, Required: true, Valid: validName,
				Help: "the objects' kind: ClusterSecretStore"},
			"api_version": {Type: cty.String, Valid: validVersion,
				Help: "the kind's group and version; needed only where several groups have the kind"},
			"namespace": {Type: cty.String, Valid: validName,
				Help: "the objects' namespace; with neither it nor name, all namespaces"},
			"name": {Type: cty.String, Valid: validName,
				Help: "one object's name; without it, every object that selector selects"},
			"selector": {Type: cty.String, Valid: validSelector,
				Help: "labels: app=web,tier!=test; all objects of the kind if absent"},
			"count": {Type: cty.Number, Valid: gate.ValidCount,
				Help: "how many objects there have to be at least; default 1"},
			"type": {Type: cty.String, Valid: validWord, Help: "the condition's type; default Ready"},
			"status": {Type: cty.String, Valid: validStatus,
				Help: "the condition's status: True, False or Unknown; default True"},
			"fields": {Type: cty.Map(cty.String), Valid: validFields,
				Help: `values by path: { "status.state" = "deployed" }, ` +
					`with * for everything at a place and an entry's ` +
					`type or number in a list: "status.disks.*.conditions.Ready.status"; a condition is ` +
					`checked as well ` +
					`only if type or status is given`},
			"exists": {Type: cty.Bool, Help: "true only requires the object, whatever its status"},
		},
		Check: validCondition,
	}, func(v gate.Values) (Checker, error) { return NewCondition(v) }}
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

// Condition is a condition gate's arguments.
type Condition struct {
	APIVersion, Kind, Namespace, Name, Selector string

	count             int
	condition, status string // empty if no condition is checked
	fields            map[string]string
}

// NewCondition reads the arguments.
func NewCondition(v gate.Values) (Condition, error) {
	c := Condition{
		APIVersion: v.String("api_version"), Kind: v.String("kind"),
		Namespace: v.String("namespace"), Name: v.String("name"), Selector: v.String("selector"),
		count: max(v.Int("count"), 1),
	}
	if err := v.Decode("fields", &c.fields); err != nil {
		return c, fmt.Errorf("fields: %w", err)
	}
	if v.Has("type") || v.Has("status") || len(c.fields) == 0 && !v.Bool("exists") {
		c.condition, c.status = cmp.Or(v.String("type"), "Ready"), cmp.Or(v.String("status"), "True")
	}
	return c, nil
}

// Check names every object that lacks something.
func (c Condition) Check(ctx context.Context, a *client.API) error {
	objects, err := c.find(ctx, a)
	if err != nil {
		return err
	}
	slices.SortFunc(objects, func(x, y client.Object) int {
		return cmp.Compare(client.Title(&x), client.Title(&y))
	})
	var closed []string
	for _, object := range objects {
		if why := c.lacks(&object); why != "" {
			closed = append(closed, client.Title(&object)+": "+why)
		}
	}
	if len(closed) > 0 {
		return errors.New(client.Several(closed))
	}
	return nil
}

// Selections are the objects, once their kind is served.
func (c Condition) Selections(ctx context.Context, a *client.API) ([]client.Selection, error) {
	s, err := c.Resolve(ctx, a)
	if err != nil {
		return nil, err
	}
	return []client.Selection{s}, nil
}

// Resolve finds the kind; arguments that do not fit it are a permanent error.
func (c Condition) Resolve(ctx context.Context, a *client.API) (client.Selection, error) {
	var (
		r   client.Resource
		err error
	)
	if c.APIVersion != "" {
		r, err = a.Resolve(ctx, c.APIVersion, c.Kind)
	} else {
		r, err = a.ResolveKind(ctx, c.Kind)
	}
	switch {
	case err != nil:
		return client.Selection{}, err
	case r.Namespaced && c.Name != "" && c.Namespace == "":
		return client.Selection{}, gate.Permanent(fmt.Errorf("%s %s: the kind is namespaced; set namespace",
			c.Kind, c.Name))
	case !r.Namespaced && c.Namespace != "":
		return client.Selection{}, gate.Permanent(fmt.Errorf("%s: the kind is cluster-scoped; leave "+
			"namespace out", c.Kind))
	}
	return client.Selection{
		Resource: r.GroupVersionResource, Namespace: c.Namespace, Labels: c.Selector, Name: c.Name,
	}, nil
}

func (c Condition) find(ctx context.Context, a *client.API) ([]client.Object, error) {
	s, err := c.Resolve(ctx, a)
	if err != nil {
		return nil, err
	}
	if c.Name != "" {
		object, err := a.Get(ctx, s, c.Kind)
		if err != nil {
			return nil, err
		}
		return []client.Object{*object}, nil
	}
	objects, err := a.List(ctx, s, c.Kind)
	switch {
	case apierrors.IsNotFound(err):
		return nil, client.NotServed{Kind: c.Kind, Where: s.Resource.GroupVersion().String()}
	case err != nil:
		return nil, err
	case len(objects) == 0:
		return nil, problem(NoObjects, "", "no %s%s exists yet", c.Kind, c.Where())
	case len(objects) < c.count:
		return nil, fmt.Errorf("%d of %d %s%s exist", len(objects), c.count, c.Kind, c.Where())
	}
	return objects, nil
}

// Where describes the selection in words.
func (c Condition) Where() string {
	where := in(c.Namespace)
	if c.Selector != "" {
		where += " with " + c.Selector
	}
	return where
}

func in(namespace string) string {
	if namespace == "" {
		return ""
	}
	return " in namespace " + namespace
}

// lacks names the condition that an object lacks; empty if none.
func (c Condition) lacks(object *client.Object) string {
	if object.GetDeletionTimestamp() != nil {
		return "is being deleted"
	}
	if c.condition != "" {
		if why := c.unmet(object); why != "" {
			return why
		}
	}
	return checkFields(object, c.fields)
}

// unmet reports the condition's own message before its age: a controller may leave status.observedGeneration
// behind exactly while it fails.
func (c Condition) unmet(object *client.Object) string {
	is, found := client.ConditionOf(object, c.condition)
	switch {
	case !found:
		return "has no condition " + c.condition + " yet"
	case is.Status != c.status && is.Why() == "":
		return fmt.Sprintf("%s is %s", c.condition, is.Status)
	case is.Status != c.status:
		return fmt.Sprintf("%s is %s: %s", c.condition, is.Status, is.Why())
	case outdated(object), is.ObservedGeneration != 0 && is.ObservedGeneration != object.GetGeneration():
		return c.condition + " is " + is.Status + " of an older generation"
	}
	return ""
}

// outdated reports whether an object's controller has not seen the object's last change, by its own report.
func outdated(object *client.Object) bool {
	generation, found := client.Observed(object)
	return found && generation != object.GetGeneration()
}

// checkFields compares fields of an object as text; empty if all are as wanted. A status is outdated while
// the object's controller has not seen the last change.
func checkFields(object *client.Object, want map[string]string) string {
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

// find follows the steps of a path from a place within an object. A step is a key; in a list it is the type
// of an entry (a condition's), or its index. The step * matches every entry, and requires at least one.
func find(at any, path string, steps []string) []field {
	if len(steps) == 0 {
		switch at.(type) {
		case nil:
			return []field{{path: path, why: "has no " + path + " yet"}}
		case map[string]any, []any:
			return []field{{path: path, why: path + " is not a single value"}}
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
			missing := strings.Join(append([]string{to}, steps[1:]...), ".")
			found = append(found, field{path: to, why: "has no " + missing + " yet"})
			continue
		}
		found = append(found, find(below[key], to, steps[1:])...)
	}
	return found
}

// entries names the entries of a map or a list; an entry of a list that has a type goes by that, any other
// one by its index.
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
