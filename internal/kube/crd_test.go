package kube

import (
	"encoding/base64"
	"testing"
	"time"

	"github.com/zclconf/go-cty/cty"
)

func TestCRD(t *testing.T) {
	const (
		definitions = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions/"
		pools       = definitions + "ipaddresspools.metallb.io"
		accepted    = `{type: NamesAccepted, status: "True"}`
		established = `{type: Established, status: "True"}`
		spec        = `group: metallb.io, names: {kind: IPAddressPool}, versions: [{name: v1beta1, ` +
			`served: true}, {name: v1beta2, served: true}, {name: v1alpha1, served: false}]`
	)
	definition := func(spec, conditions string) string {
		return "{kind: CustomResourceDefinition, spec: {" + spec + "}, status: {conditions: [" + conditions +
			"]}}"
	}
	good := fixture{pools, definition(spec, accepted+","+established)}
	converts := func(client string) fixture {
		return fixture{pools, definition(
			spec+", conversion: {strategy: Webhook, webhook: {clientConfig: {"+client+"}}}",
			accepted+","+established)}
	}
	encoded := func(certificate []byte) string { return base64.StdEncoding.EncodeToString(certificate) }
	serves := []kind{{"metallb.io/v1beta1", "IPAddressPool", "ipaddresspools", true}}
	asks := map[string]cty.Value{"names": cty.ListVal([]cty.Value{str("ipaddresspools.metallb.io")})}
	version := func(v string) map[string]cty.Value {
		return map[string]cty.Value{"names": asks["names"], "version": str(v)}
	}
	what := "customresourcedefinition ipaddresspools.metallb.io: "
	runTrials(t, "crd", []trial{
		{name: "served", arguments: asks, serves: serves, objects: []fixture{good}},
		{name: "served in the version", arguments: version("v1beta1"), serves: serves,
			objects: []fixture{good}},
		{name: "missing", arguments: asks,
			want: "customresourcedefinition ipaddresspools.metallb.io does not exist yet"},
		{
			name: "one of two missing", serves: serves, objects: []fixture{good},
			arguments: map[string]cty.Value{"names": cty.ListVal([]cty.Value{str("ipaddresspools.metallb.io"),
				str("bgppeers.metallb.io")})},
			want: "customresourcedefinition bgppeers.metallb.io does not exist yet",
		},
		{name: "nobody has looked at it", arguments: asks, objects: []fixture{{pools, definition(spec, "")}},
			want: what + "has no condition NamesAccepted yet"},
		{
			name: "its names are taken", arguments: asks,
			objects: []fixture{{pools, definition(spec,
				`{type: NamesAccepted, status: "False", reason: KindConflict, `+
					`message: '"IPAddressPool" is already in use'}`)}},
			want: what + `NamesAccepted is False: KindConflict: "IPAddressPool" is already in use`,
		},
		{
			name: "not established", arguments: asks,
			objects: []fixture{{pools, definition(spec,
				accepted+`, {type: Established, status: "False", reason: Installing, `+
					`message: the initial names have been accepted}`)}},
			want: what + "Established is False: Installing: the initial names have been accepted",
		},
		{
			name: "being deleted", arguments: asks,
			objects: []fixture{{pools, `{kind: CustomResourceDefinition, ` +
				`metadata: {deletionTimestamp: "2026-01-01T00:00:00Z"}}`}},
			want: what + "is being deleted",
		},
		{name: "another version", arguments: version("v1"), serves: serves, objects: []fixture{good},
			want: what +
				"serves v1beta1, v1beta2, not v1"},
		{name: "a version that is only stored", arguments: version("v1alpha1"), serves: serves,
			objects: []fixture{good}, want: what + "serves v1beta1, v1beta2, not v1alpha1"},
		{name: "established, but not served yet", arguments: asks, objects: []fixture{good}, want: what +
			"the API serves no kind IPAddressPool in metallb.io/v1beta1 yet"},
		{name: "the version established, but not served yet", arguments: version("v1beta2"), serves: serves,
			objects: []fixture{good}, want: what +
				"the API serves no kind IPAddressPool in metallb.io/v1beta2 yet"},
		{name: "converts with an authority", arguments: asks, serves: serves,
			objects: []fixture{converts("caBundle: " + encoded(authority(t)))}},
		{name: "converts at an address of its own", arguments: asks, serves: serves,
			objects: []fixture{converts("url: 'https://conversion.example.org'")}},
		{name: "converts without an authority", arguments: asks, serves: serves,
			objects: []fixture{converts("")},
			want: what + "its conversion webhook has no caBundle: certificate controller has not injected " +
				"the CA yet"},
		{name: "converts with what is no authority", arguments: asks, serves: serves,
			objects: []fixture{converts("caBundle: Cg==")}, want: what +
				"its conversion webhook has a caBundle that holds no certificate"},
		{
			name: "converts with one that has expired", arguments: asks, serves: serves,
			objects: []fixture{converts("caBundle: " +
				encoded(authorityUntil(t, time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC))))},
			want: what + "its conversion webhook has a caBundle whose CA has expired: on 2026-01-02 " +
				"03:04:05 UTC",
		},
	})
}

func TestCRDTakesDefinitionsNames(t *testing.T) {
	valid := gateType(t, "crd").Attributes["names"].Valid
	for _, bad := range []cty.Value{cty.ListValEmpty(cty.String),
		cty.ListVal([]cty.Value{str("IPAddressPool")}),
		cty.ListVal([]cty.Value{str("a.b/../c.d")}), cty.ListVal([]cty.Value{cty.NullVal(cty.String)})} {
		if valid(bad) == nil {
			t.Errorf("%#v is accepted", bad)
		}
	}
}
