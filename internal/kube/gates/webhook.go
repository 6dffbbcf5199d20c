package gates

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"slices"
	"strings"
	"time"

	"github.com/zclconf/go-cty/cty"
	ctyjson "github.com/zclconf/go-cty/cty/json"
	admissionv1 "k8s.io/api/admissionregistration/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/yaml"

	"github.com/ephemeral-castle/castle/internal/gate"
	"github.com/ephemeral-castle/castle/internal/kube/client"
)

// webhook checks step by step: the configuration exists, every entry has a CA, and every server has a ready
// endpoint. If the gate has probes, they must pass the webhook. Only that step proves that the webhook
// serves: some controllers are ready and have a caBundle before their handlers exist.
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
	Accepts, Rejects []*client.Object
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

// Selections are the configurations, the endpoints of every Service that they name, and the kinds of the
// probes until the API serves them. No object announces that a server listens and has its handlers.
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

// Probe sends objects past a configuration's webhooks in a dry run: the API server calls them as it would
// for real, and stores nothing.
type Probe struct {
	a                        *client.API
	configuration, namespace string
	entries                  []Entry
}

// accepted requires that the webhooks let an object pass.
func (p Probe) accepted(ctx context.Context, object *client.Object) error {
	err := p.Create(ctx, object)
	by, why, denied := denial(err)
	switch {
	case err == nil, apierrors.IsAlreadyExists(err): // admission comes before storage
		return nil
	case denied && p.has(by) && decided(err):
		return gate.Permanent(fmt.Errorf("dry run of %s: webhook %s denies it: %s", p.Title(object), by,
			client.Brief(why)))
	}
	return p.obstacle(object, err)
}

// rejected requires that one of these webhooks denies an object.
func (p Probe) rejected(ctx context.Context, object *client.Object) error {
	err := p.Create(ctx, object)
	by, _, denied := denial(err)
	switch {
	case denied && p.has(by) && decided(err):
		return nil
	case err == nil, apierrors.IsAlreadyExists(err):
		return fmt.Errorf("dry run of %s: no webhook of %s denies it", p.Title(object), p.configuration)
	}
	return p.obstacle(object, err)
}

// obstacle explains why the webhooks did not decide on an object. Some obstacles pass: a server without
// listener, handler or right certificate, a missing namespace, another webhook. An object that the API
// itself finds invalid is permanent, and so is a user without permission.
func (p Probe) obstacle(object *client.Object, err error) error {
	by, why, denied := denial(err)
	message, run := client.Message(err), "dry run of "+p.Title(object)
	switch {
	case denied && p.has(by):
		return fmt.Errorf("%s: webhook %s cannot decide yet: %s", run, by, client.Brief(why))
	case denied:
		return fmt.Errorf("%s: webhook %s, which is not of %s, denies it: %s", run, by, p.configuration,
			client.Brief(why))
	case apierrors.IsInvalid(err), apierrors.IsBadRequest(err):
		return gate.Permanent(fmt.Errorf("%s: the API refuses it before any webhook: %s", run,
			client.Brief(message)))
	case client.LacksPermission(err), message == "":
		return err
	}
	return fmt.Errorf("%s: %s", run, client.Brief(message))
}

// decided reports whether a denial is about the object. A webhook that is busy or cannot read its inputs
// denies as well, with a different error code.
func decided(err error) bool {
	var status apierrors.APIStatus
	if !errors.As(err, &status) {
		return false
	}
	code := status.Status().Code
	return code < http.StatusInternalServerError && code != http.StatusTooManyRequests &&
		code != http.StatusRequestTimeout
}

// Create makes the dry run.
func (p Probe) Create(ctx context.Context, object *client.Object) error {
	r, err := p.a.Resolve(ctx, object.GetAPIVersion(), object.GetKind())
	if err != nil {
		return err
	}
	namespace := ""
	if r.Namespaced {
		namespace = cmp.Or(object.GetNamespace(), p.namespace, metav1.NamespaceDefault)
	}
	object = object.DeepCopy()
	object.SetNamespace(namespace)
	// The API waits for its webhooks. A shorter bound than the attempt's tells a webhook that hangs from an
	// API that hangs.
	within := client.DefaultAttempt
	if end, ok := ctx.Deadline(); ok {
		within = time.Until(end) * 3 / 4
	}
	bounded, stop := context.WithTimeout(ctx, within)
	defer stop()
	_, err = p.a.Dynamic.Resource(r.GroupVersionResource).Namespace(namespace).
		Create(bounded, object, metav1.CreateOptions{DryRun: []string{metav1.DryRunAll},
			FieldManager: "castle"})
	if bounded.Err() != nil && ctx.Err() == nil {
		return fmt.Errorf("dry run of %s: no answer within %s: one of its webhooks hangs",
			p.Title(object), within.Round(time.Second/2))
	}
	return err
}

func (p Probe) has(webhook string) bool {
	return slices.ContainsFunc(p.entries, func(e Entry) bool { return e.Name == webhook })
}

// Title is the probe's object as messages name it.
func (p Probe) Title(object *client.Object) string {
	return client.Titled(object.GetKind(), cmp.Or(object.GetNamespace(), p.namespace), object.GetName())
}

// denial reads which webhook denied, and why. A webhook that could not be called is no denial: that answer
// begins with "failed calling webhook".
func denial(err error) (webhook, why string, denied bool) {
	rest, ok := strings.CutPrefix(client.Message(err), `admission webhook "`)
	if !ok {
		return "", "", false
	}
	webhook, rest, _ = strings.Cut(rest, `"`)
	why, denied = strings.CutPrefix(rest, " denied the request")
	return webhook, strings.TrimPrefix(why, ": "), denied
}

func validManifest(x cty.Value) error {
	if !x.IsWhollyKnown() {
		return nil
	}
	objects, err := manifests(x)
	if err == nil && len(objects) == 0 {
		return errors.New("contains no object")
	}
	return err
}

// manifests reads objects from an argument: YAML or JSON text, an object, or a list of these.
func manifests(x cty.Value) ([]*client.Object, error) {
	switch {
	case x == cty.NilVal || !x.IsKnown() || x.IsNull():
		return nil, nil
	case x.Type() == cty.String:
		return documents(x.AsString())
	case x.Type().IsTupleType(), x.Type().IsListType():
		var all []*client.Object
		for _, element := range x.AsValueSlice() {
			some, err := manifests(element)
			if err != nil {
				return nil, err
			}
			all = append(all, some...)
		}
		return all, nil
	case x.Type().IsObjectType(), x.Type().IsMapType():
		encoded, err := ctyjson.Marshal(x, x.Type())
		if err != nil {
			return nil, err
		}
		return documents(string(encoded))
	}
	return nil, fmt.Errorf("is a %s, neither text nor an object", x.Type().FriendlyName())
}

func documents(manifest string) ([]*client.Object, error) {
	var all []*client.Object
	decoder := yaml.NewYAMLOrJSONDecoder(strings.NewReader(manifest), 4096)
	for {
		object := &client.Object{}
		err := decoder.Decode(object)
		switch {
		case errors.Is(err, io.EOF):
			return all, nil
		case err != nil:
			// The decoder's error would quote the manifest, which may hold a secret.
			return nil, errors.New("is not YAML or JSON of objects with a kind")
		case object.GetAPIVersion() == "" || object.GetName() == "":
			return nil, fmt.Errorf("an object of kind %s has no apiVersion or no name", object.GetKind())
		}
		all = append(all, object)
	}
}
