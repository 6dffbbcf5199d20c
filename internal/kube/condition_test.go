package kube

import (
	"maps"
	"strings"
	"testing"

	"github.com/zclconf/go-cty/cty"

	"github.com/ephemeral-castle/castle/internal/gate"
)

func TestCondition(t *testing.T) {
	store := kind{"external-secrets.io/v1", "ClusterSecretStore", "clustersecretstores", false}
	secret := kind{"external-secrets.io/v1", "ExternalSecret", "externalsecrets", true}
	at := "/apis/external-secrets.io/v1/clustersecretstores/"
	secrets := "/apis/external-secrets.io/v1/namespaces/default/externalsecrets/"
	is := func(kind, ready string) string {
		return "{kind: " + kind + ", metadata: {generation: 1}, status: {conditions: [" + ready + "]}}"
	}
	stored := func(ready string) string { return is("ClusterSecretStore", ready) }
	good := `{type: Ready, status: "True", reason: Valid, message: store validated}`
	bad := `{type: Ready, status: "False", reason: InvalidProviderConfig, ` +
		`message: "unable to log in:\n  no such host"}`
	infisical := map[string]cty.Value{"kind": str("ClusterSecretStore"), "name": str("infisical"),
		"api_version": str("external-secrets.io/v1")}
	all := map[string]cty.Value{"kind": str("ClusterSecretStore")}
	crd := []kind{store, secret}
	runTrials(t, "condition", []trial{
		{
			name:      "a kind that Kubernetes does not have",
			serves:    []kind{{"apps/v1", "Deployment", "deployments", true}},
			arguments: map[string]cty.Value{"kind": str("Deploiment"), "api_version": str("apps/v1")},
			want:      "apps/v1 has no kind Deploiment", permanent: true,
		},
		{name: "true", serves: crd, arguments: infisical,
			objects: []fixture{{at + "infisical", stored(good)}}},
		{name: "kind found without its version", serves: crd, arguments: all,
			objects: []fixture{{at + "infisical", stored(good)}}},
		{
			name: "false", serves: crd, arguments: infisical,
			objects: []fixture{{at + "infisical", stored(bad)}},
			want: "clustersecretstore infisical: Ready is False: InvalidProviderConfig: unable to log in: " +
				"no such host",
		},
		{
			name: "all of a kind, one false", serves: crd, arguments: all,
			objects: []fixture{{at + "infisical", stored(good)}, {at + "vault", stored(bad)}},
			want: "clustersecretstore vault: Ready is False: InvalidProviderConfig: unable to log in: no " +
				"such host",
		},
		{name: "no group", arguments: infisical,
			want: "the API serves no kind ClusterSecretStore in external-secrets.io/v1 yet"},
		{name: "no kind in the group", serves: []kind{secret}, arguments: infisical,
			want: "the API serves no kind ClusterSecretStore in external-secrets.io/v1 yet"},
		{name: "no kind anywhere", serves: []kind{secret}, arguments: all,
			want: "the API serves no kind ClusterSecretStore yet"},
		{name: "no object", serves: crd, arguments: infisical,
			want: "clustersecretstore infisical does not exist yet"},
		{name: "no object of the kind", serves: crd, arguments: all,
			want: "no ClusterSecretStore exists yet"},
		{
			name: "no conditions", serves: crd, arguments: infisical,
			objects: []fixture{{at + "infisical", `{kind: ClusterSecretStore}`}},
			want:    "clustersecretstore infisical: has no condition Ready yet",
		},
		{
			name: "generation not observed", serves: crd, arguments: infisical,
			objects: []fixture{{at + "infisical",
				`{kind: ClusterSecretStore, metadata: {generation: 2}, status: {observedGeneration: 1, ` +
					`conditions: [` + good + `]}}`}},
			want: "clustersecretstore infisical: Ready is True of an older generation",
		},
		{
			name: "generation not observed by the condition", serves: crd, arguments: infisical,
			objects: []fixture{{at + "infisical",
				`{kind: ClusterSecretStore, metadata: {generation: 2}, ` +
					`status: {conditions: [{type: Ready, status: "True", observedGeneration: 1}]}}`}},
			want: "clustersecretstore infisical: Ready is True of an older generation",
		},
		{
			name: "being deleted", serves: crd, arguments: infisical,
			objects: []fixture{{at + "infisical",
				`{kind: ClusterSecretStore, metadata: {deletionTimestamp: "2026-01-01T00:00:00Z"}, ` +
					`status: {conditions: [` + good + `]}}`}},
			want: "clustersecretstore infisical: is being deleted",
		},
		{
			name: "another type and status", serves: crd,
			arguments: map[string]cty.Value{"kind": str("ClusterSecretStore"), "type": str("Degraded"),
				"status": str("False")},
			objects: []fixture{{at + "infisical", stored(`{type: Degraded, status: "False"}`)}},
		},
		{
			name: "selected by label", serves: crd,
			arguments: map[string]cty.Value{"kind": str("ExternalSecret"), "selector": str("castle=wait")},
			objects: []fixture{
				{secrets + "one", `{kind: ExternalSecret, metadata: {labels: {castle: wait}}, ` +
					`status: {conditions: [` + good + `]}}`},
				{secrets + "two", is("ExternalSecret", bad)},
			},
		},
		{
			name: "nothing selected", serves: crd,
			arguments: map[string]cty.Value{"kind": str("ExternalSecret"), "selector": str("castle=wait"),
				"namespace": str("default")},
			objects: []fixture{{secrets + "two", is("ExternalSecret", good)}},
			want:    "no ExternalSecret in namespace default with castle=wait exists yet",
		},
		{
			name: "too few", serves: crd, arguments: with(all, "count", num(3)),
			objects: []fixture{{at + "infisical", stored(good)}, {at + "vault", stored(good)}},
			want:    "2 of 3 ClusterSecretStore exist",
		},
		{name: "enough", serves: crd, arguments: with(all, "count", num(2)),
			objects: []fixture{{at + "infisical", stored(good)}, {at + "vault", stored(good)}}},
		{name: "exists, and that is all", serves: crd, arguments: with(infisical, "exists", cty.True),
			objects: []fixture{{at + "infisical", stored(bad)}}},
		{name: "should exist", serves: crd, arguments: with(infisical, "exists", cty.True),
			want: "clustersecretstore infisical does not exist yet"},
		{
			name: "exists, but not for long", serves: crd, arguments: with(infisical, "exists", cty.True),
			objects: []fixture{{at + "infisical",
				`{kind: ClusterSecretStore, metadata: {deletionTimestamp: "2026-01-01T00:00:00Z"}}`}},
			want: "clustersecretstore infisical: is being deleted",
		},
		{
			name: "ambiguous", arguments: map[string]cty.Value{"kind": str("Cluster"), "name": str("db")},
			serves: []kind{{"postgresql.cnpg.io/v1", "Cluster", "clusters", true},
				{"cluster.x-k8s.io/v1beta1", "Cluster", "clusters", true}},
			want: "kind Cluster is ambiguous; set api_version to one of cluster.x-k8s.io/v1beta1, " +
				"postgresql.cnpg.io/v1", permanent: true,
		},
		{
			name: "namespace left out", serves: crd,
			arguments: map[string]cty.Value{"kind": str("ExternalSecret"), "name": str("one")},
			want:      "ExternalSecret one: the kind is namespaced; set namespace", permanent: true,
		},
		{
			name: "namespace too much", serves: crd,
			arguments: map[string]cty.Value{"kind": str("ClusterSecretStore"), "namespace": str("default")},
			want:      "ClusterSecretStore: the kind is cluster-scoped; leave namespace out", permanent: true,
		},
	})
}

func TestConditionCompares(t *testing.T) {
	engines := []kind{{"longhorn.io/v1beta2", "EngineImage", "engineimages", true}}
	at := "/apis/longhorn.io/v1beta2/namespaces/longhorn-system/engineimages/ei-1"
	asks := func(fields map[string]cty.Value) map[string]cty.Value {
		return map[string]cty.Value{"kind": str("EngineImage"), "namespace": str("longhorn-system"),
			"fields": cty.ObjectVal(fields)}
	}
	deployed := asks(map[string]cty.Value{"status.state": str("deployed")})
	is := func(status string) []fixture {
		return []fixture{{at, "{kind: EngineImage, metadata: {generation: 2}, status: {" + status + "}}"}}
	}
	disks := asks(map[string]cty.Value{"status.diskStatus.*.conditions.Ready.status": str("True")})
	what := "engineimage longhorn-system/ei-1: "
	runTrials(t, "condition", []trial{
		{name: "the value", serves: engines, arguments: deployed, objects: is("state: deployed")},
		{name: "another value", serves: engines, arguments: deployed, objects: is("state: deploying"),
			want: what + "status.state is deploying, not deployed"},
		{name: "an empty value", serves: engines, arguments: deployed, objects: is("state: ''"), want: what +
			`status.state is "", not deployed`},
		{name: "no value", serves: engines, arguments: deployed, objects: is("refCount: 1"), want: what +
			"has no status.state yet"},
		{name: "no status", serves: engines, arguments: deployed,
			objects: []fixture{{at, "{kind: EngineImage}"}},
			want:    what + "has no status.state yet"},
		{name: "a whole object", serves: engines, arguments: deployed, objects: is("state: {is: deployed}"),
			want: what + "status.state is not a single value"},
		{
			name: "values that are no text", serves: engines,
			objects: is("refCount: 3, incompatible: false, nodes: [{ready: true}]"),
			arguments: asks(map[string]cty.Value{"status.refCount": num(3), "status.incompatible": cty.False,
				"status.nodes.0.ready": str("true")}),
		},
		{
			name: "a list that is shorter", serves: engines, objects: is("nodes: [{ready: true}]"),
			arguments: asks(map[string]cty.Value{"status.nodes.1.ready": str("true")}), want: what +
				"has no status.nodes.1.ready yet",
		},
		{
			name: "a condition of each of several", serves: engines, arguments: disks,
			objects: is(`diskStatus: {one: {conditions: [{type: Ready, status: "True"}]}, ` +
				`two: {conditions: [{type: Schedulable, status: "False"}, {type: Ready, status: "True"}]}}`),
		},
		{
			name: "a condition that one of several lacks", serves: engines, arguments: disks,
			objects: is(`diskStatus: {one: {conditions: [{type: Ready, status: "True"}]}, ` +
				`two: {conditions: [{type: Schedulable, status: "True"}]}}`),
			want: what + "has no status.diskStatus.two.conditions.Ready.status yet",
		},
		{
			name: "a condition that is false for one of several", serves: engines, arguments: disks,
			objects: is(`diskStatus: {one: {conditions: [{type: Ready, status: "True"}]}, ` +
				`two: {conditions: [{type: Ready, status: "False"}]}}`),
			want: what + "status.diskStatus.two.conditions.Ready.status is False, not True",
		},
		{
			name: "none where several may be", serves: engines, arguments: disks,
			objects: is("diskStatus: {}"),
			want:    what + "has no status.diskStatus.*.conditions.Ready.status yet",
		},
		{
			name: "every entry of a list", serves: engines,
			objects:   is("nodes: [{ready: true}, {ready: false}]"),
			arguments: asks(map[string]cty.Value{"status.nodes.*.ready": str("true")}), want: what +
				"status.nodes.1.ready is false, not true",
		},
		{
			name: "the value of an older generation", serves: engines, arguments: deployed,
			objects: is("state: deployed, observedGeneration: 1"),
			want:    what + "status.state is deployed of an older generation",
		},
		{
			name: "a condition as well", serves: engines, arguments: with(deployed, "type", str("Ready")),
			objects: is("state: deployed"),
			want:    what + "has no condition Ready yet",
		},
	})
}

// with is the arguments and one more.
func with(arguments map[string]cty.Value, name string, x cty.Value) map[string]cty.Value {
	more := maps.Clone(arguments)
	more[name] = x
	return more
}

func TestConditionRefusesContradictions(t *testing.T) {
	kind := gateType(t, "condition")
	fields := cty.MapVal(map[string]cty.Value{"status.state": str("deployed")})
	for why, values := range map[string]gate.Values{
		"exists and type: ":   {"kind": str("Pod"), "exists": cty.True, "type": str("Ready")},
		"exists and status: ": {"kind": str("Pod"), "exists": cty.True, "status": str("True")},
		"exists and fields: ": {"kind": str("Pod"), "exists": cty.True, "fields": fields},
		"name and count: ":    {"kind": str("Pod"), "name": str("a"), "count": num(2)},
		"fields: ":            {"kind": str("Secret"), "fields": fields},
	} {
		if err := kind.Check(values); err == nil || !strings.HasPrefix(err.Error(), why) {
			t.Errorf("%s%v", why, err)
		}
	}
	if err := kind.Check(gate.Values{"kind": str("Pod"), "exists": cty.False,
		"type": str("Ready")}); err != nil {
		t.Errorf("exists = false asks for something: %v", err)
	}
	for attribute, bad := range map[string][]cty.Value{
		"fields": {cty.MapValEmpty(cty.String),
			cty.MapVal(map[string]cty.Value{"status..state": str("a")}),
			cty.MapVal(map[string]cty.Value{"status.state": cty.NullVal(cty.String)})},
		"status":      {str("true"), str("")},
		"type":        {str(""), str("Is Ready")},
		"api_version": {str("apps/v1/x"), str(""), str("apps/"), str("../v1")},
	} {
		for _, x := range bad {
			if kind.Attributes[attribute].Valid(x) == nil {
				t.Errorf("%s: %#v is accepted", attribute, x)
			}
		}
	}
}

func TestConditionSelectsObjectsInOneWay(t *testing.T) {
	both := gate.Values{"kind": str("Pod"), "name": str("a"), "selector": str("b=c")}
	if err := gateType(t, "condition").Check(both); err == nil {
		t.Error("a name and a selector are accepted together")
	}
	if err := gateType(t, "condition").Attributes["selector"].Valid(str("a in b")); err == nil {
		t.Error("a broken selector is accepted")
	}
	if err := gateType(t, "condition").Attributes["name"].Valid(str("../secrets")); err == nil {
		t.Error("a name that leads to another path is accepted")
	}
}
