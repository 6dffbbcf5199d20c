package kube

import (
	"maps"
	"slices"
	"strings"
	"testing"

	"github.com/zclconf/go-cty/cty"

	"github.com/ephemeral-castle/castle/internal/gate"
)

// diagnosed is a closed gate in a cluster, with the expected diagnosis.
type diagnosed struct {
	name      string
	serves    []kind
	objects   []fixture
	answers   map[string]answer
	arguments map[string]cty.Value
	cause     string   // the whole sentence, with HOST for the API's address
	look      string   // empty: not asked for
	release   string   // namespace/name
	files     []string // that have to be there
	holds     map[string]string
}

// everyCluster lists the kinds that a diagnosis reads for every gate.
func everyCluster() []kind {
	return []kind{
		{"v1", "Secret", "secrets", true}, {"v1", "Pod", "pods", true}, {"v1", "Event", "events", true},
		{"v1", "Service", "services", true}, {"v1", "Namespace", "namespaces", false},
	}
}

func runDiagnoses(t *testing.T, kindOfGate string, arguments map[string]cty.Value, cases []diagnosed) {
	t.Helper()
	for _, tt := range cases {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			f := newFakeAPI(t)
			f.kinds = append(everyCluster(), tt.serves...)
			for _, p := range tt.objects {
				f.add(t, p.at, p.object)
			}
			for at, a := range tt.answers {
				f.answer(at, a.code, a.body)
			}
			if tt.arguments == nil {
				tt.arguments = arguments
			}
			d := newGate(t, kindOfGate, f.kubeconfig(), tt.arguments).Diagnose(t.Context(), nil)
			tt.verify(t, f, d)
		})
	}
}

func (tt diagnosed) verify(t *testing.T, f *fakeAPI, d gate.Diagnosis) {
	t.Helper()
	if got := strings.ReplaceAll(d.Cause, f.Listener.Addr().String(), "HOST"); got != tt.cause {
		t.Errorf("cause:\n got %q\nwant %q", got, tt.cause)
	}
	if tt.look != "" && d.Look != tt.look {
		t.Errorf("look: got %q, want %q", d.Look, tt.look)
	}
	if d.Release != tt.release {
		t.Errorf("release: got %q, want %q", d.Release, tt.release)
	}
	for _, name := range tt.files {
		if d.Files[name] == nil {
			t.Errorf("there is no file %s, only %s", name, slices.Sorted(maps.Keys(d.Files)))
		}
	}
	for name, part := range tt.holds {
		if !strings.Contains(string(d.Files[name]), part) {
			t.Errorf("%s does not say %q:\n%s", name, part, d.Files[name])
		}
	}
}

// eventOn returns an event about an object.
func eventOn(namespace, kind, name, reason, message string) fixture {
	return fixture{
		"/api/v1/namespaces/" + namespace + "/events/" + name + "." + strings.ToLower(reason),
		"{kind: Event, type: Warning, reason: " + reason + ", message: '" +
			strings.ReplaceAll(message, "'", "''") + "', count: 3, " +
			"lastTimestamp: '2026-01-02T03:04:05Z', involvedObject: {kind: " + kind + ", namespace: " +
			namespace + ", name: " + name + "}}",
	}
}
