package kube

import (
	"context"
	"errors"
	"fmt"
	"slices"

	"github.com/zclconf/go-cty/cty"
	admissionv1 "k8s.io/api/admissionregistration/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"

	"github.com/ephemeral-castle/castle/internal/gate"
)

// webhook climbs: the configuration exists, every entry carries the authority
// of its server, every server has a ready endpoint, and, if the gate is given
// an object, the API server gets that object past the webhook. Only the last
// step proves that the webhook serves: controllers exist whose readiness and
// caBundle both come before their handlers.
func webhook() gate.Type {
	return gate.Type{
		Name:       "webhook",
		Summary:    "an admission webhook serves, and accepts and rejects what it should",
		Kubernetes: true,
		Attributes: map[string]gate.Attribute{
			"configuration": {Type: cty.String, Required: true, Valid: validName, Help: "the name of the Validating- or MutatingWebhookConfiguration, or of both"},
			"namespace":     {Type: cty.String, Valid: validName, Help: "where the probes' objects would live if they do not say so themselves"},
			"accepts":       {Type: cty.DynamicPseudoType, Valid: validManifest, Help: "objects (or YAML) that a dry run has to accept"},
			"rejects":       {Type: cty.DynamicPseudoType, Valid: validManifest, Help: "objects (or YAML) that the webhook has to deny in a dry run"},
		},
		New: func(name string, target gate.Target, v gate.Values) (gate.Gate, error) {
			accepts, err := manifests(v["accepts"])
			if err != nil {
				return gate.Gate{}, fmt.Errorf("accepts: %w", err)
			}
			rejects, err := manifests(v["rejects"])
			if err != nil {
				return gate.Gate{}, fmt.Errorf("rejects: %w", err)
			}
			configuration := v.String("configuration")
			c := newCluster(target, "")
			changed := c.changes(ladder{configuration, slices.Concat(accepts, rejects)}.selections)
			return gate.Gate{Name: name, Changed: changed, Check: c.ask(func(ctx context.Context, a *api) error {
				entries, err := a.webhooks(ctx, configuration)
				if err != nil {
					return err
				}
				if err := a.serve(ctx, configuration, entries); err != nil {
					return err
				}
				p := probe{a: a, configuration: configuration, entries: entries, namespace: v.String("namespace")}
				for _, object := range accepts {
					if err := p.accepted(ctx, object); err != nil {
						return err
					}
				}
				for _, object := range rejects {
					if err := p.rejected(ctx, object); err != nil {
						return err
					}
				}
				return nil
			})}, nil
		},
	}
}

// entry is one webhook of a configuration.
type entry struct {
	name   string
	client admissionv1.WebhookClientConfig
}

// webhooks reads the entries of the configurations with a name, of either kind.
func (a *api) webhooks(ctx context.Context, configuration string) ([]entry, error) {
	var entries []entry
	found := false
	for _, kind := range []string{"validatingwebhookconfigurations", "mutatingwebhookconfigurations"} {
		object, err := a.get(ctx, admissionv1.SchemeGroupVersion.WithResource(kind), "", configuration)
		if apierrors.IsNotFound(err) {
			continue
		}
		if err != nil {
			return nil, err
		}
		found = true
		// Both kinds have the same fields where it matters here.
		typed, err := as[admissionv1.ValidatingWebhookConfiguration](*object)
		if err != nil {
			return nil, err
		}
		for _, w := range typed.Webhooks {
			entries = append(entries, entry{w.Name, w.ClientConfig})
		}
	}
	switch {
	case !found:
		return nil, fmt.Errorf("webhook configuration %s does not exist yet", configuration)
	case len(entries) == 0:
		return nil, fmt.Errorf("webhook configuration %s has no webhooks yet", configuration)
	}
	return entries, nil
}

// serve asks everything that can be read without calling the webhook.
func (a *api) serve(ctx context.Context, configuration string, entries []entry) error {
	for _, e := range entries {
		if e.client.URL != nil && len(e.client.CABundle) == 0 {
			continue // the authorities that the API server's own system trusts
		}
		if why := judgeBundle(e.client.CABundle); why != "" {
			return fmt.Errorf("webhook configuration %s: %s %s", configuration, e.name, why)
		}
	}
	asked := map[admissionv1.ServiceReference]bool{}
	for _, e := range entries {
		if e.client.Service == nil {
			continue
		}
		service := admissionv1.ServiceReference{Namespace: e.client.Service.Namespace, Name: e.client.Service.Name}
		if asked[service] {
			continue
		}
		asked[service] = true
		if err := a.leadsSomewhere(ctx, service.Namespace, service.Name); err != nil {
			return err
		}
	}
	return nil
}

func validManifest(x cty.Value) error {
	if !x.IsWhollyKnown() {
		return nil
	}
	objects, err := manifests(x)
	if err == nil && len(objects) == 0 {
		return errors.New("holds no object")
	}
	return err
}
