package operators

import (
	"slices"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/ephemeral-castle/castle/lab/internal/operators/clustertest"
)

// balanced is a cluster with MetalLB and these pools, as name and the rest of the specification.
func balanced(t *testing.T, all map[string]string) (*clustertest.Stage, *metalLB) {
	t.Helper()
	s := newStage(0, clustertest.Deployment("metallb-system", "metallb-controller"),
		&corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: "team",
			Labels: map[string]string{"tier": "a"}}})
	for name, spec := range all {
		s.Create(t, pools(), `{"apiVersion":"metallb.io/v1beta1","kind":"IPAddressPool","metadata":{"name":"`+
			name+`","namespace":"metallb-system"},"spec":{`+spec+`}}`)
	}
	m := newMetalLB(s.World, routes{})
	t.Cleanup(m.Close)
	return s, m
}

// exposed creates a Service of type LoadBalancer, a second younger than the last one.
func exposed(t *testing.T, s *clustertest.Stage, name string, change func(*corev1.Service)) {
	t.Helper()
	s.Time = s.Time.Add(time.Second)
	one := &corev1.Service{ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: name,
		UID: types.UID(name), CreationTimestamp: metav1.NewTime(s.Time), Annotations: map[string]string{}},
		Spec: corev1.ServiceSpec{Type: corev1.ServiceTypeLoadBalancer, ClusterIPs: []string{"10.96.0.9"},
			Ports: []corev1.ServicePort{{Protocol: corev1.ProtocolTCP, Port: 80}}}}
	if change != nil {
		change(one)
	}
	if _, err := s.World.Typed.CoreV1().Services(one.Namespace).Create(t.Context(), one,
		metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
}

func service(t *testing.T, s *clustertest.Stage, name string) *corev1.Service {
	t.Helper()
	one, err := s.World.Typed.CoreV1().Services("default").Get(t.Context(), name, metav1.GetOptions{})
	if err != nil {
		t.Fatal(err)
	}
	return one
}

// got is the addresses of a Service and their pool.
func got(t *testing.T, s *clustertest.Stage, name string) string {
	t.Helper()
	one := service(t, s, name)
	var all []string
	for _, i := range one.Status.LoadBalancer.Ingress {
		all = append(all, i.IP)
	}
	return strings.TrimSpace(strings.Join(all, ",") + " " + one.Annotations[allocatedFrom])
}

// told are the events of a Service, as type, reason and message.
func told(t *testing.T, s *clustertest.Stage, name string) (all []string) {
	t.Helper()
	list, err := s.World.Typed.CoreV1().Events("default").List(t.Context(), metav1.ListOptions{})
	if err != nil {
		t.Fatal(err)
	}
	for _, e := range list.Items {
		if e.InvolvedObject.Name == name && e.Source.Component == "metallb-controller" {
			all = append(all, e.Type+" "+e.Reason+": "+e.Message)
		}
	}
	return all
}

func TestMetalLBGivesBothFamilies(t *testing.T) {
	s, m := balanced(t, map[string]string{"both": `"addresses":["fd00::10-fd00::12","192.168.1.240/31"]`})
	families := func(policy corev1.IPFamilyPolicy, of ...string) func(*corev1.Service) {
		return func(one *corev1.Service) { one.Spec.IPFamilyPolicy, one.Spec.ClusterIPs = &policy, of }
	}
	exposed(t, s, "six", families(corev1.IPFamilyPolicySingleStack, "fd01::9"))
	exposed(t, s, "dual", families(corev1.IPFamilyPolicyRequireDualStack, "10.96.0.9", "fd01::8"))
	exposed(t, s, "four", nil)
	exposed(t, s, "prefers", families(corev1.IPFamilyPolicyPreferDualStack, "10.96.0.7", "fd01::7"))
	exposed(t, s, "lacks", families(corev1.IPFamilyPolicyRequireDualStack, "10.96.0.6"))
	s.Look(t, m)
	for name, want := range map[string]string{"six": "fd00::10 both", "dual": "192.168.1.240,fd00::11 both",
		"four": "192.168.1.241 both", "prefers": "fd00::12 both", "lacks": ""} {
		if is := got(t, s, name); is != want {
			t.Errorf("%s: %q, want %q", name, is, want)
		}
	}
	if is := told(t, s, "lacks"); !slices.Equal(is, []string{"Warning not enough clusterips: Service " +
		"requires dual stack but not enough clusterips [10.96.0.6]"}) {
		t.Errorf("events: %q", is)
	}
	// The other family follows, once there is an address.
	if err := s.World.Typed.CoreV1().Services("default").Delete(t.Context(), "four",
		metav1.DeleteOptions{}); err != nil {
		t.Fatal(err)
	}
	s.Look(t, m)
	if is := got(t, s, "prefers"); is != "fd00::12,192.168.1.241 both" {
		t.Errorf("prefers: %q", is)
	}
}

func TestAServiceFollowsItsPools(t *testing.T) {
	s, m := balanced(t, map[string]string{
		"open": `"addresses":["192.168.1.240/31"]`,
		"high": `"addresses":["192.168.2.1/32"],"serviceAllocation":{"priority":1,"serviceSelectors":` +
			`[{"matchLabels":{"app":"web"}}]}`,
		"low": `"addresses":["192.168.3.1/32"],"serviceAllocation":{"namespaces":["default"]}`,
	})
	web := func(one *corev1.Service) { one.Labels = map[string]string{"app": "web"} }
	exposed(t, s, "one", web)
	exposed(t, s, "two", web)
	exposed(t, s, "three", web)
	s.Look(t, m)
	for name, want := range map[string]string{"one": "192.168.2.1 high", "two": "192.168.3.1 low",
		"three": "192.168.1.240 open"} {
		if is := got(t, s, name); is != want {
			t.Errorf("%s: %q, want %q", name, is, want)
		}
	}
	if err := s.World.Untyped.Resource(pools()).Namespace("metallb-system").Delete(t.Context(), "high",
		metav1.DeleteOptions{}); err != nil {
		t.Fatal(err)
	}
	two := service(t, s, "two")
	two.Spec.Type = corev1.ServiceTypeNodePort
	if _, err := s.World.Typed.CoreV1().Services("default").Update(t.Context(), two,
		metav1.UpdateOptions{}); err != nil {
		t.Fatal(err)
	}
	s.Look(t, m)
	s.Look(t, m)
	if is := got(t, s, "two"); is != "" {
		t.Errorf("a Service that is no load balancer any more: %q", is)
	}
	if is, events := got(t, s, "one"), told(t, s, "one"); is != "192.168.1.241 open" &&
		is != "192.168.3.1 low" || !slices.ContainsFunc(events, func(e string) bool {
		return strings.HasPrefix(e, `Normal ClearAssignment: current IP for "default/one" not allowed by `)
	}) {
		t.Errorf("after its pool went: %q, %q", is, events)
	}
}

func TestOnlyServicesOfItsClassAreMetalLBs(t *testing.T) {
	s, m := balanced(t, map[string]string{"main": `"addresses":["192.168.1.240/31"]`})
	d, err := s.World.Typed.AppsV1().Deployments("metallb-system").Get(t.Context(), "metallb-controller",
		metav1.GetOptions{})
	if err != nil {
		t.Fatal(err)
	}
	d.Spec.Template.Spec.Containers = []corev1.Container{{Args: []string{"--lb-class=metallb"}}}
	if _, err := s.World.Typed.AppsV1().Deployments("metallb-system").Update(t.Context(), d,
		metav1.UpdateOptions{}); err != nil {
		t.Fatal(err)
	}
	exposed(t, s, "plain", nil)
	exposed(t, s, "of", func(one *corev1.Service) { one.Spec.LoadBalancerClass = new("metallb") })
	s.Look(t, m)
	if plain, of := got(t, s, "plain"), got(t, s, "of"); plain != "" || of != "192.168.1.240 main" {
		t.Errorf("without a class %q, of the class %q", plain, of)
	}
}
