package kube

import (
	"cmp"
	"context"
	"fmt"
	"slices"
	"strings"
	"text/tabwriter"
	"time"

	corev1 "k8s.io/api/core/v1"
)

// happening is one event of the cluster's, as it matters here.
type happening struct {
	at                    time.Time
	warning               bool
	kind, name            string // of the object that it is about
	reason, message, from string
	times                 int32
}

// events reads the events of a namespace (all where it is empty), the newest
// last, and keeps them. A namespace is read once.
func (q *inquiry) events(ctx context.Context, namespace string) []happening {
	if known, ok := q.heard[namespace]; ok {
		return known
	}
	items, err := q.a.list(ctx, corev1.SchemeGroupVersion.WithResource("events"), namespace, "")
	if err != nil {
		q.miss("events"+in(namespace), err)
	}
	var all []happening
	for _, item := range items {
		e, err := as[corev1.Event](item)
		if err != nil {
			continue // an event that cannot be read explains nothing
		}
		all = append(all, happening{
			at: when(e), warning: e.Type == corev1.EventTypeWarning,
			kind: e.InvolvedObject.Kind, name: e.InvolvedObject.Name,
			reason: e.Reason, message: strings.TrimSpace(e.Message),
			from:  cmp.Or(e.Source.Component, e.ReportingController),
			times: max(e.Count, 1),
		})
	}
	slices.SortStableFunc(all, func(a, b happening) int { return a.at.Compare(b.at) })
	q.heard[namespace] = all
	q.keep("events/"+cmp.Or(namespace, "all")+".txt", written(all))
	return all
}

// when an event happened last; its creator may have filled in any of these.
func when(e corev1.Event) time.Time {
	at := e.CreationTimestamp.Time
	for _, later := range []time.Time{e.FirstTimestamp.Time, e.EventTime.Time, e.LastTimestamp.Time} {
		if later.After(at) {
			at = later
		}
	}
	if e.Series != nil && e.Series.LastObservedTime.After(at) {
		at = e.Series.LastObservedTime.Time
	}
	return at
}

func written(events []happening) []byte {
	var b strings.Builder
	t := tabwriter.NewWriter(&b, 0, 0, 2, ' ', 0)
	for _, e := range events {
		kind := "normal"
		if e.warning {
			kind = "warning"
		}
		fmt.Fprintf(t, "%s\t%s\t%dx\t%s\t%s/%s\t%s\n", e.at.UTC().Format(time.RFC3339), kind, e.times,
			e.reason, strings.ToLower(e.kind), e.name, strings.Join(strings.Fields(e.message), " "))
	}
	t.Flush() //nolint:errcheck // a Builder takes everything
	return []byte(b.String())
}

// about picks the warnings about one object, the newest first.
func about(events []happening, kind, name string) []happening {
	var found []happening
	for _, e := range slices.Backward(events) {
		if e.warning && e.kind == kind && e.name == name {
			found = append(found, e)
		}
	}
	return found
}
