// Package gates holds the gate types that Kubernetes answers. Each type has a definition and a Checker: one
// attempt that reads the objects it needs, decides by what the objects themselves report, and returns a
// finding for a person.
//
// A passing moment proves little: the absence of a status is never success, which makes these checks
// stricter than kstatus. Package diagnose starts from the findings of these checks and never repeats a
// check.
package gates

import (
	"context"
	"errors"
	"fmt"
	"strings"

	"github.com/zclconf/go-cty/cty"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/util/validation"

	"github.com/ephemeral-castle/castle/internal/gate"
	"github.com/ephemeral-castle/castle/internal/kube/client"
)

// Kinds of findings, beside gate.NotFound, for which package diagnose knows a cause.
const (
	Terminating    gate.Kind = "terminating"
	WrongType      gate.Kind = "wrong-type"
	WrongVersion   gate.Kind = "wrong-version"
	NotAccepted    gate.Kind = "not-accepted"
	NotEstablished gate.Kind = "not-established"
	NodesMissing   gate.Kind = "nodes-missing"
	DriverMissing  gate.Kind = "driver-missing"
	NoCABundle     gate.Kind = "no-ca-bundle"
	CAExpired      gate.Kind = "ca-expired"
	NoObjects      gate.Kind = "no-objects"
)

// Checker is a gate's check, bound to its arguments.
type Checker interface {
	// Check is one attempt.
	Check(ctx context.Context, a *client.API) error
	// Selections are the objects whose changes may open the gate.
	Selections(ctx context.Context, a *client.API) ([]client.Selection, error)
}

// definition is a gate type and how to make its Checker.
type definition struct {
	typ  gate.Type
	bind func(gate.Values) (Checker, error)
}

func definitions() []definition {
	return []definition{
		kubernetesAPI(), nodes(), endpointSlice(), webhook(), workload(),
		crd(), condition(), storageClass(), loadBalancer(), flux(),
	}
}

// Types lists the gates that Kubernetes answers.
func Types() []gate.Type {
	var all []gate.Type
	for _, d := range definitions() {
		d.typ.Kubernetes = true
		if d.typ.New == nil {
			d.typ.New = d.gate
		}
		all = append(all, d.typ)
	}
	return all
}

// NewChecker makes the Checker of a gate type; nil for a type that has none.
func NewChecker(name string, v gate.Values) (Checker, error) {
	for _, d := range definitions() {
		if d.typ.Name == name && d.bind != nil {
			return d.bind(v)
		}
	}
	return nil, nil
}

// gate makes a gate of a Checker.
func (d definition) gate(name string, target gate.Target, v gate.Values) (gate.Gate, error) {
	checker, err := d.bind(v)
	if err != nil {
		return gate.Gate{}, err
	}
	c := client.New(target, "")
	g := gate.Gate{Name: name, Check: c.Check(checker.Check), Changed: c.Changes(checker.Selections)}
	if f, ok := checker.(*Flux); ok {
		g.TriggerReconcile = f.trigger(c)
	}
	return g, nil
}

// problem is a finding about an object.
func problem(kind gate.Kind, object, format string, args ...any) error {
	return &gate.Finding{Kind: kind, Object: object, Text: fmt.Sprintf(format, args...)}
}

// terminating is the finding that an object is being deleted; nil if it is not.
func terminating(object *client.Object) error {
	if object.GetDeletionTimestamp() == nil {
		return nil
	}
	return problem(Terminating, client.Title(object), "is being deleted")
}

// together joins the findings of several objects; the first one's kind stands for all.
func together(all []error) error {
	if len(all) == 0 {
		return nil
	}
	var texts []string
	for _, err := range all {
		texts = append(texts, err.Error())
	}
	return &gate.Finding{Kind: gate.KindOf(all[0]), Text: client.Several(texts), Err: all[0]}
}

// validName refuses names that would change the path of a request.
func validName(x cty.Value) error {
	name := x.AsString()
	if name == "" {
		return errors.New("is empty")
	}
	if strings.ContainsFunc(name, func(r rune) bool { return r <= ' ' || strings.ContainsRune("/%,=", r) }) {
		return fmt.Errorf("%q is not the name of an object", name)
	}
	return nil
}

// validNames requires at least one name.
func validNames(x cty.Value) error {
	if x.LengthInt() == 0 {
		return errors.New("is empty; name at least one")
	}
	for _, name := range x.AsValueSlice() {
		if name.IsNull() {
			return errors.New("a name is required, not null")
		}
		if err := validName(name); err != nil {
			return err
		}
	}
	return nil
}

// validWord refuses values that cannot be an identifier.
func validWord(x cty.Value) error {
	if x.AsString() == "" || strings.ContainsAny(x.AsString(), " \t\n") {
		return fmt.Errorf("%q is not a single word", x.AsString())
	}
	return nil
}

func validStatus(x cty.Value) error {
	switch x.AsString() {
	case "True", "False", "Unknown":
		return nil
	}
	return fmt.Errorf("%q is not one of True, False and Unknown", x.AsString())
}

// validVersion requires "v1" or "group/v1".
func validVersion(x cty.Value) error {
	gv, err := schema.ParseGroupVersion(x.AsString())
	if err != nil || validation.IsDNS1035Label(gv.Version) != nil ||
		gv.Group != "" && validation.IsDNS1123Subdomain(gv.Group) != nil {
		return fmt.Errorf(`%q is not a group and version such as "apps/v1"`, x.AsString())
	}
	return nil
}

func validSelector(x cty.Value) error {
	_, err := labels.Parse(x.AsString())
	return err
}
