package gates_test

import (
	"encoding/base64"
	"testing"
)

const gauges = `
apiVersion: apiextensions.k8s.io/v1
kind: CustomResourceDefinition
metadata: {name: gauges.crd.example.org}
spec:
  group: crd.example.org
  names: {kind: Gauge, plural: gauges, singular: gauge}
  scope: Cluster
  versions: [{name: v1, served: true, storage: true, schema: {openAPIV3Schema: {type: object}}}]
`

func TestCRDOpensOnceTheKindIsServed(t *testing.T) {
	p := control(t)
	g := p.gate(t, "crd", args{"names": texts("gauges.crd.example.org"), "version": text("v1")})
	closed(t, g, "customresourcedefinition gauges.crd.example.org does not exist yet")
	p.create(t, "", gauges)
	opens(t, g)
	p.create(t, "", `{apiVersion: crd.example.org/v1, kind: Gauge, metadata: {name: proof}}`)
	closed(t, p.gate(t, "crd", args{"names": texts("gauges.crd.example.org"), "version": text("v2")}),
		"customresourcedefinition gauges.crd.example.org: serves v1, not v2")
}

func TestCRDIsClosedWhileAnotherHasItsKind(t *testing.T) {
	p := control(t)
	p.create(t, "", gauges)
	opens(t, p.gate(t, "crd", args{"names": texts("gauges.crd.example.org")}))
	p.create(t, "", `
apiVersion: apiextensions.k8s.io/v1
kind: CustomResourceDefinition
metadata: {name: meters.crd.example.org}
spec:
  group: crd.example.org
  names: {kind: Gauge, plural: meters, singular: meter}
  scope: Cluster
  versions: [{name: v1, served: true, storage: true, schema: {openAPIV3Schema: {type: object}}}]
`)
	becomes(t, p.gate(t, "crd", args{"names": texts("meters.crd.example.org")}),
		`customresourcedefinition meters.crd.example.org: NamesAccepted is False: ListKindConflict: `+
			`"GaugeList" is already in use`)
}

func TestCRDWaitsForTheAuthorityOfItsConversion(t *testing.T) {
	p := control(t)
	p.create(t, "", `
apiVersion: apiextensions.k8s.io/v1
kind: CustomResourceDefinition
metadata: {name: levels.crd.example.org}
spec:
  group: crd.example.org
  names: {kind: Level, plural: levels, singular: level}
  scope: Cluster
  conversion:
    strategy: Webhook
    webhook: {conversionReviewVersions: [v1], clientConfig: {service: {namespace: default, name: converter}}}
  versions:
  - {name: v1, served: true, storage: true, schema: {openAPIV3Schema: {type: object}}}
  - {name: v1beta1, served: true, storage: false, schema: {openAPIV3Schema: {type: object}}}
`)
	g := p.gate(t, "crd", args{"names": texts("levels.crd.example.org")})
	becomes(t, g, "customresourcedefinition levels.crd.example.org: its conversion webhook has no "+
		"caBundle: certificate controller has not injected the CA yet")
	authority, err := newAuthority("converter")
	check(t, err)
	p.change(t, "", `
apiVersion: apiextensions.k8s.io/v1
kind: CustomResourceDefinition
metadata: {name: levels.crd.example.org}
spec: {conversion: {webhook: {clientConfig: {caBundle: `+
		base64.StdEncoding.EncodeToString(authority.Certificate)+`}}}}
`)
	opens(t, g)
}
