package kube

import (
	"encoding/base64"
	"fmt"
	"strings"
	"testing"

	"github.com/zclconf/go-cty/cty"
	"github.com/zclconf/go-cty/cty/convert"

	"github.com/ephemeral-castle/castle/internal/gate"
)

// fixture is an object at its path.
type fixture struct{ at, object string }

// trial is one attempt of a gate, with its expected answer.
type trial struct {
	name      string
	serves    []kind
	objects   []fixture
	answers   map[string]answer
	arguments map[string]cty.Value
	want      string // the whole answer, with HOST for the API's address; empty for an open gate
	permanent bool
}

func runTrials(t *testing.T, kindOfGate string, trials []trial) {
	t.Helper()
	for _, tt := range trials {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			f := newFakeAPI(t)
			f.kinds = tt.serves
			for _, p := range tt.objects {
				f.add(t, p.at, p.object)
			}
			for at, a := range tt.answers {
				f.answer(at, a.code, a.body)
			}
			g := newGate(t, kindOfGate, f.kubeconfig(), tt.arguments)
			expect(t, f, g.Check(t.Context()), tt.want, tt.permanent)
		})
	}
}

func expect(t *testing.T, f *fakeAPI, err error, want string, permanent bool) {
	t.Helper()
	got := ""
	if err != nil {
		got = err.Error()
	}
	if f != nil {
		got = strings.ReplaceAll(got, f.Listener.Addr().String(), "HOST")
	}
	if got != want {
		t.Errorf("answer:\n got %q\nwant %q", got, want)
	}
	if gate.IsPermanent(err) != permanent {
		t.Errorf("permanent is %v, want %v (%v)", !permanent, permanent, err)
	}
}

// newGate makes a gate from arguments as a stage's file would give them.
func newGate(t *testing.T, name string, kubeconfig []byte, arguments map[string]cty.Value) gate.Gate {
	t.Helper()
	kind := gateType(t, name)
	values := gate.Values{}
	for argument, x := range arguments {
		attribute, known := kind.Attributes[argument]
		if !known {
			t.Fatalf("gate %s takes no %s", name, argument)
		}
		x, err := convert.Convert(x, attribute.Type)
		if err != nil {
			t.Fatalf("%s: %v", argument, err)
		}
		if attribute.Valid != nil {
			if err := attribute.Valid(x); err != nil {
				t.Fatalf("%s: %v", argument, err)
			}
		}
		values[argument] = x
	}
	for argument, attribute := range kind.Attributes {
		if attribute.Required && !values.Has(argument) {
			t.Fatalf("gate %s needs %s", name, argument)
		}
	}
	g, err := kind.New(name+".test", gate.Target{Kubeconfig: kubeconfig}, values)
	if err != nil {
		t.Fatal(err)
	}
	return g
}

func gateType(t *testing.T, name string) gate.Type {
	t.Helper()
	for _, kind := range GateTypes() {
		if kind.Name == name {
			return kind
		}
	}
	t.Fatalf("there is no gate type %s", name)
	return gate.Type{}
}

// kubeconfig leads to the fake, with its own certificate as the authority.
func (f *fakeAPI) kubeconfig() []byte {
	return kubeconfig(f.URL, token, authorityOf(f))
}

func kubeconfig(server, token string, authority []byte) []byte {
	return fmt.Appendf(nil, `apiVersion: v1
kind: Config
current-context: blue
clusters:
- name: blue
  cluster: {server: %q, certificate-authority-data: %s}
contexts:
- name: blue
  context: {cluster: blue, user: admin}
users:
- name: admin
  user: {token: %s}
`, server, base64.StdEncoding.EncodeToString(authority), token)
}

func str(s string) cty.Value { return cty.StringVal(s) }

func num(n int64) cty.Value { return cty.NumberIntVal(n) }

func TestEveryGateTypeIsDocumented(t *testing.T) {
	seen := map[string]bool{}
	for _, kind := range GateTypes() {
		if seen[kind.Name] {
			t.Errorf("two gate types are called %s", kind.Name)
		}
		seen[kind.Name] = true
		if kind.Summary == "" || !kind.Kubernetes {
			t.Errorf("gate %s has no summary, or no edge to the platform whose kubeconfig it reads",
				kind.Name)
		}
		for name, attribute := range kind.Attributes {
			if attribute.Help == "" {
				t.Errorf("gate %s: %s has no help", kind.Name, name)
			}
		}
	}
}
