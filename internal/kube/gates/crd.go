package gates

import (
	"cmp"
	"context"
	"encoding/base64"
	"errors"
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
// lists the kind. Where a webhook converts versions, its CA must have been injected.
func crd() definition {
	return definition{gate.Type{
		Name:    "crd",
		Summary: "custom resource definitions are established and their kinds served",
		Attributes: map[string]gate.Attribute{
			"names": {Type: cty.List(cty.String), Required: true, Valid: validEach(1, validDefinition),
				Help: `the definitions' names: ["ipaddresspools.metallb.io"]`},
			"version": text(validWord, "the version that each has to serve: v1; default any"),
		},
	}, func(v gate.Values) (Check, error) {
		var names []string
		if err := v.Decode("names", &names); err != nil {
			return nil, fmt.Errorf("names: %w", err)
		}
		return func(ctx context.Context, a *client.API) error {
			var closed []*gate.Finding
			for _, name := range names {
				err := checkServed(ctx, a, name, v.String("version"))
				found, ok := errors.AsType[*gate.Finding](err)
				if err != nil && !ok {
					return err
				}
				closed = append(closed, found)
			}
			return together(closed)
		}, nil
	}}
}

func validDefinition(x cty.Value) error {
	if plural, group, ok := strings.Cut(x.AsString(), "."); !ok || plural == "" || group == "" {
		return fmt.Errorf("%q is not a definition's name such as ipaddresspools.metallb.io", x.AsString())
	}
	return validName(x)
}

// checkServed checks a definition, then that the API serves its kind. No object announces the moment, shortly
// after a definition is established, from which on it does: that is polled.
func checkServed(ctx context.Context, a *client.API, name, version string) error {
	object, err := a.Get(ctx, client.Selection{Resource: client.Definitions, Name: name},
		"CustomResourceDefinition")
	if err != nil {
		return err
	}
	if found := CheckDefinition(object, version); found != nil {
		return found
	}
	apiVersion := client.Text(object, "spec", "group") + "/" + cmp.Or(version, servedVersions(object)[0])
	_, err = a.Resolve(ctx, apiVersion, client.Text(object, "spec", "names", "kind"))
	if client.IsNotServed(err) {
		return &gate.Finding{Object: client.Title(object), Text: err.Error(), Err: err}
	}
	return err
}

// CheckDefinition returns why a definition's kind is not served, in a version if one is given. It is nil if
// nothing in the definition prevents it.
func CheckDefinition(object *client.Object, version string) *gate.Finding {
	if found := terminating(object); found != nil {
		return found
	}
	what := client.Title(object)
	for _, c := range []struct {
		condition string
		kind      gate.Kind
	}{{"NamesAccepted", NotAccepted}, {"Established", gate.NotEstablished}} {
		if is, why := unmet(object, c.condition, "True"); is.Status == "" {
			return problem(gate.NotEstablished, what, "%s", why)
		} else if why != "" {
			return problem(c.kind, what, "%s", why)
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
	versions, _, _ := unstructured.NestedSlice(definition.Object, "spec", "versions")
	var served []string
	for _, entry := range versions {
		if fields, ok := entry.(map[string]any); ok && fields["served"] == true {
			served = append(served, fmt.Sprint(fields["name"]))
		}
	}
	return served
}

// checkConversion checks a definition's conversion webhook, if it has one.
func checkConversion(definition *client.Object) *gate.Finding {
	config := func(field string) string {
		return client.Text(definition, "spec", "conversion", "webhook", "clientConfig", field)
	}
	if client.Text(definition, "spec", "conversion", "strategy") != "Webhook" || config("url") != "" {
		return nil
	}
	bundle, err := base64.StdEncoding.DecodeString(config("caBundle"))
	if err != nil {
		bundle = []byte(config("caBundle")) // without a certificate in it
	}
	return checkBundle(client.Title(definition)+": its conversion webhook", bundle)
}

// checkBundle returns the finding why the API server cannot trust a webhook by its caBundle. Whether it is
// the right one, only a call can tell.
func checkBundle(what string, bundle []byte) *gate.Finding {
	certificates := client.Certificates(bundle)
	var last time.Time // one of several may be old while they are renewed
	for _, c := range certificates {
		if c.NotAfter.After(last) {
			last = c.NotAfter
		}
	}
	switch {
	case len(bundle) == 0:
		return problem(NoCABundle, "",
			"%s has no caBundle: certificate controller has not injected the CA yet", what)
	case len(certificates) == 0:
		return problem(NoCABundle, "", "%s has a caBundle that holds no certificate", what)
	case last.Before(time.Now()):
		return problem(CAExpired, "", "%s has a caBundle whose CA has expired: on %s UTC", what,
			last.UTC().Format(time.DateTime))
	}
	return nil
}
