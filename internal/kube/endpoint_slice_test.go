package kube

import (
	"strings"
	"testing"

	"github.com/zclconf/go-cty/cty"
)

func TestEndpointSlice(t *testing.T) {
	of := func(service, endpoints string) string {
		return "kind: EndpointSlice\naddressType: IPv4\n" +
			"metadata: {labels: {kubernetes.io/service-name: " + service + "}}\nendpoints: " + endpoints
	}
	webhook := func(endpoints string) string { return of("metallb-webhook-service", endpoints) }
	at := "/apis/discovery.k8s.io/v1/namespaces/metallb-system/endpointslices/"
	service := fixture{"/api/v1/namespaces/metallb-system/services/metallb-webhook-service",
		"{kind: Service}"}
	arguments := map[string]cty.Value{"namespace": str("metallb-system"),
		"service": str("metallb-webhook-service")}
	trials := []trial{
		{name: "ready", objects: []fixture{{at + "a", webhook(`[{conditions: {ready: true}}]`)}}},
		{name: "silence about readiness counts as ready",
			objects: []fixture{{at + "a", webhook(`[{conditions: {}}]`)}}},
		{name: "one of two slices has it", objects: []fixture{
			{at + "a", webhook(`[]`)},
			{at + "b", webhook(`[{conditions: {ready: false}}, {conditions: {ready: true, ` +
				`terminating: false}}]`)},
		}},
		{name: "no service", want: "service metallb-system/metallb-webhook-service does not exist yet"},
		{name: "no slice", objects: []fixture{service},
			want: "service metallb-system/metallb-webhook-service: no endpoints yet"},
		{
			name: "a slice that goes", want: "service metallb-system/metallb-webhook-service: no " +
				"endpoints yet",
			objects: []fixture{service, {at + "a", strings.Replace(webhook(`[{conditions: {ready: true}}]`),
				"metadata: {", "metadata: {deletionTimestamp: '2026-01-01T00:00:00Z', ", 1)}},
		},
		{
			name: "an empty slice", objects: []fixture{service, {at + "a", webhook(`[]`)}},
			want: "service metallb-system/metallb-webhook-service: no endpoints yet",
		},
		{
			name: "none ready", objects: []fixture{{at + "a", webhook(`[{conditions: {ready: false}}]`)},
				{at + "b", webhook(`[{conditions: {ready: false}}]`)}},
			want: "service metallb-system/metallb-webhook-service: 0 of 2 endpoints ready",
		},
		{
			name:    "a ready one that terminates",
			objects: []fixture{{at + "a", webhook(`[{conditions: {ready: true, terminating: true}}]`)}},
			want:    "service metallb-system/metallb-webhook-service: 0 of 1 endpoints ready",
		},
		{
			name: "of another service", objects: []fixture{service,
				{at + "a", of("other", `[{conditions: {ready: true}}]`)}},
			want: "service metallb-system/metallb-webhook-service: no endpoints yet",
		},
		{
			name: "of another namespace",
			objects: []fixture{service, {
				"/apis/discovery.k8s.io/v1/namespaces/default/endpointslices/a",
				webhook(`[{conditions: {ready: true}}]`),
			}},
			want: "service metallb-system/metallb-webhook-service: no endpoints yet",
		},
	}
	for i := range trials {
		trials[i].arguments = arguments
	}
	runTrials(t, "endpoint_slice", trials)
}
