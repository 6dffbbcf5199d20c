package kube

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"

	"github.com/zclconf/go-cty/cty"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"github.com/ephemeral-castle/castle/internal/gate"
)

// condition reads one entry of status.conditions of any object, or of several,
// or fields that say the same in a kind without conditions, or only that the
// object is there. An object that has no conditions yet is closed: nobody has
// looked at it.
func condition() gate.Type {
	return gate.Type{
		Name:       "condition",
		Summary:    "an object, or every object that is selected, exists and has a condition or the values of fields",
		Kubernetes: true,
		Attributes: map[string]gate.Attribute{
			"kind":        {Type: cty.String, Required: true, Valid: validName, Help: "the objects' kind: ClusterSecretStore"},
			"api_version": {Type: cty.String, Valid: validVersion, Help: "the kind's group and version; needed only where several groups have the kind"},
			"namespace":   {Type: cty.String, Valid: validName, Help: "the objects' namespace; with neither it nor name, all namespaces"},
			"name":        {Type: cty.String, Valid: validName, Help: "one object's name; without it, every object that selector picks"},
			"selector":    {Type: cty.String, Valid: validSelector, Help: "labels: app=web,tier!=test; all objects of the kind if absent"},
			"count":       {Type: cty.Number, Valid: gate.ValidCount, Help: "how many objects there have to be at least; default 1"},
			"type":        {Type: cty.String, Valid: validWord, Help: "the condition's type; default Ready"},
			"status":      {Type: cty.String, Valid: validStatus, Help: "the condition's status: True, False or Unknown; default True"},
			"fields":      {Type: cty.Map(cty.String), Valid: validFields, Help: `values by path: { "status.state" = "deployed" }, with * for everything at a place and an entry's type or number in a list: "status.disks.*.conditions.Ready.status"; a condition is asked for as well only if type or status is given`},
			"exists":      {Type: cty.Bool, Help: "true asks for the object alone, whatever it says about itself"},
		},
		Check: checkCondition,
		New: func(name string, target gate.Target, v gate.Values) (gate.Gate, error) {
			w := wanted{
				apiVersion: v.String("api_version"), kind: v.String("kind"),
				namespace: v.String("namespace"), name: v.String("name"), selector: v.String("selector"),
				count: max(v.Int("count"), 1),
			}
			if err := v.Decode("fields", &w.fields); err != nil {
				return gate.Gate{}, fmt.Errorf("fields: %w", err)
			}
			if asks := v.Has("type") || v.Has("status"); asks || len(w.fields) == 0 && !v.Bool("exists") {
				w.condition, w.status = cmp.Or(v.String("type"), "Ready"), cmp.Or(v.String("status"), "True")
			}
			c := newCluster(target, "")
			return gate.Gate{Name: name, Check: c.ask(w.check), Changed: c.changes(one(w.selection))}, nil
		},
	}
}

func checkCondition(v gate.Values) error {
	given := func(name string) bool { _, ok := v[name]; return ok }
	if given("name") && given("selector") {
		return errors.New("name and selector: only one of them can choose the objects")
	}
	if given("name") && v.Int("count") > 1 {
		return errors.New("name and count: a name chooses one object")
	}
	for _, other := range []string{"type", "status", "fields"} {
		if v.Bool("exists") && given(other) {
			return fmt.Errorf("exists and %s: exists asks for nothing that the object says about itself", other)
		}
	}
	if v.String("kind") == "Secret" && given("fields") {
		return errors.New("fields: what a Secret holds is not for a gate to compare")
	}
	return nil
}

// wanted is a condition gate's arguments.
type wanted struct {
	apiVersion, kind, namespace, name, selector string
	count                                       int
	condition, status                           string // empty if no condition is asked for
	fields                                      map[string]string
}

func (w wanted) check(ctx context.Context, a *api) error {
	objects, err := w.find(ctx, a)
	if err != nil {
		return err
	}
	slices.SortFunc(objects, func(x, y unstructured.Unstructured) int { return cmp.Compare(title(&x), title(&y)) })
	var closed []string
	for _, object := range objects {
		if why := w.judge(&object); why != "" {
			closed = append(closed, title(&object)+": "+why)
		}
	}
	if len(closed) > 0 {
		return errors.New(several(closed))
	}
	return nil
}

// selection resolves the kind; what does not fit it is permanent.
func (w wanted) selection(ctx context.Context, a *api) (selection, error) {
	var (
		r   resource
		err error
	)
	if w.apiVersion != "" {
		r, err = a.resolve(ctx, w.apiVersion, w.kind)
	} else {
		r, err = a.resolveKind(ctx, w.kind)
	}
	switch {
	case err != nil:
		return selection{}, err
	case r.namespaced && w.name != "" && w.namespace == "":
		return selection{}, gate.Permanent(fmt.Errorf("%s %s: the kind lives in namespaces; set namespace", w.kind, w.name))
	case !r.namespaced && w.namespace != "":
		return selection{}, gate.Permanent(fmt.Errorf("%s: the kind belongs to no namespace; leave namespace out", w.kind))
	}
	return selection{in: r.GroupVersionResource, namespace: w.namespace, labels: w.selector, name: w.name}, nil
}

func (w wanted) find(ctx context.Context, a *api) ([]unstructured.Unstructured, error) {
	s, err := w.selection(ctx, a)
	if err != nil {
		return nil, err
	}
	if w.name != "" {
		object, err := a.get(ctx, s.in, s.namespace, s.name)
		if apierrors.IsNotFound(err) {
			return nil, fmt.Errorf("%s does not exist yet", titled(w.kind, w.namespace, w.name))
		}
		if err != nil {
			return nil, err
		}
		return []unstructured.Unstructured{*object}, nil
	}
	objects, err := a.list(ctx, s.in, s.namespace, s.labels)
	switch {
	case apierrors.IsNotFound(err):
		return nil, notServed{w.kind, s.in.GroupVersion().String()}
	case err != nil:
		return nil, err
	case len(objects) == 0:
		return nil, fmt.Errorf("no %s%s exists yet", w.kind, w.where())
	case len(objects) < w.count:
		return nil, fmt.Errorf("%d of %d %s%s exist", len(objects), w.count, w.kind, w.where())
	}
	return objects, nil
}

func (w wanted) where() string {
	where := ""
	if w.namespace != "" {
		where += " in namespace " + w.namespace
	}
	if w.selector != "" {
		where += " with " + w.selector
	}
	return where
}

// judge says what an object lacks; empty if nothing.
func (w wanted) judge(object *unstructured.Unstructured) string {
	if object.GetDeletionTimestamp() != nil {
		return "is being deleted"
	}
	if w.condition != "" {
		if why := w.judgeCondition(object); why != "" {
			return why
		}
	}
	return judgeFields(object, w.fields)
}

// judgeCondition lets the condition's own words come before its age: a
// controller may leave status.observedGeneration behind exactly while it fails.
func (w wanted) judgeCondition(object *unstructured.Unstructured) string {
	s, found := stateOf(object, w.condition)
	switch {
	case !found:
		return "has no condition " + w.condition + " yet"
	case s.Status != w.status && s.why() == "":
		return fmt.Sprintf("%s is %s", w.condition, s.Status)
	case s.Status != w.status:
		return fmt.Sprintf("%s is %s: %s", w.condition, s.Status, s.why())
	case outdated(object), s.ObservedGeneration != 0 && s.ObservedGeneration != object.GetGeneration():
		return w.condition + " is " + s.Status + " of an older generation"
	}
	return ""
}

// outdated reports whether an object's controller says that it has not seen the
// object's last change.
func outdated(object *unstructured.Unstructured) bool {
	generation, said := observed(object)
	return said && generation != object.GetGeneration()
}
