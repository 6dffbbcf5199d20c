package behaviours_test

import (
	"regexp"
	"strings"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"sigs.k8s.io/yaml"
)

// pools are what Services get their addresses from.
func pools() map[string]string {
	return map[string]string{
		"main": "addresses: [192.168.1.240-192.168.1.242], " +
			"serviceAllocation: { serviceSelectors: [{ matchLabels: { by: behaviours } }] }",
		"manual": "addresses: [10.0.0.0/30], autoAssign: false, avoidBuggyIPs: true",
		"shared": "addresses: [192.168.4.1/32], autoAssign: false",
		"other":  "addresses: [192.168.3.1/32], autoAssign: false",
		"team":   "addresses: [192.168.2.1/32], serviceAllocation: { namespaces: [team] }",
	}
}

func poolText(name, in, spec string) string {
	return "apiVersion: metallb.io/v1beta1\nkind: IPAddressPool\n" +
		"metadata: { name: " + name + ", namespace: " + in + " }\nspec: { " + spec + " }\n"
}

// refusals are pools that the webhook denies, with the reason.
func refusals() map[string][3]string { // namespace, specification, reason
	return map[string][3]string{
		"elsewhere": {"default", "addresses: [192.168.9.0/24]",
			"resource must be created in flux-system namespace"},
		"overlaps": {namespace, "addresses: [192.168.1.240-192.168.1.255]",
			`CIDR "192.168.1.240/28" in pool "overlaps" overlaps with already defined CIDR ` +
				`"192.168.1.24[02]/3[12]"`},
		"no-address": {namespace, "addresses: [192.168.1.300]",
			`parsing address pool no-address: invalid CIDR "192.168.1.300" in pool "no-address": ` +
				`invalid CIDR "192.168.1.300"`},
		"backwards": {namespace, "addresses: [10.9.0.9-10.9.0.1]",
			`parsing address pool backwards: invalid CIDR "10.9.0.9-10.9.0.1" in pool "backwards": ` +
				`invalid IP range "10.9.0.9-10.9.0.1": start IP "10.9.0.9" is after the end IP "10.9.0.1"`},
		"empty": {namespace, "addresses: []", "parsing address pool empty: pool has no prefixes defined"},
	}
}

// service is a Service of type LoadBalancer, and what MetalLB makes of it.
type service struct {
	name, annotations, spec string
	has                     string // its addresses and their pool
	event                   string // a regular expression for one of its events
}

// services are created one after the other: the order decides who gets an address.
func services() []service {
	failed := func(name, annotations, why string) service {
		return service{name: name, annotations: annotations,
			event: `Warning AllocationFailed: Failed to allocate IP for "flux-system/` + name + `": ` + why}
	}
	return []service{
		{name: "first", has: "192.168.1.240 main",
			event: `Normal IPAllocated: Assigned IP \["192.168.1.240"\]`},
		{name: "requests", annotations: "metallb.io/loadBalancerIPs: 192.168.1.242",
			has: "192.168.1.242 main"},
		{name: "field", spec: ", loadBalancerIP: 192.168.1.241", has: "192.168.1.241 main"},
		failed("late", "", "no available IPs"),
		{name: "foreign-class", spec: ", loadBalancerClass: other"},
		{name: "former", annotations: "metallb.universe.tf/address-pool: manual", has: "10.0.0.1 manual",
			event: "Warning deprecatedAnnotation: Service uses deprecated annotation " +
				"metallb.universe.tf/address-pool"},
		{name: "shares", annotations: "metallb.io/allow-shared-ip: key, metallb.io/address-pool: shared",
			has: "192.168.4.1 shared"},
		{name: "shares-too", annotations: "metallb.io/allow-shared-ip: key, metallb.io/address-pool: shared",
			spec: ", ports: [{ port: 53 }]", has: "192.168.4.1 shared"},
		failed("same-port", "metallb.io/allow-shared-ip: key, metallb.io/loadBalancerIPs: 192.168.4.1",
			`port (TCP|tcp)/80 is already in use on "192.168.4.1"`),
		failed("outside", "metallb.io/loadBalancerIPs: 172.16.0.1",
			`\["172.16.0.1"\] is not allowed in config`),
		failed("taken", "metallb.io/loadBalancerIPs: 192.168.1.240",
			`can't change sharing key for "flux-system/taken", address also in use by flux-system/first`),
		failed("no-address", "metallb.io/loadBalancerIPs: router",
			`invalid metallb.io/loadBalancerIPs: "router"`),
		failed("family", "metallb.io/loadBalancerIPs: 'fd00::1'",
			`requested loadBalancer IP\(s\) \["fd00::1"\] does not match the ipFamily of the service`),
		failed("unknown", "metallb.io/address-pool: typo", `unknown pool "typo"`),
		failed("exhausted", "metallb.io/address-pool: main", `\["<nil>"\] is not allowed in config`),
		failed("not-allocated", "metallb.io/loadBalancerIPs: 192.168.2.1",
			`pool team not compatible for ip assignment`),
		failed("both", "metallb.io/address-pool: main, metallb.io/loadBalancerIPs: 192.168.3.1",
			`requested loadBalancer IP\(s\) \["192.168.3.1"\] is not compatible with requested address `+
				`pool main`),
	}
}

func (s service) text() string {
	ports := ", ports: [{ port: 80 }]"
	if strings.Contains(s.spec, "ports:") {
		ports = ""
	}
	return "apiVersion: v1\nkind: Service\nmetadata: { name: " + s.name + ", labels: { by: behaviours }, " +
		"annotations: { " + s.annotations + " } }\nspec: { type: LoadBalancer" + ports + s.spec + " }\n"
}

// balance writes what differs of MetalLB's behaviours into seen.
func (p *plane) balance(t *testing.T, seen map[string]string) {
	for name, spec := range pools() {
		p.apply(t, poolText(name, namespace, spec))
	}
	for name, one := range refusals() {
		seen["pool "+name] = ""
		o := &unstructured.Unstructured{}
		check(t, yaml.Unmarshal([]byte(poolText(name, one[0], one[1])), &o.Object))
		err := p.attempt(t, o)
		want := regexp.MustCompile(`denied the request: ` + one[2] + `$`)
		if err == nil || !want.MatchString(err.Error()) {
			seen["pool "+name] = "got  " + text(err) + "\nwant " + one[2]
		}
	}
	for _, s := range services() {
		p.apply(t, s.text())
		seen["service "+s.name] = p.expects(t, s)
	}
	// An address that becomes free goes to the Service that waits for one.
	for _, name := range []string{"exhausted", "requests"} {
		api, err := p.api(p.get(t, "v1", "Service", name).GroupVersionKind(), namespace)
		check(t, err)
		check(t, api.Delete(t.Context(), name, metav1.DeleteOptions{}))
	}
	seen["service that waited"] = p.expects(t, service{name: "late", has: "192.168.1.242 main"})
}

// expects waits for what a Service is to have.
func (p *plane) expects(t *testing.T, s service) (why string) {
	want := regexp.MustCompile("(?m)^(?:" + s.event + ")$")
	within(20*time.Second, func() bool {
		o, events := p.get(t, "v1", "Service", s.name), p.events(t, s.name)
		var has []string
		all, _, _ := unstructured.NestedSlice(o.Object, "status", "loadBalancer", "ingress")
		for _, one := range all {
			has = append(has, one.(map[string]any)["ip"].(string))
		}
		got := strings.TrimSpace(strings.Join(has, ",") + " " +
			o.GetAnnotations()["metallb.io/ip-allocated-from-pool"])
		why = "got  " + got + "; " + events + "\nwant " + s.has + "; " + s.event
		if got == s.has && (s.event == "" || want.MatchString(events)) {
			why = ""
		}
		return why == ""
	})
	return why
}

// events are those of a Service, a line each.
func (p *plane) events(t *testing.T, name string) string {
	list, err := p.cluster.Client.CoreV1().Events(namespace).List(t.Context(),
		metav1.ListOptions{FieldSelector: "involvedObject.kind=Service,involvedObject.name=" + name})
	check(t, err)
	var all []string
	for _, e := range list.Items {
		all = append(all, e.Type+" "+e.Reason+": "+e.Message)
	}
	return strings.Join(all, "\n")
}

func text(err error) string {
	if err == nil {
		return "no error"
	}
	return err.Error()
}
