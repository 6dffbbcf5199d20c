package diagnose

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/labels"

	"github.com/ephemeral-castle/castle/internal/gate"
	"github.com/ephemeral-castle/castle/internal/kube/client"
	"github.com/ephemeral-castle/castle/internal/kube/gates"
)

// lookAtAPI is the command that shows the API's own readiness.
const lookAtAPI = "kubectl get --raw '/readyz?verbose'"

// explanation explains a closed gate of one type: the command that shows more, and the evidence to collect.
// found is the finding of the gate's check.
type explanation struct {
	look    string
	lookAt  func(gate.Values) string // instead of look
	collect func(ctx context.Context, d *diagnosis, v gate.Values, found error)
}

// explanations has an entry for every gate type.
var explanations = map[string]explanation{
	"kubernetes_api": {look: lookAtAPI, collect: collectAPI},
	"nodes":          {look: "kubectl describe nodes", collect: collectNodes},
	"endpoint_slice": {lookAt: lookAtService, collect: collectEndpoints},
	"webhook":        {lookAt: lookAtWebhook, collect: collectWebhook},
	"workload":       {lookAt: lookAtWorkload, collect: collectWorkload},
	"crd":            {look: "kubectl get crds", collect: collectDefinitions},
	"condition":      {lookAt: lookAtObjects, collect: collectObjects},
	"storage_class":  {look: "kubectl get storageclasses,csidrivers,csinodes", collect: collectStorage},
	"load_balancer":  {lookAt: lookAtService, collect: collectLoadBalancer},
	"flux":           {look: lookAtFlux, collect: collectFlux},
}

// Explains reports whether the gate type has an explanation.
func Explains(typeName string) bool { return explanations[typeName].collect != nil }

// recent is the maximum age of a warning that may explain a current failure.
const recent = 30 * time.Minute

// Cluster explains a whole cluster when a failure inside of it has no known place. It reports recent
// warnings, namespaces that do not end, Pods with problems, and nodes.
func Cluster(ctx context.Context, target gate.Target) gate.Diagnosis {
	const look = "kubectl get events -A --field-selector type=Warning --sort-by .lastTimestamp"
	return run(client.New(target, ""), target, look, func(ctx context.Context, d *diagnosis) {
		warnings := slices.DeleteFunc(slices.Clone(d.evidence.eventsIn(ctx, "")), func(e event) bool {
			return !e.warning || time.Since(e.at) > recent
		})
		d.evidence.keep("warnings.txt", eventTable(warnings))
		terminatingNamespaces(ctx, d)
		d.pods(ctx, "", "", func(pod corev1.Pod) bool { return !podReady(pod) })
		for _, n := range d.evidence.nodes(ctx) {
			d.because(nodeCause(n))
		}
	})(ctx)
}

func terminatingNamespaces(ctx context.Context, d *diagnosis) {
	namespaces, err := d.api.List(ctx, client.Selection{Resource: client.Core("namespaces")}, "Namespace")
	if err != nil {
		d.evidence.miss("namespaces", err)
	}
	for i := range namespaces {
		namespace := &namespaces[i]
		if namespace.GetDeletionTimestamp() == nil {
			continue
		}
		d.evidence.object(namespace)
		var why []string
		for _, kind := range []string{
			"NamespaceDeletionDiscoveryFailure", "NamespaceFinalizersRemaining", "NamespaceContentRemaining",
		} {
			if c, found := client.ConditionOf(namespace, kind); found && c.Status == "True" {
				why = append(why, client.Brief(c.Message))
			}
		}
		if len(why) > 0 {
			d.because(fmt.Sprintf("namespace %s is being deleted and cannot end: %s", namespace.GetName(),
				strings.Join(why, "; ")),
				describe("Namespace", "", namespace.GetName()))
		}
	}
}

// collectAPI explains an API that is not ready: each of its own checks, each control plane's own address,
// and the control plane's Pods.
func collectAPI(ctx context.Context, d *diagnosis, v gate.Values, _ error) {
	if _, body, err := gates.Readyz(ctx, d.api, "?verbose"); err != nil {
		d.evidence.miss("/readyz", err)
	} else {
		d.evidence.keep("readyz.txt", []byte(body))
		if failed := gates.FailedChecks(body); failed != "" {
			d.because("the API server answers, but these of its own checks fail: " + failed)
		}
	}
	var endpoints []string
	if err := v.Decode("endpoints", &endpoints); err != nil {
		return
	}
	for _, endpoint := range endpoints {
		a, err := client.Open(d.target.Kubeconfig, endpoint)
		if err != nil {
			continue
		}
		attempt, stop := context.WithTimeout(ctx, firstAnswer)
		if err := gates.Ready(attempt, a); err != nil {
			// Its Kubernetes cannot give the reason, but its Talos can.
			d.because(a.Unreachable(err), "talosctl -n "+a.Server.Hostname()+" containers -k")
		}
		stop()
	}
	d.pods(ctx, "kube-system", "tier=control-plane", nil)
}

// collectNodes explains why nodes are missing or not ready.
func collectNodes(ctx context.Context, d *diagnosis, _ gate.Values, _ error) {
	d.evidence.eventsIn(ctx, "default") // the events about nodes
	for _, n := range d.evidence.nodes(ctx) {
		cause, look := nodeCause(n)
		if known(nodeNetwork, gates.NodeUnready(n)).text != "" {
			// A network plugin is a DaemonSet; the other Pods wait for it.
			d.pods(ctx, "kube-system", "", func(pod corev1.Pod) bool {
				return slices.ContainsFunc(pod.OwnerReferences,
					func(o metav1.OwnerReference) bool { return o.Kind == "DaemonSet" })
			})
		}
		d.because(cause, look)
	}
}

// nodeCause explains why a node is not ready; empty if it is.
func nodeCause(n corev1.Node) (text, look string) {
	why := gates.NodeUnready(n)
	if why == "" {
		return "", ""
	}
	return fmt.Sprintf("node %s: %s", n.Name,
			cmp.Or(known(nodeNetwork, why).text, known(node, why).text, why)),
		describe("Node", "", n.Name)
}

func lookAtService(v gate.Values) string {
	return describe("Service", v.String("namespace"), v.String("service"))
}

func collectEndpoints(ctx context.Context, d *diagnosis, v gate.Values, _ error) {
	d.service(ctx, gates.Service{Namespace: v.String("namespace"), Name: v.String("service")})
}

// service explains a Service: its slices, its Pods, and the workloads that create them. It returns the
// selector of the Pods.
func (d *diagnosis) service(ctx context.Context, s gates.Service) (selector string) {
	object, err := d.evidence.get(ctx, s.Object(), "Service")
	if object == nil {
		d.conclude(ctx, err)
		return ""
	}
	d.evidence.list(ctx, s.Slices(), "EndpointSlice")
	d.evidence.eventsIn(ctx, s.Namespace)
	service, err := client.As[corev1.Service](*object)
	if err != nil || len(service.Spec.Selector) == 0 {
		d.because(client.Title(object) + " has no selector: its owner has to create its endpoints too")
		return ""
	}
	selector = labels.SelectorFromSet(service.Spec.Selector).String()
	if pods := d.pods(ctx, s.Namespace, selector, nil); len(pods) == 0 {
		d.creators(ctx, s.Namespace, selector)
		d.because(fmt.Sprintf("no Pod has the labels that %s selects: %s", client.Title(object), selector))
	}
	return selector
}

// creators explains the workloads whose Pods would have some labels and do not exist.
func (d *diagnosis) creators(ctx context.Context, namespace, selector string) {
	wanted, err := labels.Parse(selector)
	if err != nil {
		return
	}
	for _, kind := range []string{"Deployment", "DaemonSet", "StatefulSet"} {
		objects, err := d.api.List(ctx, gates.WorkloadSelection(kind, namespace, ""), kind)
		if err != nil {
			d.evidence.miss(kind+"s", err)
			continue
		}
		for _, o := range objects {
			set, _, err := unstructured.NestedStringMap(o.Object, "spec", "template", "metadata", "labels")
			if err == nil && wanted.Matches(labels.Set(set)) {
				d.workload(ctx, kind, namespace, o.GetName())
			}
		}
	}
}

func lookAtWebhook(v gate.Values) string {
	return "kubectl get validatingwebhookconfigurations,mutatingwebhookconfigurations -o yaml " +
		"--field-selector metadata.name=" + v.String("configuration")
}

// collectWebhook explains an admission webhook: its configurations, its Services and their Pods, and the API
// server's answer after it called it.
func collectWebhook(ctx context.Context, d *diagnosis, v gate.Values, _ error) {
	w, err := gates.NewWebhook(v)
	if err != nil {
		return
	}
	for _, kind := range gates.WebhookKinds {
		d.evidence.get(ctx, w.Of(kind), kind) //nolint:errcheck // Entries returns it
	}
	entries, err := w.Entries(ctx, d.api)
	if err != nil {
		d.conclude(ctx, err)
		return
	}
	ready, logs := true, ""
	for _, s := range gates.Services(entries) {
		ready = s.Check(ctx, d.api) == nil && ready
		if selector := d.service(ctx, s); selector != "" {
			logs = fmt.Sprintf("kubectl -n %s logs -l %s --all-containers --tail=100", s.Namespace, selector)
		}
	}
	d.advise(w.CheckServers(ctx, d.api, entries), logs)
	answers := dryRuns(ctx, w, w.Probe(d.api, entries))
	d.evidence.keep("webhook/"+w.Configuration+".txt", []byte(answers))
	why := known(call, answers).text
	if ready && known(call, answers).sign == "connection refused" {
		why = "its Pod counts as ready although its webhook does not listen yet; it may still wait for " +
			"its certificate"
	}
	if why != "" {
		d.because(fmt.Sprintf("webhook configuration %s: %s", w.Configuration, why), logs)
	}
}

// dryRuns sends the gate's objects past the webhook once more, and writes down the whole answers; a gate's
// finding is cut to one line.
func dryRuns(ctx context.Context, w gates.Webhook, p gates.Probe) string {
	var b strings.Builder
	try := func(objects []*client.Object, argument string) {
		for _, object := range objects {
			answer := "accepted"
			if err := p.Create(ctx, object); err != nil {
				answer = cmp.Or(client.Message(err), err.Error())
			}
			fmt.Fprintf(&b, "dry run of %s, which the gate %s: %s\n", p.Title(object), argument, answer)
		}
	}
	try(w.Accepts, "accepts")
	try(w.Rejects, "rejects")
	return b.String()
}

func collectDefinitions(ctx context.Context, d *diagnosis, v gate.Values, found error) {
	var names []string
	if err := v.Decode("names", &names); err != nil {
		return
	}
	look := ""
	for _, name := range names {
		object, _ := d.evidence.get(ctx, client.Selection{Resource: client.Definitions, Name: name},
			//nolint:errcheck // found has it
			"CustomResourceDefinition")
		if object != nil && look == "" && gates.CheckDefinition(object, v.String("version")) != nil {
			look = describe("crd", "", name)
		}
	}
	if look != "" {
		d.advise(found, look)
	}
}

// collectObjects explains the objects of a condition gate.
func collectObjects(ctx context.Context, d *diagnosis, v gate.Values, _ error) {
	c, err := gates.NewCondition(v)
	if err != nil {
		return
	}
	s, err := c.Resolve(ctx, d.api)
	if err != nil {
		d.evidence.miss(c.Kind, err)
		return
	}
	var objects []client.Object
	if c.Name == "" {
		objects = d.evidence.list(ctx, s, c.Kind)
	} else if object, _ := d.evidence.get(ctx, s,
		c.Kind); object != nil { //nolint:errcheck // the check's finding has it
		objects = append(objects, *object)
	}
	d.evidence.eventsIn(ctx, s.Namespace)
	for i := range objects {
		d.because(stuck(&objects[i], "Stalled", "Ready", "Available", "Degraded"))
	}
}

// lookAtObjects is the command that shows the objects of a condition gate.
func lookAtObjects(v gate.Values) string {
	kind := strings.ToLower(v.String("kind"))
	if group, _, grouped := strings.Cut(v.String("api_version"), "/"); grouped {
		kind += "." + group // two groups may have the kind
	}
	if v.String("name") != "" {
		return describe(kind, v.String("namespace"), v.String("name"))
	}
	command := "kubectl get " + kind + " -o yaml"
	if namespace := v.String("namespace"); namespace != "" {
		command += " -n " + namespace
	} else {
		command += " -A"
	}
	if selector := v.String("selector"); selector != "" {
		command += " -l '" + selector + "'"
	}
	return command
}

// stuck explains why an object makes no progress, from its own conditions.
func stuck(object *client.Object, conditions ...string) string {
	what := client.Title(object)
	switch {
	case object.GetDeletionTimestamp() != nil:
		return fmt.Sprintf("%s is being deleted and waits for its finalizers: %s", what,
			strings.Join(object.GetFinalizers(), ", "))
	case client.True(object, "spec", "suspend"):
		return what + " is suspended"
	case client.True(object, "spec", "paused"):
		return what + " is paused: its last change is not rolled out"
	case client.Number(object, 1, "spec", "replicas") == 0:
		return what + " is scaled to 0"
	}
	for _, kind := range conditions {
		bad := "False"
		if kind == "Stalled" || kind == "Degraded" {
			bad = "True"
		}
		if c, found := client.ConditionOf(object, kind); found && c.Status == bad && c.Why() != "" {
			return fmt.Sprintf("%s reports: %s", what, c.Why())
		}
	}
	_, observed := client.Observed(object)
	switch _, hasStatus := object.Object["status"]; object.GetKind() {
	case "Deployment", "DaemonSet", "StatefulSet":
		if !observed {
			return what + ": its controller has not seen it yet: kube-controller-manager may be down"
		}
	case "Job":
	default:
		if !hasStatus {
			return what + ": its controller has not seen it yet: its operator may be down"
		}
	}
	return ""
}

// collectStorage explains a class whose volumes could not be created or mounted: the class, its driver, the
// nodes, and the Pods that register the driver.
func collectStorage(ctx context.Context, d *diagnosis, v gate.Values, _ error) {
	class, _ := d.evidence.get(ctx, gates.Storage("storageclasses", v.String("name")),
		"StorageClass") //nolint:errcheck // found has it
	if class == nil {
		return
	}
	driver := cmp.Or(v.String("driver"), client.Text(class, "provisioner"))
	sets, err := d.api.List(ctx, gates.WorkloadSelection("DaemonSet", "", ""), "DaemonSet")
	if err != nil {
		d.evidence.miss("DaemonSets", err)
	}
	for _, set := range sets { // those that mount the folder of the driver's socket
		spec, err := json.Marshal(set.Object["spec"])
		if err == nil && strings.Contains(string(spec), "/plugins/"+driver) {
			d.workload(ctx, "DaemonSet", set.GetNamespace(), set.GetName())
		}
	}
	d.evidence.get(ctx, gates.Storage("csidrivers", driver),
		"CSIDriver") //nolint:errcheck // the check's finding has it
	d.evidence.list(ctx, gates.Storage("csinodes", ""), "CSINode")
}

// collectLoadBalancer explains a Service without its address: the events of its load balancer, MetalLB's
// address pools, and MetalLB's Pods.
func collectLoadBalancer(ctx context.Context, d *diagnosis, v gate.Values, found error) {
	s := gates.Service{Namespace: v.String("namespace"), Name: v.String("service")}
	d.conclude(ctx, found)
	object, _ := d.evidence.get(ctx, s.Object(), "Service") //nolint:errcheck // found has it
	if object == nil {
		return
	}
	for _, e := range about(d.evidence.eventsIn(ctx, s.Namespace), "Service", s.Name) {
		d.because(fmt.Sprintf("%s gets no address: %s", client.Title(object), client.Brief(e.message)))
	}
	pools, err := d.api.ListIn(ctx, "metallb.io", "IPAddressPool", "")
	var absent client.NotServed
	switch {
	case errors.As(err, &absent):
		d.because("the cluster has no MetalLB, so nothing assigns addresses to Services")
		return
	case err != nil:
		d.evidence.miss("IPAddressPools", err)
	}
	for i := range pools {
		d.evidence.object(&pools[i])
	}
	d.pods(ctx, "", "app.kubernetes.io/name=metallb", nil)
	if err == nil && len(pools) == 0 {
		d.because("MetalLB has no IPAddressPool to take an address from",
			"kubectl get ipaddresspools.metallb.io -A")
	}
	if class := client.Text(object, "spec", "loadBalancerClass"); class != "" {
		d.because(fmt.Sprintf("%s requests the load balancer class %s, which nothing may serve",
			client.Title(object), class))
	}
}
