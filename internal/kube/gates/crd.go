package gates

import (
	"context"
	"encoding/base64"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/zclconf/go-cty/cty"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"github.com/ephemeral-castle/castle/internal/gate"
	"github.com/ephemeral-castle/castle/internal/kube/client"
)

// crd checks that objects of a kind can be created: the definition is accepted and established, and the API
// lists the kind. Where a webhook converts versions, its CA must have been injected, or every read of an
// older object fails.
func crd() definition {
	return definition{gate.Type{
		Name:    "crd",
		Summary: "custom resource definitions are established and their kinds served",
		Attributes: map[string]gate.Attribute{
			"names": {Type: cty.List(cty.String), Required: true, Valid: validDefinitions,
				Help: `the definitions' names: ["ipaddresspools.metallb.io"]`},
			"version": {Type: cty.String, Valid: validWord,
				Help: "the version that each has to serve: v1; default any"},
		},
	}, func(v gate.Values) (Checker, error) {
		d := defined{version: v.String("version")}
		if err := v.Decode("names", &d.names); err != nil {
			return nil, fmt.Errorf("names: %w", err)
		}
		return d, nil
	}}
}

// defined is a crd gate's arguments.
type defined struct {
	names   []string
	version string
}

func (d defined) Check(ctx context.Context, a *client.API) error {
	var closed []error
	for _, name := range d.names {
		err := d.checkOne(ctx, a, name)
		if client.IsNotServed(err) {
			err = fmt.Errorf("%s: %w", client.Titled("customresourcedefinition", "", name), err)
		} else if err != nil && gate.KindOf(err) == "" {
			return err
		}
		if err != nil {
			closed = append(closed, err)
		}
	}
	return together(closed)
}

// Selections are the definitions. No object announces the moment, shortly after one is established, from
// which on the API serves its kind: that is polled.
func (d defined) Selections(ctx context.Context, a *client.API) ([]client.Selection, error) {
	var all []client.Selection
	for _, name := range d.names {
		all = append(all, client.Selection{Resource: client.Definitions, Name: name})
	}
	for _, name := range d.names {
		if err := d.checkOne(ctx, a, name); client.IsNotServed(err) {
			return all, err
		}
	}
	return all, nil
}

func validDefinitions(x cty.Value) error {
	if err := validNames(x); err != nil {
		return err
	}
	for _, name := range x.AsValueSlice() {
		if plural, group, ok := strings.Cut(name.AsString(), "."); !ok || plural == "" || group == "" {
			return fmt.Errorf("%q is not a definition's name such as ipaddresspools.metallb.io",
				name.AsString())
		}
	}
	return nil
}

// checkOne checks a definition, then that the API serves its kind.
func (d defined) checkOne(ctx context.Context, a *client.API, name string) error {
	object, err := a.Get(ctx, client.Selection{Resource: client.Definitions, Name: name},
		"CustomResourceDefinition")
	if err != nil {
		return err
	}
	if err := CheckDefinition(object, d.version); err != nil {
		return err
	}
	version := d.version
	if version == "" {
		version = servedVersions(object)[0]
	}
	_, err = a.Resolve(ctx, client.Text(object, "spec", "group")+"/"+version,
		client.Text(object, "spec", "names", "kind"))
	return err
}

// CheckDefinition returns why a definition's kind is not served, in a version if one is given. It is nil if
// nothing in the definition prevents it.
func CheckDefinition(object *client.Object, version string) error {
	if err := terminating(object); err != nil {
		return err
	}
	what := client.Title(object)
	for _, c := range []struct {
		condition string
		kind      gate.Kind
	}{{"NamesAccepted", NotAccepted}, {"Established", NotEstablished}} {
		is, found := client.ConditionOf(object, c.condition)
		switch {
		case !found:
			return problem(NotEstablished, what, "has no condition %s yet", c.condition)
		case is.Status != "True" && is.Why() == "":
			return problem(c.kind, what, "%s is %s", c.condition, is.Status)
		case is.Status != "True":
			return problem(c.kind, what, "%s is %s: %s", c.condition, is.Status, is.Why())
		}
	}
	served := servedVersions(object)
	switch {
	case len(served) == 0:
		return problem(WrongVersion, what, "serves no version")
	case version != "" && !slices.Contains(served, version):
		return problem(WrongVersion, what, "serves %s, not %s", strings.Join(served, ", "), version)
	}
	return checkConversion(object)
}

func servedVersions(definition *client.Object) []string {
	versions, _, err := unstructured.NestedSlice(definition.Object, "spec", "versions")
	if err != nil {
		return nil
	}
	var served []string
	for _, entry := range versions {
		if fields, ok := entry.(map[string]any); ok && fields["served"] == true {
			name, _ := fields["name"].(string)
			served = append(served, name)
		}
	}
	return served
}

// checkConversion checks a definition's conversion webhook, if it has one.
func checkConversion(definition *client.Object) error {
	config := func(field string) string {
		return client.Text(definition, "spec", "conversion", "webhook", "clientConfig", field)
	}
	if client.Text(definition, "spec", "conversion", "strategy") != "Webhook" || config("url") != "" {
		return nil
	}
	what := client.Title(definition) + ": its conversion webhook"
	bundle, err := base64.StdEncoding.DecodeString(config("caBundle"))
	if err != nil {
		return &gate.Finding{Kind: NoCABundle, Text: what + " has a caBundle that is not base64"}
	}
	return checkBundle(what, bundle)
}

// checkBundle returns the finding why the API server cannot trust a webhook by its caBundle. Whether it is
// the right one, only a call can tell.
func checkBundle(what string, bundle []byte) error {
	if len(bundle) == 0 {
		return &gate.Finding{Kind: NoCABundle,
			Text: what + " has no caBundle: certificate controller has not injected the CA yet"}
	}
	certificates := client.Certificates(bundle)
	var last time.Time // one of several may be old while they are renewed
	for _, c := range certificates {
		if c.NotAfter.After(last) {
			last = c.NotAfter
		}
	}
	switch {
	case len(certificates) == 0:
		return &gate.Finding{Kind: NoCABundle, Text: what + " has a caBundle that holds no certificate"}
	case last.Before(time.Now()):
		return &gate.Finding{Kind: CAExpired,
			Text: fmt.Sprintf("%s has a caBundle whose CA has expired: on %s UTC",
				what, last.UTC().Format(time.DateTime))}
	}
	return nil
}
