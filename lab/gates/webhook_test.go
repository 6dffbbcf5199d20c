package gates_test

import (
	"context"
	"encoding/base64"
	"net/http"
	"testing"
	"time"

	"github.com/zclconf/go-cty/cty"

	"github.com/ephemeral-castle/castle/internal/gate"
)

const guardService = `
apiVersion: v1
kind: Service
metadata: {name: guard, namespace: NAMESPACE}
spec: {selector: {app: guard}, ports: [{name: webhook, port: 443, targetPort: 9443}]}
`

const guardPods = `
apiVersion: apps/v1
kind: Deployment
metadata: {name: guard, namespace: NAMESPACE}
spec:
  selector: {matchLabels: {app: guard}}
  template:
    metadata: {labels: {app: guard}}
    spec: {containers: [{name: c, image: example.org/c}]}
`

// guardConfiguration has two entries of which only the first is ever called.
func guardConfiguration(first, second []byte) string {
	entry := func(name, resource string, bundle []byte) string {
		return `{name: ` + name +
			`.guard.example.org, admissionReviewVersions: [v1], sideEffects: None, failurePolicy: Fail,
			timeoutSeconds: 5,
			clientConfig: {service: {namespace: NAMESPACE, name: guard}, caBundle: "` +
			base64.StdEncoding.EncodeToString(bundle) + `"},
			namespaceSelector: {matchLabels: {kubernetes.io/metadata.name: NAMESPACE}},
			rules: [{operations: [CREATE], apiGroups: [""], apiVersions: [v1], resources: [` +
			resource + `]}]}`
	}
	return `{apiVersion: admissionregistration.k8s.io/v1, kind: ValidatingWebhookConfiguration,
		metadata: {name: guard-NAMESPACE},
		webhooks: [` + entry("configmaps", "configmaps", first) + `, ` +
		entry("limitranges", "limitranges", second) + `]}`
}

func probe(name, rest string) string {
	return `{apiVersion: v1, kind: ConfigMap, metadata: {name: ` + name + `}` + rest + `}`
}

func TestWebhookClimbsTheWholeLadder(t *testing.T) {
	p := control(t)
	ns := p.namespace(t)
	authority, err := newAuthority("guard", "guard."+ns+".svc")
	check(t, err)
	other, err := newAuthority("guard", "guard."+ns+".svc")
	check(t, err)
	g := p.gate(t, "webhook", args{"configuration": text("guard-" + ns), "namespace": text(ns),
		"accepts": text(probe("good", "")), "rejects": text(probe("bad", ""))})
	configuration := "webhook configuration guard-" + ns
	good, bad := "dry run of configmap "+ns+"/good: ", "dry run of configmap "+ns+"/bad: "
	calling := `failed calling webhook "configmaps.guard.example.org": failed to call webhook: `

	closed(t, g, configuration+" does not exist yet")
	p.create(t, ns, guardConfiguration(authority.Certificate, nil))
	closed(t, g, configuration+": limitranges.guard.example.org has no caBundle: certificate controller "+
		"has not injected the CA yet")
	p.change(t, ns, guardConfiguration(other.Certificate, other.Certificate))
	closed(t, g, "service "+ns+"/guard does not exist yet")
	p.create(t, ns, guardService)
	closed(t, g, "service "+ns+"/guard: no endpoints yet")
	p.node(t, "guard")
	p.create(t, ns, guardPods)

	// All objects are readable now, and no process listens.
	becomesLike(t, g, good+calling+`Post "https://guard.`+ns+`.svc:443/?timeout=5s": dial tcp `,
		`:443: connect: connection refused`)
	process := &guard{}
	process.listen(t, p, ns, other)()
	end := process.listen(t, p, ns, authority)
	becomesLike(t, g, good+`failed calling webhook "configmaps.guard.example.org": `,
		"tls: failed to verify certificate: x509: certificate signed by unknown authority")
	p.change(t, ns, guardConfiguration(authority.Certificate, authority.Certificate))
	becomes(t, g, good+calling+"the server could not find the requested resource")
	process.judges(denies(http.StatusInternalServerError, "the cache has not started"))
	becomes(t, g, good+"webhook configmaps.guard.example.org cannot decide yet: the cache has not started")
	process.judges(allows)
	becomes(t, g, bad+"no webhook of guard-"+ns+" denies it")
	process.judges(deniesBad)
	opens(t, g)

	process.judges(denies(http.StatusForbidden, "nothing is good"))
	hopeless(t, g, good+"webhook configmaps.guard.example.org denies it: nothing is good")
	process.judges(deniesBad)
	open(t, g)
	end()
	becomesLike(t, g, good+calling, "connection refused")

	// A dry run leaves nothing behind.
	there := p.gate(t, "condition", args{"kind": text("ConfigMap"), "api_version": text("v1"),
		"namespace": text(ns), "name": text("good"), "exists": cty.True})
	closed(t, there, "configmap "+ns+"/good does not exist yet")
}

// Nothing in the API tells that a process begins to listen. The bound is for a busy machine.
func TestAWebhookThatListensIsSeenSoon(t *testing.T) {
	p := control(t)
	ns := p.namespace(t)
	authority, err := newAuthority("guard", "guard."+ns+".svc")
	check(t, err)
	p.create(t, ns, guardConfiguration(authority.Certificate, authority.Certificate))
	p.create(t, ns, guardService)
	p.node(t, "guard")
	p.create(t, ns, guardPods)
	g := p.gate(t, "webhook", args{"configuration": text("guard-" + ns), "namespace": text(ns),
		"accepts": text(probe("good", ""))})
	becomesLike(t, g, "connection refused")
	process := &guard{}
	process.judges(allows)
	for range 3 {
		refused, opened, attempts := make(chan struct{}), make(chan error), 0
		go func() {
			opened <- gate.Wait(t.Context(), gate.Gate{Name: g.Name, Changed: g.Changed,
				Check: func(ctx context.Context) error {
					err := g.Check(ctx)
					if attempts++; attempts == 8 { // pauses that double are 5 s long by then
						close(refused)
					}
					return err
				}}, gate.Policy{}, gate.Listener{})
		}()
		<-refused
		end, began := process.listen(t, p, ns, authority), time.Now()
		check(t, <-opened)
		took := time.Since(began)
		t.Logf("seen after %s", took)
		if took > time.Second {
			t.Errorf("a webhook that listens was seen after %s", took)
		}
		end()
	}
}

func TestWebhookStopsAtProbesThatCanNeverPass(t *testing.T) {
	p := control(t)
	ns := p.namespace(t)
	authority, err := newAuthority("guard", "guard."+ns+".svc")
	check(t, err)
	process := &guard{}
	process.judges(deniesBad)
	t.Cleanup(process.listen(t, p, ns, authority))
	p.node(t, "guard")
	p.create(t, ns, guardService)
	p.create(t, ns, guardPods)
	p.create(t, ns, guardConfiguration(authority.Certificate, authority.Certificate))
	asks := func(which, manifest string) args {
		return args{"configuration": text("guard-" + ns), "namespace": text(ns), which: text(manifest)}
	}
	opens(t, p.gate(t, "webhook", asks("rejects", probe("bad", ""))))

	hopeless(t, p.gate(t, "webhook", asks("rejects", probe("bad", ", data: {a: {b: c}}"))),
		"dry run of configmap "+ns+
			"/bad: the API refuses it before any webhook: ConfigMap in version \"v1\" cannot be handled as "+
			"a ConfigMap: "+
			"json: cannot unmarshal object into Go struct field ConfigMap.data of type string")
	hopeless(t, p.gate(t, "webhook", asks("accepts", probe("good", ", data: {a/b: c}"))),
		"dry run of configmap "+ns+
			"/good: the API refuses it before any webhook: ConfigMap \"good\" is invalid: data[a/b]: "+
			"Invalid value: \"a/b\": "+
			"a valid config key must consist of alphanumeric characters, '-', '_' or '.' (e.g. "+
			"'key.name', or 'KEY_NAME', or 'key-name', "+
			"regex used for validation is '[-._a-zA-Z0-9]+')")
	hopeless(t, p.gate(t, "webhook", asks("accepts", probe("bad", ""))),
		"dry run of configmap "+ns+
			"/bad: webhook configmaps.guard.example.org denies it: bad is no good name")
	closed(t,
		p.gate(t, "webhook",
			asks("accepts", `{apiVersion: nothing.example.org/v1, kind: Nothing, metadata: {name: a}}`)),
		"the API serves no kind Nothing in nothing.example.org/v1 yet")
	closed(t,
		p.gate(t, "webhook",
			asks("accepts", `{apiVersion: v1, kind: ConfigMap, metadata: {name: a, namespace: no-such}}`)),
		`dry run of configmap no-such/a: namespaces "no-such" not found`)
}
