package gates

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/zclconf/go-cty/cty"
	admissionv1 "k8s.io/api/admissionregistration/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"github.com/ephemeral-castle/castle/internal/gate"
	"github.com/ephemeral-castle/castle/internal/kube/client"
)

// webhook checks step by step: the configuration exists, every entry has a CA,
// every server has a ready endpoint, and, if the gate has probes, the API server
// gets them past the webhook. Only the last step proves that the webhook serves:
// some controllers are ready and have a caBundle before their handlers exist.
func webhook() definition {
	return definition{gate.Type{
		Name:    "webhook",
		Summary: "an admission webhook serves, and accepts and rejects what it should",
		Attributes: map[string]gate.Attribute{
			"configuration": {Type: cty.String, Required: true, Valid: validName,
				Help: "the name of the Validating- or MutatingWebhookConfiguration, or of both"},
			"namespace": {Type: cty.String, Valid: validName,
				Help: "the namespace of the probes' objects if they name none"},
			"accepts": {Type: cty.DynamicPseudoType, Valid: validManifest,
				Help: "objects (or YAML) that a dry run has to accept"},
			"rejects": {Type: cty.DynamicPseudoType, Valid: validManifest,
				Help: "objects (or YAML) that the webhook has to deny in a dry run"},
		},
	}, func(v gate.Values) (Checker, error) { return NewWebhook(v) }}
}

// Webhook is a webhook gate's arguments.
type Webhook struct {
	Configuration    string
	Accepts, Rejects []*unstructured.Unstructured
	namespace        string
}

// NewWebhook reads the arguments.
func NewWebhook(v gate.Values) (w Webhook, err error) {
	w.Configuration, w.namespace = v.String("configuration"), v.String("namespace")
	if w.Accepts, err = manifests(v["accepts"]); err != nil {
		return w, fmt.Errorf("accepts: %w", err)
	}
	if w.Rejects, err = manifests(v["rejects"]); err != nil {
		return w, fmt.Errorf("rejects: %w", err)
	}
	return w, nil
}

// Check takes all steps.
func (w Webhook) Check(ctx context.Context, a *client.API) error {
	entries, err := w.Entries(ctx, a)
	if err != nil {
		return err
	}
	if err := w.CheckServers(ctx, a, entries); err != nil {
		return err
	}
	p := w.Probe(a, entries)
	for _, object := range w.Accepts {
		if err := p.accepted(ctx, object); err != nil {
			return err
		}
	}
	for _, object := range w.Rejects {
		if err := p.rejected(ctx, object); err != nil {
			return err
		}
	}
	return nil
}

// WebhookKinds are the kinds of webhook configurations.
var WebhookKinds = []string{"ValidatingWebhookConfiguration", "MutatingWebhookConfiguration"}

// Of selects the webhook configuration of that kind.
func (w Webhook) Of(kind string) client.Selection {
	resource := admissionv1.SchemeGroupVersion.WithResource(strings.ToLower(kind) + "s")
	return client.Selection{Resource: resource, Name: w.Configuration}
}

// Selections are the configurations, the endpoints of every Service that they
// name, and, while they are not served, the kinds of the probes. Nobody announces
// that a server listens and has its handlers.
func (w Webhook) Selections(ctx context.Context, a *client.API) ([]client.Selection, error) {
	var all []client.Selection
	for _, kind := range WebhookKinds {
		all = append(all, w.Of(kind))
	}
	entries, err := w.Entries(ctx, a)
	errs := []error{err}
	for _, service := range Services(entries) {
		all = append(all, service.Slices())
	}
	for _, object := range slices.Concat(w.Accepts, w.Rejects) {
		_, err := a.Resolve(ctx, object.GetAPIVersion(), object.GetKind())
		errs = append(errs, err)
	}
	return all, errors.Join(errs...)
}

// Entry is one webhook of a configuration.
type Entry struct {
	Name   string
	Client admissionv1.WebhookClientConfig
}

// Entries reads the webhooks of the configurations, of either kind.
func (w Webhook) Entries(ctx context.Context, a *client.API) ([]Entry, error) {
	var entries []Entry
	found := false
	for _, kind := range WebhookKinds {
		object, err := a.Get(ctx, w.Of(kind), kind)
		if gate.KindOf(err) == gate.NotFound {
			continue
		}
		if err != nil {
			return nil, err
		}
		found = true
		// Both kinds have the same fields where it matters here.
		typed, err := client.As[admissionv1.ValidatingWebhookConfiguration](*object)
		if err != nil {
			return nil, err
		}
		for _, webhook := range typed.Webhooks {
			entries = append(entries, Entry{webhook.Name, webhook.ClientConfig})
		}
	}
	switch {
	case !found:
		return nil, &gate.Finding{Kind: gate.NotFound,
			Text: fmt.Sprintf("webhook configuration %s does not exist yet", w.Configuration),
			Err:  client.Missing{Kind: "ValidatingWebhookConfiguration", Name: w.Configuration}}
	case len(entries) == 0:
		return nil, fmt.Errorf("webhook configuration %s has no webhooks yet", w.Configuration)
	}
	return entries, nil
}

// Services are the Services that serve webhooks, each once.
func Services(entries []Entry) []Service {
	var all []Service
	for _, e := range entries {
		if e.Client.Service == nil {
			continue
		}
		service := Service{e.Client.Service.Namespace, e.Client.Service.Name}
		if !slices.Contains(all, service) {
			all = append(all, service)
		}
	}
	return all
}

// CheckServers checks everything that can be read without calling the webhook.
func (w Webhook) CheckServers(ctx context.Context, a *client.API, entries []Entry) error {
	for _, e := range entries {
		if e.Client.URL != nil && len(e.Client.CABundle) == 0 {
			continue // the CAs that the API server's own system trusts
		}
		what := fmt.Sprintf("webhook configuration %s: %s", w.Configuration, e.Name)
		if err := checkBundle(what, e.Client.CABundle); err != nil {
			return err
		}
	}
	for _, service := range Services(entries) {
		if err := service.Check(ctx, a); err != nil {
			return err
		}
	}
	return nil
}

// Probe sends objects past the webhooks.
func (w Webhook) Probe(a *client.API, entries []Entry) Probe {
	return Probe{a, w.Configuration, w.namespace, entries}
}
