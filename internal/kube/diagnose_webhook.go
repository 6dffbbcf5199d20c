package kube

import (
	"cmp"
	"context"
	"fmt"
	"slices"
	"strings"
	"time"

	admissionv1 "k8s.io/api/admissionregistration/v1"

	"github.com/ephemeral-castle/castle/internal/gate"
)

func lookAtWebhook(v gate.Values) string {
	return "kubectl get validatingwebhookconfigurations,mutatingwebhookconfigurations -o yaml --field-selector metadata.name=" + v.String("configuration")
}

// webhook explains an admission webhook: its configurations, the way to its
// server, the server's Pods, and what the API server hears when it calls it.
func (q *inquiry) webhook(ctx context.Context, v gate.Values) {
	configuration := v.String("configuration")
	exists, sure := false, true
	for _, kind := range []string{"Validating", "Mutating"} {
		s := selection{in: admissionv1.SchemeGroupVersion.WithResource(strings.ToLower(kind) + "webhookconfigurations"), name: configuration}
		object, known := q.get(ctx, s, kind+"WebhookConfiguration")
		exists, sure = exists || object != nil, sure && known
	}
	if !exists && sure {
		q.absent(ctx, "ValidatingWebhookConfiguration", "", configuration, "it is not installed, or the operator that makes it has not come that far")
		return
	}
	entries, err := q.a.webhooks(ctx, configuration)
	if err != nil {
		return
	}
	leads, logs, asked := true, []string(nil), []admissionv1.ServiceReference{}
	for _, e := range entries {
		if e.client.Service == nil {
			continue
		}
		service := admissionv1.ServiceReference{Namespace: e.client.Service.Namespace, Name: e.client.Service.Name}
		if !slices.Contains(asked, service) {
			asked = append(asked, service)
			way := q.service(ctx, service.Namespace, service.Name)
			leads = leads && way.leads
			if way.selector != "" {
				logs = []string{fmt.Sprintf("kubectl -n %s logs -l %s --all-containers --tail=100", service.Namespace, way.selector)}
			}
		}
	}
	q.because(bundleCause(entries, time.Now()), logs...)
	heard := q.call(ctx, probe{a: q.a, configuration: configuration, entries: entries, namespace: v.String("namespace")}, v)
	q.keep("webhook/"+configuration+".txt", []byte(heard))
	q.because(callCause(configuration, heard, leads), logs...)
}

// call sends the gate's objects past the webhook once more, and writes down all
// that comes back; a gate's answer is cut to one line.
func (q *inquiry) call(ctx context.Context, p probe, v gate.Values) string {
	var b strings.Builder
	for _, argument := range []string{"accepts", "rejects"} {
		objects, err := manifests(v[argument])
		if err != nil {
			continue // the gate was made of it
		}
		for _, object := range objects {
			heard := "accepted"
			if err := p.create(ctx, object); err != nil {
				heard = cmp.Or(message(err), err.Error())
			}
			fmt.Fprintf(&b, "dry run of %s, which the gate %s: %s\n", p.title(object), argument, heard)
		}
	}
	return b.String()
}

// bundleCause says what is wrong with the authorities that a configuration carries.
func bundleCause(entries []entry, now time.Time) string {
	for _, e := range entries {
		if len(e.client.CABundle) == 0 {
			return fmt.Sprintf("nobody has put a caBundle into webhook %s: whoever makes its certificate has not come to it yet", e.name)
		}
		var last time.Time // one of several may be old while they are renewed
		for _, c := range certificates(e.client.CABundle) {
			if c.NotAfter.After(last) {
				last = c.NotAfter
			}
		}
		if !last.IsZero() && now.After(last) {
			return fmt.Sprintf("the authority in the caBundle of webhook %s has expired on %s: whoever renews it has not, or a clock is wrong", e.name, last.UTC().Format(time.RFC3339))
		}
	}
	return ""
}

// callCauses is the list of what an API server says of a webhook that it
// cannot use, the most telling first.
func callCauses(leads bool) []struct{ sign, cause string } {
	refused := "its server does not listen, and no endpoint is ready"
	if leads {
		refused = "its Pod counts as ready although its webhook does not listen yet; it may still be waiting for its certificate"
	}
	return []struct{ sign, cause string }{
		{"certificate has expired", "the certificate of its server, or the authority that signed it, has expired"},
		{"certificate signed by unknown authority", "its caBundle is not of the authority that signed its server's certificate: the one or the other was renewed alone"},
		{"certificate is valid for", "its server's certificate is made for another name"},
		{"x509:", "the API server does not accept its server's certificate"},
		{"no endpoints available", "no Pod behind its Service is ready"},
		{"connection refused", refused},
		{"no route to host", "the API server cannot reach its Pod: the network between control plane and Pods does not work"},
		{"i/o timeout", "the API server cannot reach its Pod: the network between control plane and Pods does not work"},
		{"context deadline exceeded", "its server takes the call and does not answer in time, or the network between control plane and Pods drops it"},
		{"the server could not find the requested resource", "its server listens and has no handler at the configuration's path yet"},
		{"unexpected response code: 404", "its server listens and has no handler at the configuration's path yet"},
		{"service \"", "its Service does not exist"},
		{"which the gate rejects: accepted", "the API server does not ask it: its rules or selectors leave the probe's object out, or it lets everything pass"},
		{": EOF", "its server ends the connection without an answer"},
	}
}

func callCause(configuration, words string, leads bool) string {
	for _, c := range callCauses(leads) {
		if strings.Contains(words, c.sign) {
			return fmt.Sprintf("webhook configuration %s: %s", configuration, c.cause)
		}
	}
	return ""
}
