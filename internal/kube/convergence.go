package kube

import (
	"context"
	"slices"
	"strings"
	"time"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"github.com/ephemeral-castle/castle/internal/foreign"
	"github.com/ephemeral-castle/castle/internal/gate"
	"github.com/ephemeral-castle/castle/internal/kube/client"
	"github.com/ephemeral-castle/castle/internal/kube/gates"
)

// FluxStep is a Kustomization or HelmRelease in the order in which Flux's objects became ready. Its JSON is
// stable for scripts (docs/graph.md).
type FluxStep struct {
	Name      string   `json:"name"`       // kustomization flux-system/apps
	AppliedBy string   `json:"applied_by"` // the Kustomization that declares it; empty: none
	DependsOn []string `json:"depends_on"`
	// Waits tells that it is ready only when its objects are.
	Waits   bool       `json:"waits"`
	Created time.Time  `json:"created"`
	Ready   *time.Time `json:"ready"` // since; null while it is not
	// Seconds is the time from the last of what it waits for, or its creation, until it was ready. It is null
	// if it is not ready, or was ready before.
	Seconds  *float64 `json:"seconds"`
	Reason   string   `json:"reason,omitempty"` // why it is not ready
	Critical bool     `json:"critical"`         // on the chain that made the convergence long
}

// Convergence reads Flux's objects in the order in which they became ready, those that are not ready last.
func Convergence(ctx context.Context, target gate.Target) (steps []*FluxStep, err error) {
	err = client.Retry(ctx, target, func(ctx context.Context, a *client.API) error {
		objects, err := (&gates.Flux{}).Objects(ctx, a)
		steps = nil
		for _, o := range objects {
			steps = append(steps, fluxStepOf(o))
		}
		return err
	})
	slices.SortFunc(steps, func(a, b *FluxStep) int {
		switch {
		case a.Ready != nil && b.Ready != nil && !a.Ready.Equal(*b.Ready):
			return a.Ready.Compare(*b.Ready)
		case (a.Ready == nil) != (b.Ready == nil):
			if a.Ready == nil {
				return 1
			}
			return -1
		}
		return strings.Compare(a.Name, b.Name)
	})
	measure(steps)
	return steps, err
}

func fluxStepOf(o *gates.FluxObject) *FluxStep {
	s := &FluxStep{Name: foreign.Text(client.Title(o.Object)), DependsOn: []string{},
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
func measure(steps []*FluxStep) {
	byName := map[string]*FluxStep{}
	for _, s := range steps {
		byName[s.Name] = s
	}
	// What a step came after, before it was applied and before it was ready.
	applied, before := map[*FluxStep]*FluxStep{}, map[*FluxStep]*FluxStep{}
	var last *FluxStep
	for _, s := range steps {
		if s.Ready == nil {
			continue
		}
		start := s.Created
		applied[s] = byName[s.AppliedBy]
		after := func(other *FluxStep, in map[*FluxStep]*FluxStep) {
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
