package kube

import (
	"context"
	"encoding/base64"
	"strings"
	"testing"
	"time"

	"github.com/zclconf/go-cty/cty"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/ephemeral-castle/castle/internal/gate"
	"github.com/ephemeral-castle/castle/internal/kube/client"
	"github.com/ephemeral-castle/castle/internal/kube/gates"
)

const (
	admission   = "/apis/admissionregistration.k8s.io/v1/"
	webhookPods = "/apis/discovery.k8s.io/v1/namespaces/metallb-system/endpointslices/a"
	dryRun      = "POST /apis/metallb.io/v1beta1/namespaces/metallb-system/l2advertisements"

	advertisement = "---\napiVersion: metallb.io/v1beta1\nkind: L2Advertisement\nmetadata: {name: " +
		"castle-probe}\n"
)

func TestWebhook(t *testing.T) {
	old := authorityUntil(t, time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC))
	expired := base64.StdEncoding.EncodeToString(old)
	both := base64.StdEncoding.EncodeToString(append(old, authority(t)...))
	authority := base64.StdEncoding.EncodeToString(authority(t))
	entry := func(name, bundle string) string {
		return "{name: " + name + ", clientConfig: {caBundle: " + bundle +
			", service: {namespace: metallb-system, name: metallb-webhook-service}}}"
	}
	pool, l2 := "ipaddresspoolvalidationwebhook.metallb.io", "l2advertisementvalidationwebhook.metallb.io"
	validating := func(entries ...string) fixture {
		return fixture{
			admission + "validatingwebhookconfigurations/metallb-webhook-configuration",
			"{kind: ValidatingWebhookConfiguration, webhooks: [" + strings.Join(entries, ",") + "]}",
		}
	}
	good := validating(entry(pool, authority), entry(l2, authority))
	ready := fixture{webhookPods, `{kind: EndpointSlice, metadata: {labels: {kubernetes.io/service-name: ` +
		`metallb-webhook-service}}, endpoints: [{conditions: {ready: true}}]}`}
	starting := fixture{webhookPods, `{kind: EndpointSlice, ` +
		`metadata: {labels: {kubernetes.io/service-name: ` +
		`metallb-webhook-service}}, endpoints: [{conditions: {ready: false}}]}`}
	serves := []kind{{"metallb.io/v1beta1", "L2Advertisement", "l2advertisements", true}}
	asks := func(more ...string) map[string]cty.Value {
		arguments := map[string]cty.Value{"configuration": str("metallb-webhook-configuration"),
			"namespace": str("metallb-system")}
		for _, probe := range more {
			arguments[probe] = str(advertisement)
		}
		return arguments
	}
	refused := failure(500, metav1.StatusReasonInternalError,
		`Internal error occurred: failed calling webhook "`+l2+
			`": failed to call webhook: Post `+
			`"https://metallb-webhook-service.metallb-system.svc:443/validate?timeout=10s": dial tcp `+
			`10.96.3.4:443: connect: connection refused`)
	denied := func(by string) answer {
		return failure(403, metav1.StatusReasonForbidden,
			`admission webhook "`+by+`" denied the request: resource must be created in metallb-system `+
				`namespace`)
	}
	undecided := failure(500, metav1.StatusReasonInternalError,
		`admission webhook "`+l2+`" denied the request: the cache is not started`)
	answers := func(a answer) map[string]answer { return map[string]answer{dryRun: a} }
	dry := "dry run of l2advertisement metallb-system/castle-probe: "
	runTrials(t, "webhook", []trial{
		{name: "serves", arguments: asks(), objects: []fixture{good, ready}},
		{name: "serves and accepts", arguments: asks("accepts"), serves: serves,
			objects: []fixture{good, ready}},
		{
			name: "accepts what is there already", arguments: asks("accepts"), serves: serves,
			objects: []fixture{good, ready},
			answers: answers(failure(409, metav1.StatusReasonAlreadyExists,
				`l2advertisements.metallb.io "castle-probe" already exists`)),
		},
		{name: "denies what it should", arguments: asks("rejects"), serves: serves,
			objects: []fixture{good, ready}, answers: answers(denied(l2))},
		{name: "mutates", arguments: asks(), objects: []fixture{ready, {
			admission + "mutatingwebhookconfigurations/metallb-webhook-configuration",
			"{kind: MutatingWebhookConfiguration, webhooks: [" + entry(pool, authority) + "]}",
		}}},
		{name: "no configuration", arguments: asks(),
			want: "webhook configuration metallb-webhook-configuration does not exist yet"},
		{name: "empty configuration", arguments: asks(), objects: []fixture{validating()},
			want: "webhook configuration metallb-webhook-configuration has no webhooks yet"},
		{
			name: "one entry without an authority", arguments: asks(),
			objects: []fixture{validating(entry(pool, authority), entry(l2, `""`)), ready},
			want: "webhook configuration metallb-webhook-configuration: " + l2 +
				" has no caBundle: certificate controller has not injected the CA yet",
		},
		{
			name: "an authority that is none", arguments: asks(),
			objects: []fixture{validating(entry(pool, "Cg==")), ready},
			want: "webhook configuration metallb-webhook-configuration: " + pool +
				" has a caBundle that holds no certificate",
		},
		{
			name: "an authority that has expired", arguments: asks(),
			objects: []fixture{validating(entry(pool, expired)), ready},
			want: "webhook configuration metallb-webhook-configuration: " + pool +
				" has a caBundle whose CA has expired: on 2026-01-02 03:04:05 UTC",
		},
		{name: "one of two authorities has expired", arguments: asks(),
			objects: []fixture{validating(entry(pool, both)), ready}},
		{
			name: "outside the cluster, by the system's authorities", arguments: asks(),
			objects: []fixture{validating("{name: " + pool +
				", clientConfig: {url: 'https://policy.example.org'}}")},
		},
		{
			name: "its pods start", arguments: asks(), objects: []fixture{good, starting},
			want: "service metallb-system/metallb-webhook-service: 0 of 1 endpoints ready",
		},
		{
			name: "ready, but does not listen", arguments: asks("accepts"), serves: serves,
			objects: []fixture{good, ready}, answers: answers(refused),
			want: dry + `failed calling webhook "` + l2 +
				`": failed to call webhook: Post ` +
				`"https://metallb-webhook-service.metallb-system.svc:443/validate?timeout=10s": dial tcp ` +
				`10.96.3.4:443: connect: connection refused`,
		},
		{
			name: "does not listen, so denies nothing", arguments: asks("rejects"), serves: serves,
			objects: []fixture{good, ready},
			answers: answers(failure(500, metav1.StatusReasonInternalError,
				`Internal error occurred: failed calling webhook "`+l2+`": EOF`)),
			want: dry + `failed calling webhook "` + l2 + `": EOF`,
		},
		{
			name: "no such kind yet", arguments: asks("accepts"), objects: []fixture{good, ready},
			want: "the API serves no kind L2Advertisement in metallb.io/v1beta1 yet",
		},
		{
			name: "no namespace yet", arguments: asks("accepts"), serves: serves,
			objects: []fixture{good, ready},
			answers: answers(failure(404, metav1.StatusReasonNotFound,
				`namespaces "metallb-system" not found`)),
			want: dry + `namespaces "metallb-system" not found`,
		},
		{
			name: "denies what it should accept", arguments: asks("accepts"), serves: serves,
			objects: []fixture{good, ready}, answers: answers(denied(l2)),
			want: dry + "webhook " + l2 +
				" denies it: resource must be created in metallb-system namespace",
			permanent: true,
		},
		{
			name: "another webhook is in the way", arguments: asks("accepts"), serves: serves,
			objects: []fixture{good, ready}, answers: answers(denied("policy.example")),
			want: dry + "webhook policy.example, which is not of metallb-webhook-configuration, denies " +
				"it: resource must be created in metallb-system namespace",
		},
		{
			name: "another webhook denies first", arguments: asks("rejects"), serves: serves,
			objects: []fixture{good, ready}, answers: answers(denied("policy.example")),
			want: dry + "webhook policy.example, which is not of metallb-webhook-configuration, denies " +
				"it: resource must be created in metallb-system namespace",
		},
		{
			name: "lets through what it should deny", arguments: asks("rejects"), serves: serves,
			objects: []fixture{good, ready},
			want:    dry + "no webhook of metallb-webhook-configuration denies it",
		},
		{
			name: "the object is no good", arguments: asks("accepts"), serves: serves,
			objects:   []fixture{good, ready},
			answers:   answers(failure(422, metav1.StatusReasonInvalid, "spec.interfaces: Invalid value")),
			want:      dry + "the API refuses it before any webhook: spec.interfaces: Invalid value",
			permanent: true,
		},
		{
			name: "the object that should be denied is no object", arguments: asks("rejects"), serves: serves,
			objects:   []fixture{good, ready},
			answers:   answers(failure(422, metav1.StatusReasonInvalid, "spec.interfaces: Invalid value")),
			want:      dry + "the API refuses it before any webhook: spec.interfaces: Invalid value",
			permanent: true,
		},
		{
			name: "denies what it cannot judge yet", arguments: asks("accepts"), serves: serves,
			objects: []fixture{good, ready}, answers: answers(undecided),
			want: dry + "webhook " + l2 + " cannot decide yet: the cache is not started",
		},
		{
			name: "a denial that is no judgement proves nothing", arguments: asks("rejects"), serves: serves,
			objects: []fixture{good, ready}, answers: answers(undecided),
			want: dry + "webhook " + l2 + " cannot decide yet: the cache is not started",
		},
		{
			name: "its namespace goes", arguments: asks("rejects"), serves: serves,
			objects: []fixture{good, ready},
			answers: answers(failure(403, metav1.StatusReasonForbidden,
				"l2advertisements.metallb.io \"castle-probe\" is forbidden: unable to create new content "+
					"in namespace metallb-system because it is being terminated")),
			want: dry + `l2advertisements.metallb.io "castle-probe" is forbidden: unable to create new ` +
				`content in namespace metallb-system because it is being terminated`,
		},
		{
			name: "without the right to try", arguments: asks("accepts"), serves: serves,
			objects: []fixture{good, ready},
			answers: answers(failure(403, metav1.StatusReasonForbidden,
				`User "guest" cannot create resource "l2advertisements"`)),
			want: `kubernetes API at HOST refuses the kubeconfig's user: User "guest" cannot create ` +
				`resource "l2advertisements"`, permanent: true,
		},
	})
}

func TestAHangingWebhookIsNotAHangingAPI(t *testing.T) {
	f := newFakeAPI(t)
	f.serves("metallb.io/v1beta1", "L2Advertisement", "l2advertisements", true)
	f.answer(dryRun, hangs, nil)
	w, err := gates.NewWebhook(gate.Values{"accepts": str(advertisement), "namespace": str("metallb-system")})
	if err != nil {
		t.Fatal(err)
	}
	c := client.New(gate.Target{Kubeconfig: f.kubeconfig()}, "")
	object := w.Probes[0].Object
	// Finding the kind must not count against the dry run's time.
	expect(t, f, c.Check(func(ctx context.Context, a *client.API) error {
		_, err := a.Resolve(ctx, object.GetAPIVersion(), object.GetKind())
		return err
	})(t.Context()), "", false)
	c.Attempt = 2 * time.Second
	err = c.Check(func(ctx context.Context, a *client.API) error {
		return w.Create(ctx, a, object)
	})(t.Context())
	expect(t, f, err, "dry run of l2advertisement metallb-system/castle-probe: no answer within 1.5s: one "+
		"of its webhooks hangs", false)
}

func TestProbesAreTextOrObjects(t *testing.T) {
	object := cty.ObjectVal(map[string]cty.Value{
		"apiVersion": str("v1"), "kind": str("ConfigMap"),
		"metadata": cty.ObjectVal(map[string]cty.Value{"name": str("a"), "generation": num(2)}),
	})
	for name, tt := range map[string]struct {
		given cty.Value
		want  int
	}{
		"nothing":   {cty.NilVal, 0},
		"an object": {object, 1},
		"JSON":      {str(`{"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "a"}}`), 1},
		"YAML":      {str(advertisement + advertisement), 2},
		"a list":    {cty.TupleVal([]cty.Value{object, str(advertisement)}), 2},
	} {
		t.Run(name, func(t *testing.T) {
			got, err := gates.NewWebhook(gate.Values{"accepts": tt.given})
			if err != nil || len(got.Probes) != tt.want {
				t.Errorf("got %d objects (%v), want %d", len(got.Probes), err, tt.want)
			}
		})
	}
	for name, bad := range map[string]cty.Value{
		"a number": num(3), "no kind": str("password: hunter2"),
		"no name": str("apiVersion: v1\nkind: Secret\nstringData: {password: hunter2}"),
		"no YAML": str("{password: hunter2"), "empty": str(""),
	} {
		t.Run(name, func(t *testing.T) {
			err := gateType(t, "webhook").Attributes["accepts"].Valid(bad)
			if err == nil {
				t.Fatal("is accepted")
			}
			if strings.Contains(err.Error(), "hunter2") {
				t.Errorf("the message quotes the manifest: %v", err)
			}
		})
	}
}
