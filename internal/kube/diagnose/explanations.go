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
	"k8s.io/apimachinery/pkg/labels"

	"github.com/ephemeral-castle/castle/internal/gate"
	"github.com/ephemeral-castle/castle/internal/kube/client"
	"github.com/ephemeral-castle/castle/internal/kube/gates"
)

// lookAtAPI is the command that shows the API's own readiness.
const lookAtAPI = "kubectl get --raw '/readyz?verbose'"

// lookAtAnnouncements is the command that shows what Cilium announces, and who does.
const lookAtAnnouncements = "kubectl get ciliuml2announcementpolicies,services,leases -A"

// explanation explains a closed gate of one type: the command that shows more, and the collection of evidence
// beside what the gate's check reads. found is the finding of the check.
type explanation struct {
	look    func(gate.Values) string
	collect func(ctx context.Context, d *diagnosis, v gate.Values, found error)
}

func always(look string) func(gate.Values) string { return func(gate.Values) string { return look } }

// explanations has an entry for every gate type.
var explanations = map[string]explanation{
	"kubernetes_api":     {always(lookAtAPI), collectAPI},
	"kubernetes_version": {always("kubectl get nodes -o wide"), collectVersions},
	"nodes":              {always("kubectl describe nodes"), collectNodes},
	"endpoint_slice":     {lookAtService, collectEndpoints},
	"webhook":            {lookAtWebhook, collectWebhook},
	"workload":           {lookAtWorkload, collectWorkload},
	"crd":                {lookAtDefinitions, collectNothing},
	"condition":          {lookAtObjects, collectObjects},
	"storage_class":      {always("kubectl get storageclasses,csidrivers,csinodes"), collectStorage},
	"load_balancer":      {lookAtService, collectLoadBalancer},
	"flux":               {always(lookAtFlux), collectFlux},
	"network_policy":     {lookAtAll("networkpolicies"), collectNothing},
	"address_pool":       {lookAtAll("ipaddresspools.metallb.io"), collectNothing},
	"announcement":       {always(lookAtAnnouncements), collectNothing},
	"bgp_sessions":       {lookAtAll("ciliumbgpnodeconfigs"), collectNothing},
}

// Explains reports whether the gate type has an explanation.
func Explains(typeName string) bool { return explanations[typeName].collect != nil }

// recent is the maximum age of a warning that may explain a current failure.
const recent = 30 * time.Minute

// Cluster explains a whole cluster when a failure inside of it has no known place. It reports recent
// warnings, namespaces that do not end, Pods with problems, and nodes.
func Cluster(ctx context.Context, target gate.Target) gate.Diagnosis {
	const look = "kubectl get events -A --field-selector type=Warning --sort-by .lastTimestamp"
	return run(ctx, target, "", look, nil, func(ctx context.Context, d *diagnosis) {
		warnings := slices.DeleteFunc(slices.Clone(d.evidence.eventsIn(ctx, "")), func(e corev1.Event) bool {
			return !isWarning(e) || time.Since(lastTime(e)) > recent
		})
		d.evidence.keep("warnings.txt", eventTable(warnings))
		terminatingNamespaces(ctx, d)
		d.pods(ctx, "", "", func(pod corev1.Pod) bool { return !podReady(pod) })
		for _, n := range d.evidence.nodes(ctx) {
			d.becauseOf(n)
		}
	})
}

func terminatingNamespaces(ctx context.Context, d *diagnosis) {
	all := client.Selection{Resource: client.Core("namespaces")}
	for _, namespace := range d.evidence.list(ctx, all, "Namespace") {
		if namespace.GetDeletionTimestamp() == nil {
			continue
		}
		d.evidence.object(&namespace)
		var why []string
		for _, kind := range []string{
			"NamespaceDeletionDiscoveryFailure", "NamespaceFinalizersRemaining", "NamespaceContentRemaining",
		} {
			if c, found := client.ConditionOf(&namespace, kind); found && c.Status == "True" {
				why = append(why, client.Brief(c.Message))
			}
		}
		if len(why) > 0 {
			d.because(fmt.Sprintf("namespace %s is being deleted and cannot end: %s", namespace.GetName(),
				strings.Join(why, "; ")), describe("Namespace", "", namespace.GetName()))
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
func collectNodes(ctx context.Context, d *diagnosis, _ gate.Values, found error) {
	d.evidence.eventsIn(ctx, "default") // the events about nodes
	if gate.KindOf(found) == gates.NodeUnknown {
		d.advise(found) // that node is probably not ready either
	}
	for _, n := range d.evidence.nodes(ctx) {
		found := gates.NodeUnready(n)
		if found != nil && (found.Kind == gates.NoNetwork || network.cause(found.Text) != "") {
			// A network plugin is a DaemonSet; the other Pods wait for it.
			d.pods(ctx, "kube-system", "", func(pod corev1.Pod) bool {
				return slices.ContainsFunc(pod.OwnerReferences,
					func(o metav1.OwnerReference) bool { return o.Kind == "DaemonSet" })
			})
		}
		d.becauseOf(n)
	}
}

// collectVersions explains nodes that do not run the wanted version although nothing else is wrong with them.
func collectVersions(ctx context.Context, d *diagnosis, v gate.Values, found error) {
	collectNodes(ctx, d, v, found)
	d.because("a machine runs the images that its own machine configuration names: another version was set " +
		"there, or it cannot pull these images")
}

// nodeCause explains why a node is not ready; empty if it is.
func nodeCause(n corev1.Node) (text, look string) {
	found := gates.NodeUnready(n)
	if found == nil {
		return "", ""
	}
	why := cmp.Or(findings[found.Kind], network.cause(found.Text), kubelet.cause(found.Text), found.Text)
	return found.Object + ": " + why, describe("Node", "", n.Name)
}

func lookAtService(v gate.Values) string {
	return describe("Service", v.String("namespace"), v.String("service"))
}

func collectEndpoints(ctx context.Context, d *diagnosis, v gate.Values, _ error) {
	d.service(ctx, gates.ServiceOf(v))
}

// service explains a Service: its Pods, and the workloads that create them. It returns the Pods' selector.
func (d *diagnosis) service(ctx context.Context, s gates.Service) (selector string) {
	object := d.get(ctx, s.Object(), "Service")
	if object == nil {
		return ""
	}
	d.evidence.eventsIn(ctx, s.Namespace)
	service, err := client.As[corev1.Service](*object)
	if err != nil || len(service.Spec.Selector) == 0 {
		d.because(client.Title(object) + " has no selector: its owner has to create its endpoints too")
		return ""
	}
	wanted := labels.SelectorFromSet(service.Spec.Selector)
	if pods := d.pods(ctx, s.Namespace, wanted.String(), nil); len(pods) == 0 {
		d.creators(ctx, s.Namespace, wanted)
		d.because(fmt.Sprintf("no Pod has the labels that %s selects: %s", client.Title(object), wanted))
	}
	return wanted.String()
}

func lookAtWebhook(v gate.Values) string {
	return "kubectl get validatingwebhookconfigurations,mutatingwebhookconfigurations -o yaml " +
		"--field-selector metadata.name=" + v.String("configuration")
}

// collectWebhook explains an admission webhook: its Services and their Pods, and the API server's whole
// answer after it called it; a gate's finding is cut to one line.
func collectWebhook(ctx context.Context, d *diagnosis, v gate.Values, found error) {
	w, err := gates.NewWebhook(v)
	if err != nil {
		return
	}
	entries, err := w.Entries(ctx, d.api)
	if err != nil {
		return // the check's finding too
	}
	logs, about := "", ""
	for _, s := range gates.Services(entries) {
		about = cmp.Or(about, fmt.Sprintf("service %s/%s", s.Namespace, s.Name))
		if selector := d.service(ctx, s); selector != "" {
			logs = fmt.Sprintf("kubectl -n %s logs -l %s --all-containers --tail=100", s.Namespace, selector)
		}
	}
	if dry, ok := errors.AsType[*gate.Finding](found); ok && client.Message(dry) != "" {
		d.evidence.keep("webhook/"+w.Configuration+".txt", []byte(dry.Object+": "+client.Message(dry)+"\n"))
	}
	if d.cause == "" {
		d.about = about // several configurations may have the same server
	}
	if cause := calls.cause(client.Message(found)); gate.KindOf(found) == gates.WebhookCall && cause != "" {
		d.because(fmt.Sprintf("webhook configuration %s: %s", w.Configuration, cause), logs)
	}
	d.advise(found, logs)
}

func lookAtDefinitions(v gate.Values) string {
	var names []string
	if v.Decode("names", &names) != nil {
		return "kubectl get crds"
	}
	return "kubectl describe crd " + strings.Join(names, " ")
}

func lookAtAll(kind string) func(gate.Values) string {
	return func(v gate.Values) string {
		return "kubectl -n " + v.String("namespace") + " get -o yaml " + kind
	}
}

func collectNothing(context.Context, *diagnosis, gate.Values, error) {}

// collectObjects explains the objects of a condition gate.
func collectObjects(ctx context.Context, d *diagnosis, v gate.Values, found error) {
	d.evidence.eventsIn(ctx, v.String("namespace"))
	if gate.KindOf(found) == gates.SpecDiffers {
		d.advise(found) // not every kind has a status
	}
	for i := range d.read {
		d.because(noProgress(&d.read[i], "Stalled", "Ready", "Available", "Degraded"))
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
	where := " -A"
	if namespace := v.String("namespace"); namespace != "" {
		where = " -n " + namespace
	}
	if selector := v.String("selector"); selector != "" {
		where += " -l '" + selector + "'"
	}
	return "kubectl get " + kind + " -o yaml" + where
}

// noProgress explains why an object makes no progress, from its own conditions.
func noProgress(object *client.Object, conditions ...string) string {
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

func lookAtWorkload(v gate.Values) string {
	return describe(v.String("kind"), v.String("namespace"), v.String("name"))
}

// collectWorkload explains a workload. Its Pods may run well while the API refuses a new one.
func collectWorkload(ctx context.Context, d *diagnosis, v gate.Values, found error) {
	if answer := strings.ToLower(client.Message(found)); gate.KindOf(found) == gates.PodRefused {
		why, look := found.Error()+"; "+creation.cause(answer)+notReplaced, d.look
		if strings.Contains(answer, "webhook") {
			why += ": start its server, or delete its configuration"
			look = "kubectl get validatingwebhookconfigurations,mutatingwebhookconfigurations"
		}
		d.because(why, look)
	}
	if gate.KindOf(found) == gates.QuotaBelowUse {
		d.advise(found, "kubectl -n "+v.String("namespace")+" describe resourcequotas")
	}
	d.workload(ctx, v.String("kind"), v.String("namespace"), v.String("name"))
}

// collectStorage explains a class whose volumes cannot be created or mounted: the Pods of its driver.
func collectStorage(ctx context.Context, d *diagnosis, v gate.Values, found error) {
	driver := v.String("driver")
	for _, o := range d.read {
		if o.GetKind() == "StorageClass" && o.GetName() == v.String("name") {
			driver = cmp.Or(driver, client.Text(&o, "provisioner"))
		}
	}
	sets := d.evidence.list(ctx, gates.WorkloadSelection("DaemonSet", "", ""), "DaemonSet")
	for _, set := range sets { // those that mount the folder of the driver's socket
		spec, err := json.Marshal(set.Object["spec"])
		if err == nil && driver != "" && strings.Contains(string(spec), "/plugins/"+driver) {
			d.workload(ctx, "DaemonSet", set.GetNamespace(), set.GetName())
		}
	}
	if gate.KindOf(found) == gate.DriverMissing {
		d.advise(found, "kubectl get csinodes -o yaml")
	}
}

// collectLoadBalancer explains a Service without its address: the events of its load balancer, MetalLB's
// address pools, and MetalLB's Pods. Pods explain an address at which nobody answers.
func collectLoadBalancer(ctx context.Context, d *diagnosis, v gate.Values, found error) {
	silent := gate.KindOf(found) == gates.NoAnswer
	if silent {
		d.service(ctx, gates.ServiceOf(v))
	}
	if d.conclude(ctx, found); silent || len(d.read) == 0 {
		return
	}
	service, namespace := client.Title(&d.read[0]), v.String("namespace")
	for _, e := range about(d.evidence.eventsIn(ctx, namespace), "Service", v.String("service")) {
		d.because(fmt.Sprintf("%s gets no address: %s", service, client.Brief(e.Message)))
	}
	pools, err := d.api.ListIn(ctx, "metallb.io", "IPAddressPool", "")
	switch {
	case client.IsNotServed(err):
		d.because("the cluster has no MetalLB, so nothing assigns addresses to Services")
		return
	case err != nil:
		d.evidence.miss("IPAddressPools", err)
	}
	d.evidence.objects(pools)
	d.pods(ctx, "", "app.kubernetes.io/name=metallb", nil)
	if err == nil && len(pools) == 0 {
		d.because("MetalLB has no IPAddressPool to take an address from",
			"kubectl get ipaddresspools.metallb.io -A")
	}
	if class := client.Text(&d.read[0], "spec", "loadBalancerClass"); class != "" {
		d.because(service + " requests the load balancer class " + class + ", which nothing may serve")
	}
}
