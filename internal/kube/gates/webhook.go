package gates

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"regexp"
	"slices"
	"strings"

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
			"configuration": required(named("the name of the Validating- or MutatingWebhookConfiguration, " +
				"or of both")),
			"namespace": named("the namespace of the probes' objects if they name none"),
			"accepts": {Type: cty.DynamicPseudoType, Valid: validManifest,
				Help: "objects (or YAML) that a dry run has to accept"},
			"rejects": {Type: cty.DynamicPseudoType, Valid: validManifest,
				Help: "objects (or YAML) that the webhook has to deny in a dry run"},
		},
	}, func(v gate.Values) (Check, error) {
		w, err := NewWebhook(v)
		return w.check, err
	}}
}

// Webhook is a webhook gate's arguments.
type Webhook struct {
	Configuration string
	Probes        []Probe
	namespace     string // of the probes' objects if they name none
}

// Probe is an object that the webhooks have to let pass, or one of the configuration's own has to deny.
type Probe struct {
	Object *client.Object
	denied bool
}

// NewWebhook reads the arguments.
func NewWebhook(v gate.Values) (Webhook, error) {
	w := Webhook{Configuration: v.String("configuration"), namespace: v.String("namespace")}
	for _, argument := range []string{"accepts", "rejects"} {
		objects, err := manifests(v[argument])
		if err != nil {
			return w, fmt.Errorf("%s: %w", argument, err)
		}
		for _, object := range objects {
			w.Probes = append(w.Probes, Probe{object, argument == "rejects"})
		}
	}
	return w, nil
}

func (w Webhook) check(ctx context.Context, a *client.API) error {
	entries, err := w.Entries(ctx, a)
	if err != nil {
		return err
	}
	var own []string
	for _, e := range entries {
		own = append(own, e.Name)
		if e.ClientConfig.URL != nil && len(e.ClientConfig.CABundle) == 0 {
			continue // the CAs that the API server's own system trusts
		}
		what := fmt.Sprintf("webhook configuration %s: %s", w.Configuration, e.Name)
		if found := checkBundle(what, e.ClientConfig.CABundle); found != nil {
			return found
		}
	}
	for _, service := range Services(entries) {
		if err := service.check(ctx, a); err != nil {
			return err
		}
	}
	for _, p := range w.Probes {
		if err := w.probe(ctx, a, p, own); err != nil {
			return err
		}
	}
	return nil
}

// Entries reads the webhooks of the configurations, of either kind.
func (w Webhook) Entries(ctx context.Context, a *client.API) ([]admissionv1.ValidatingWebhook, error) {
	var entries []admissionv1.ValidatingWebhook
	found := false
	for _, kind := range []string{"ValidatingWebhookConfiguration", "MutatingWebhookConfiguration"} {
		resource := admissionv1.SchemeGroupVersion.WithResource(strings.ToLower(kind) + "s")
		object, err := a.Get(ctx, client.Selection{Resource: resource, Name: w.Configuration}, kind)
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
		entries = append(entries, typed.Webhooks...)
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
func Services(entries []admissionv1.ValidatingWebhook) []Service {
	var all []Service
	for _, e := range entries {
		if s := e.ClientConfig.Service; s != nil && !slices.Contains(all, Service{s.Namespace, s.Name}) {
			all = append(all, Service{s.Namespace, s.Name})
		}
	}
	return all
}

// probe sends an object past the webhooks in a dry run: the API server calls them, and stores nothing. Some
// obstacles pass: a server without listener, handler or right certificate, a missing namespace, another
// webhook. An object that the API itself finds invalid is permanent, and so is a user without permission.
func (w Webhook) probe(ctx context.Context, a *client.API, p Probe, own []string) error {
	err := w.Create(ctx, a, p.Object)
	by, why, denied := denial(err)
	foreign := denied && !slices.Contains(own, by)
	passed := err == nil || apierrors.IsAlreadyExists(err) // admission comes before storage
	answer := client.Message(err)
	found := &gate.Finding{Object: w.title(p.Object), Err: err}
	switch {
	case passed && p.denied:
		return problem(NotDenied, found.Object, "no webhook of %s denies it", w.Configuration)
	case passed:
		return nil
	case foreign:
		found.Text = fmt.Sprintf("webhook %s, which is not of %s, denies it: %s", by, w.Configuration,
			client.Brief(why))
	case denied && decided(err) && p.denied:
		return nil
	case denied && decided(err):
		found.Text = fmt.Sprintf("webhook %s denies it: %s", by, client.Brief(why))
		return gate.Permanent(found)
	case denied:
		found.Text = fmt.Sprintf("webhook %s cannot decide yet: %s", by, client.Brief(why))
	case apierrors.IsInvalid(err), apierrors.IsBadRequest(err):
		found.Text = "the API refuses it before any webhook: " + client.Brief(answer)
		return gate.Permanent(found)
	case client.LacksPermission(err), answer == "":
		return err
	default:
		// The Service has a ready endpoint, and nothing in the API tells when the process behind it listens.
		found.Kind, found.Text, found.Unwatched = WebhookCall, client.Brief(answer), true
	}
	return found
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
func (w Webhook) Create(ctx context.Context, a *client.API, object *client.Object) error {
	r, err := a.Resolve(ctx, object.GetAPIVersion(), object.GetKind())
	if err != nil {
		return err
	}
	namespace := ""
	if r.Namespaced {
		namespace = cmp.Or(object.GetNamespace(), w.namespace, metav1.NamespaceDefault)
	}
	object = object.DeepCopy()
	object.SetNamespace(namespace)
	return dryRun(ctx, a, client.Selection{Resource: r.GroupVersionResource, Namespace: namespace}, object,
		w.title(object))
}

func (w Webhook) title(object *client.Object) string {
	return "dry run of " + client.Titled(object.GetKind(), cmp.Or(object.GetNamespace(), w.namespace),
		object.GetName())
}

// denials is the API server's answer for a webhook that denied. One that could not be called is no denial:
// that answer begins with "failed calling webhook".
var denials = regexp.MustCompile(`(?s)^admission webhook "([^"]*)" denied the request(?:: )?(.*)`)

// denial reads which webhook denied, and why.
func denial(err error) (webhook, why string, denied bool) {
	if m := denials.FindStringSubmatch(client.Message(err)); m != nil {
		return m[1], m[2], true
	}
	return "", "", false
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
