// Package gates holds the gate types that Kubernetes answers. Each type has a definition and a Checker: one
// attempt that reads the objects it needs, decides by what these report, and returns a finding. A passing
// moment proves little: the absence of a status is never success, which makes these checks stricter than
// kstatus. Package diagnose starts from the findings of these checks and never repeats a check.
package gates

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/siderolabs/gen/xslices"
	"github.com/zclconf/go-cty/cty"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/util/validation"

	"github.com/ephemeral-castle/castle/internal/gate"
	"github.com/ephemeral-castle/castle/internal/kube/client"
)

// Kinds of findings, beside those of package gate, on which package diagnose decides.
const (
	Terminating   gate.Kind = "terminating"
	WrongType     gate.Kind = "wrong-type"
	WrongVersion  gate.Kind = "wrong-version"
	NotAccepted   gate.Kind = "not-accepted"
	NodesMissing  gate.Kind = "nodes-missing"
	NodeUnknown   gate.Kind = "node-unknown" // a node that no name names
	NoNetwork     gate.Kind = "no-network"   // a node without a network for Pods
	NoCABundle    gate.Kind = "no-ca-bundle"
	CAExpired     gate.Kind = "ca-expired"
	WebhookCall   gate.Kind = "webhook-call" // the API server reports a failed call; Err is its answer
	WebhookHangs  gate.Kind = "webhook-hangs"
	NotDenied     gate.Kind = "not-denied" // no webhook denies an object that it has to deny
	Suspended     gate.Kind = "suspended"
	PodRefused    gate.Kind = "pod-refused"
	QuotaBelowUse gate.Kind = "quota-below-use"
	TrafficDenied gate.Kind = "traffic-denied"
	AddressTaken  gate.Kind = "address-taken" // a pool has an address that belongs to a machine
	Unannounced   gate.Kind = "unannounced"   // no node answers ARP for a Service's address
	NoSession     gate.Kind = "no-session"    // a node has no BGP session with a router
	NoAnswer      gate.Kind = "no-answer"     // no port of a Service keeps connections at its address
	SpecDiffers   gate.Kind = "spec-differs"
)

// Check is a gate's check, bound to its arguments: one attempt.
type Check func(ctx context.Context, a *client.API) error

// definition is a gate type and how to make its Check; bind is nil if the type has a New of its own.
type definition struct {
	typ  gate.Type
	bind func(gate.Values) (Check, error)
}

func definitions() []definition {
	return []definition{
		kubernetesAPI(), kubernetesVersion(), nodes(), endpointSlice(), webhook(), workload(),
		crd(), condition(), storageClass(), loadBalancer(), flux(), networkPolicy(), addressPool(),
		announcement(), bgpSessions(),
	}
}

// Types lists the gates that Kubernetes answers.
func Types() []gate.Type {
	var all []gate.Type
	for _, d := range definitions() {
		d.typ.Kubernetes = true
		if d.typ.New == nil {
			d.typ.New = func(name string, target gate.Target, v gate.Values) (gate.Gate, error) {
				check, err := d.bind(v)
				if err != nil {
					return gate.Gate{}, err
				}
				return client.New(target, "").Gate(name, check), nil
			}
		}
		all = append(all, d.typ)
	}
	return all
}

// CheckOf makes the Check of a gate type; nil for a type that has none.
func CheckOf(name string, v gate.Values) (Check, error) {
	for _, d := range definitions() {
		if d.typ.Name == name && d.bind != nil {
			return d.bind(v)
		}
	}
	return nil, nil
}

// problem is a finding about an object.
func problem(kind gate.Kind, object, format string, args ...any) *gate.Finding {
	return &gate.Finding{Kind: kind, Object: object, Text: fmt.Sprintf(format, args...)}
}

// terminating is the finding that an object is being deleted; nil if it is not.
func terminating(object *client.Object) *gate.Finding {
	if object.GetDeletionTimestamp() == nil {
		return nil
	}
	return problem(Terminating, client.Title(object), "is being deleted")
}

// together joins the findings of several objects, each once, those that wait for another one last; nil
// is no finding. The first one's kind stands for all.
func together(all []*gate.Finding) error {
	all = slices.DeleteFunc(all, func(f *gate.Finding) bool { return f == nil })
	if len(all) == 0 {
		return nil
	}
	waits := func(f *gate.Finding) int {
		if f.Kind == gate.Waits {
			return 1
		}
		return 0
	}
	slices.SortStableFunc(all, func(x, y *gate.Finding) int {
		return cmp.Or(waits(x)-waits(y), cmp.Compare(x.Object, y.Object))
	})
	texts := xslices.Map(all, func(f *gate.Finding) string { return f.Error() })
	return &gate.Finding{Kind: all[0].Kind, Text: client.Several(slices.Compact(texts)), Err: all[0]}
}

// text is an attribute that is a string.
func text(valid func(cty.Value) error, help string) gate.Attribute {
	return gate.Attribute{Type: cty.String, Valid: valid, Help: help}
}

// named is an attribute for the name of an object.
func named(help string) gate.Attribute { return text(validName, help) }

func required(a gate.Attribute) gate.Attribute {
	a.Required = true
	return a
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

// validEach checks the elements of a list, which has at least so many.
func validEach(least int, valid func(cty.Value) error) func(cty.Value) error {
	return func(x cty.Value) error {
		if x.LengthInt() < least {
			return errors.New("is empty; name at least one")
		}
		for _, element := range x.AsValueSlice() {
			if element.IsNull() {
				return errors.New("a value is required, not null")
			}
			if err := valid(element); err != nil {
				return err
			}
		}
		return nil
	}
}

// oneOf accepts these words.
func oneOf(words ...string) func(cty.Value) error {
	return func(x cty.Value) error {
		if slices.Contains(words, x.AsString()) {
			return nil
		}
		last := len(words) - 1
		return fmt.Errorf("%q is not one of %s and %s", x.AsString(), strings.Join(words[:last], ", "),
			words[last])
	}
}

// validWord refuses values that cannot be an identifier.
func validWord(x cty.Value) error {
	if x.AsString() == "" || strings.ContainsAny(x.AsString(), " \t\n") {
		return fmt.Errorf("%q is not a single word", x.AsString())
	}
	return nil
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
