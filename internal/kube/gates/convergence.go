package gates

import (
	"cmp"
	"context"
	"slices"
	"strings"
	"time"

	"github.com/siderolabs/gen/xslices"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"github.com/ephemeral-castle/castle/internal/event"
	"github.com/ephemeral-castle/castle/internal/foreign"
	"github.com/ephemeral-castle/castle/internal/gate"
	"github.com/ephemeral-castle/castle/internal/kube/client"
)

// Convergence reads all of Flux's objects in the order in which they became ready, and then the others.
func Convergence(ctx context.Context, a *client.API) ([]event.FluxStep, error) {
	objects, err := (&Flux{}).Objects(ctx, a)
	steps := xslices.Map(objects, fluxStepOf)
	never := time.Now().AddDate(1, 0, 0) // the cluster's clock may be ahead
	slices.SortFunc(steps, func(a, b *event.FluxStep) int {
		return cmp.Or(cmp.Or(a.Ready, &never).Compare(*cmp.Or(b.Ready, &never)),
			strings.Compare(a.Name, b.Name))
	})
	measure(steps)
	return xslices.Map(steps, func(s *event.FluxStep) event.FluxStep { return *s }), err
}

func fluxStepOf(o *FluxObject) *event.FluxStep {
	s := &event.FluxStep{Name: foreign.Text(client.Title(o.Object)), DependsOn: []string{},
		Created: o.Object.GetCreationTimestamp().Time}
	labels := o.Object.GetLabels()
	if by := labels["kustomize.toolkit.fluxcd.io/name"]; by != "" {
		s.AppliedBy = foreign.Text(client.Titled("Kustomization",
			labels["kustomize.toolkit.fluxcd.io/namespace"], by))
	}
	for _, need := range o.Needs {
		if need != nil {
			s.DependsOn = append(s.DependsOn, foreign.Text(client.Title(need.Object)))
		}
	}
	//nolint:errcheck // what has another type checks nothing
	checks, _, _ := unstructured.NestedSlice(o.Object.Object, "spec", "healthChecks")
	s.Waits = client.True(o.Object, "spec", "wait") || len(checks) > 0 ||
		o.Object.GetKind() == "HelmRelease" && !client.True(o.Object, "spec", "install", "disableWait")
	for _, finding := range []*gate.Finding{o.Source.Finding, o.Finding} {
		if finding != nil {
			s.Reason = foreign.Text(finding.Error())
			return s
		}
	}
	ready, _ := client.ConditionOf(o.Object, "Ready")
	if since, err := time.Parse(time.RFC3339, ready.Since); err == nil {
		s.Ready = &since
	}
	return s
}

// measure sets the seconds of each step, and marks the chain of the one that was ready last.
func measure(steps []*event.FluxStep) {
	byName := xslices.ToMap(steps, func(s *event.FluxStep) (string, *event.FluxStep) { return s.Name, s })
	// What a step came after, before it was applied and before it was ready.
	applied, before := map[*event.FluxStep]*event.FluxStep{}, map[*event.FluxStep]*event.FluxStep{}
	var last *event.FluxStep
	for _, s := range steps {
		if s.Ready == nil {
			continue
		}
		start := s.Created
		applied[s] = byName[s.AppliedBy]
		after := func(other *event.FluxStep, in map[*event.FluxStep]*event.FluxStep) {
			if other.Ready != nil && !other.Ready.Before(start) {
				start, in[s] = *other.Ready, other
			}
		}
		for _, other := range steps {
			if slices.Contains(s.DependsOn, other.Name) {
				after(other, applied)
			}
		}
		before[s] = applied[s]
		for _, other := range steps {
			if s.Waits && other.AppliedBy == s.Name {
				after(other, before)
			}
		}
		if took := s.Ready.Sub(start).Seconds(); took >= 0 {
			s.Seconds = &took
		}
		last = s // in the order of time
	}
	for last != nil && !last.Critical {
		last.Critical = true
		next := before[last]
		if next != nil && next.Critical { // the one that declares it, and has waited for it
			next = applied[next]
		}
		last = next
	}
}
