package kube

import (
	"context"
	"encoding/base64"
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/zclconf/go-cty/cty"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"github.com/ephemeral-castle/castle/internal/gate"
)

// crd asks whether objects of a kind can be made: the definition is accepted
// and established, and the API lists the kind, which it does a moment later.
// Where versions are converted by a webhook, it must have been given its
// authority, or every read of an older object fails.
func crd() gate.Type {
	return gate.Type{
		Name:       "crd",
		Summary:    "custom resource definitions are established and their kinds served",
		Kubernetes: true,
		Attributes: map[string]gate.Attribute{
			"names":   {Type: cty.List(cty.String), Required: true, Valid: validDefinitions, Help: `the definitions' names: ["ipaddresspools.metallb.io"]`},
			"version": {Type: cty.String, Valid: validWord, Help: "the version that each has to serve: v1; any if absent"},
		},
		New: func(name string, target gate.Target, v gate.Values) (gate.Gate, error) {
			var names []string
			if err := v.Decode("names", &names); err != nil {
				return gate.Gate{}, fmt.Errorf("names: %w", err)
			}
			c, d := newCluster(target, ""), defined{names, v.String("version")}
			return gate.Gate{Name: name, Check: c.ask(d.check), Changed: c.changes(d.selections)}, nil
		},
	}
}

// defined is a crd gate's arguments.
type defined struct {
	names   []string
	version string
}

func (d defined) check(ctx context.Context, a *api) error {
	var closed []string
	for _, name := range d.names {
		why, err := a.judgeDefinition(ctx, name, d.version)
		if absent := (notServed{}); errors.As(err, &absent) {
			why, err = absent.Error(), nil
		}
		if err != nil {
			return err
		}
		if why != "" {
			closed = append(closed, titled("customresourcedefinition", "", name)+": "+why)
		}
	}
	if len(closed) > 0 {
		return errors.New(several(closed))
	}
	return nil
}

// selections are the definitions. No object tells of the moment, shortly after
// one is established, from which on the API serves its kind: that is searched for.
func (d defined) selections(ctx context.Context, a *api) ([]selection, error) {
	var all []selection
	for _, name := range d.names {
		all = append(all, selection{in: definitions, name: name})
	}
	for _, name := range d.names {
		_, err := a.judgeDefinition(ctx, name, d.version)
		if absent := (notServed{}); errors.As(err, &absent) {
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
			return fmt.Errorf("%q is no definition's name such as ipaddresspools.metallb.io", name.AsString())
		}
	}
	return nil
}

// judgeDefinition says what a definition lacks; empty if nothing. That the API
// does not serve its kind yet is notServed.
func (a *api) judgeDefinition(ctx context.Context, name, version string) (string, error) {
	object, err := a.get(ctx, definitions, "", name)
	switch {
	case apierrors.IsNotFound(err):
		return "does not exist yet", nil
	case err != nil:
		return "", err
	case object.GetDeletionTimestamp() != nil:
		return "is being deleted", nil
	}
	for _, kind := range []string{"NamesAccepted", "Established"} {
		s, found := stateOf(object, kind)
		switch {
		case !found:
			return "has no condition " + kind + " yet", nil
		case s.Status != "True":
			return fmt.Sprintf("%s is %s: %s", kind, s.Status, s.why()), nil
		}
	}
	served := servedVersions(object)
	switch {
	case len(served) == 0:
		return "serves no version", nil
	case version != "" && !slices.Contains(served, version):
		return fmt.Sprintf("serves %s, not %s", strings.Join(served, ", "), version), nil
	}
	if why := conversion(object); why != "" {
		return why, nil
	}
	if version == "" {
		version = served[0]
	}
	_, err = a.resolve(ctx, text(object, "spec", "group")+"/"+version, text(object, "spec", "names", "kind"))
	return "", err
}

func servedVersions(definition *unstructured.Unstructured) []string {
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

// conversion says what a definition's conversion webhook lacks; empty if it has
// none or nothing.
func conversion(definition *unstructured.Unstructured) string {
	client := []string{"spec", "conversion", "webhook", "clientConfig"}
	if text(definition, "spec", "conversion", "strategy") != "Webhook" || text(definition, append(client, "url")...) != "" {
		return ""
	}
	bundle, err := base64.StdEncoding.DecodeString(text(definition, append(client, "caBundle")...))
	if err != nil {
		return "its conversion webhook has a caBundle that is not base64"
	}
	if why := judgeBundle(bundle); why != "" {
		return "its conversion webhook " + why
	}
	return ""
}
