package gates_test

import (
	"context"
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/zclconf/go-cty/cty"
	"github.com/zclconf/go-cty/cty/convert"

	"github.com/ephemeral-castle/castle/internal/gate"
	"github.com/ephemeral-castle/castle/internal/kube"
)

// args are a gate's arguments, as its block gives them.
type args = map[string]cty.Value

func text(s string) cty.Value { return cty.StringVal(s) }

func number(n int64) cty.Value { return cty.NumberIntVal(n) }

func texts(list ...string) cty.Value {
	var all []cty.Value
	for _, s := range list {
		all = append(all, text(s))
	}
	return cty.ListVal(all)
}

// gate returns a gate of any type that Kubernetes can answer. It validates the arguments as castle
// validates the configuration.
func (p *plane) gate(t testing.TB, name string, arguments args) gate.Gate {
	t.Helper()
	for _, kind := range kube.GateTypes() {
		if kind.Name != name {
			continue
		}
		g, err := kind.New(name+".test", gate.Target{Kubeconfig: p.cluster.Kubeconfig},
			values(t, kind, arguments))
		check(t, err)
		return g
	}
	t.Fatalf("there is no gate type %s", name)
	return gate.Gate{}
}

func values(t testing.TB, kind gate.Type, arguments args) gate.Values {
	t.Helper()
	checked := gate.Values{}
	for name, x := range arguments {
		attribute, known := kind.Attributes[name]
		if !known {
			t.Fatalf("gate %s takes no %s", kind.Name, name)
		}
		x, err := convert.Convert(x, attribute.Type)
		check(t, err)
		if attribute.Valid != nil {
			check(t, attribute.Valid(x))
		}
		checked[name] = x
	}
	for name, attribute := range kind.Attributes {
		if attribute.Required && !checked.Has(name) {
			t.Fatalf("gate %s needs %s", kind.Name, name)
		}
	}
	if kind.Check != nil {
		check(t, kind.Check(checked))
	}
	return checked
}

// closed checks the gate once and expects this error.
func closed(t testing.TB, g gate.Gate, want string) {
	t.Helper()
	err := g.Check(t.Context())
	if err == nil || err.Error() != want {
		t.Fatalf("gate %s:\n got %v\nwant %s", g.Name, err, want)
	}
	if gate.IsPermanent(err) {
		t.Fatalf("gate %s: a person would not wait for this: %v", g.Name, err)
	}
}

// hopeless checks the gate once and expects this error to end the wait.
func hopeless(t testing.TB, g gate.Gate, want string) {
	t.Helper()
	err := g.Check(t.Context())
	if err == nil || err.Error() != want {
		t.Fatalf("gate %s:\n got %v\nwant %s", g.Name, err, want)
	}
	if !gate.IsPermanent(err) {
		t.Fatalf("gate %s waits for what cannot heal: %v", g.Name, err)
	}
}

// open checks once that the gate is open.
func open(t testing.TB, g gate.Gate) {
	t.Helper()
	if err := g.Check(t.Context()); err != nil {
		t.Fatalf("gate %s: %v", g.Name, err)
	}
}

// soon returns a policy with a short interval. Only a failing test reaches the timeout.
func soon() gate.Policy {
	return gate.Policy{Timeout: time.Minute, First: 20 * time.Millisecond, Most: 100 * time.Millisecond}
}

// opens waits until the control plane's own controllers have caught up and the gate opens.
func opens(t testing.TB, g gate.Gate) {
	t.Helper()
	check(t, gate.Wait(t.Context(), g, soon(), gate.Listener{}))
}

// becomes waits until the gate gives this answer, which may be one that it
// only gives for a while.
func becomes(t testing.TB, g gate.Gate, want string) {
	t.Helper()
	awaits(t, g, want, func(answer string) bool { return answer == want })
}

// becomesLike waits until the gate's answer has these parts, in their order.
func becomesLike(t testing.TB, g gate.Gate, parts ...string) {
	t.Helper()
	awaits(t, g, strings.Join(parts, "…"), func(answer string) bool {
		for _, part := range parts {
			_, rest, found := strings.Cut(answer, part)
			if !found {
				return false
			}
			answer = rest
		}
		return true
	})
}

func awaits(t testing.TB, g gate.Gate, want string, like func(answer string) bool) {
	t.Helper()
	err := gate.Wait(t.Context(),
		gate.Gate{Name: g.Name, Changed: g.Changed, Check: func(ctx context.Context) error {
			switch err := g.Check(ctx); {
			case err == nil:
				return errors.New("open")
			case like(err.Error()) && !gate.IsPermanent(err):
				return nil
			default:
				return err
			}
		}}, soon(), gate.Listener{})
	if err != nil {
		t.Fatalf("%v\nwant %s", err, want)
	}
}

// ends waits until the gate gives up with this answer.
func ends(t testing.TB, g gate.Gate, want string) {
	t.Helper()
	err := gate.Wait(t.Context(), g, soon(), gate.Listener{})
	if !gate.IsPermanent(err) || err.Error() != "gate "+g.Name+": "+want {
		t.Fatalf("gate %s:\n got %v\nwant %s", g.Name, err, want)
	}
}
