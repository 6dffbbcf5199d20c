package gates

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"net"
	"net/netip"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/fluxcd/cli-utils/pkg/kstatus/status"
	"github.com/zclconf/go-cty/cty"
	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/ephemeral-castle/castle/internal/gate"
	"github.com/ephemeral-castle/castle/internal/kube/client"
	"github.com/ephemeral-castle/castle/internal/probe"
)

// workload checks with kstatus, and closes where kstatus accepts too little. It rejects a DaemonSet without
// a node, a running Job, a StatefulSet with manual updates, and any object that its controller has not seen.
// It also rejects a workload whose next Pod the API server would refuse.
func workload() definition {
	return definition{gate.Type{
		Name:    "workload",
		Summary: "a Deployment, DaemonSet or StatefulSet is rolled out, or a Job is complete",
		Attributes: map[string]gate.Attribute{
			"kind":      required(text(validWorkload, "Deployment, DaemonSet, StatefulSet or Job")),
			"namespace": required(named("the workload's namespace")),
			"name":      required(named("the workload's name")),
			"desired": {Type: cty.Number, Valid: gate.ValidCount,
				Help: "how many pods it has to request at least; default 1"},
		},
		Check: func(v gate.Values) error {
			if v.Has("desired") && v.String("kind") == "Job" {
				return errors.New("desired: a Job is complete or it is not")
			}
			return nil
		},
	}, func(v gate.Values) (Check, error) {
		kind, desired := v.String("kind"), int64(max(v.Int("desired"), 1))
		if err := validWorkload(cty.StringVal(kind)); err != nil {
			return nil, fmt.Errorf("kind: %w", err)
		}
		selection := WorkloadSelection(kind, v.String("namespace"), v.String("name"))
		return func(ctx context.Context, a *client.API) error {
			object, err := a.Get(ctx, selection, kind)
			if err != nil {
				return err
			}
			if err := checkWorkload(object, desired); err != nil || kind == "Job" {
				return err
			}
			return checkAdmission(ctx, a, object)
		}, nil
	}}
}

// WorkloadSelection selects a workload by its kind and name.
func WorkloadSelection(kind, namespace, name string) client.Selection {
	return client.Selection{Resource: workloads[kind], Namespace: namespace, Name: name}
}

var workloads = map[string]schema.GroupVersionResource{
	"Deployment":  {Group: "apps", Version: "v1", Resource: "deployments"},
	"DaemonSet":   {Group: "apps", Version: "v1", Resource: "daemonsets"},
	"StatefulSet": {Group: "apps", Version: "v1", Resource: "statefulsets"},
	"Job":         {Group: "batch", Version: "v1", Resource: "jobs"},
}

var validWorkload = oneOf("Deployment", "DaemonSet", "StatefulSet", "Job")

func checkWorkload(object *client.Object, desired int64) error {
	what, kind := client.Title(object), object.GetKind()
	if _, seen := client.Observed(object); !seen && kind != "Job" {
		return fmt.Errorf("%s: its controller has not seen it yet", what)
	}
	result, err := status.Compute(object)
	if err != nil {
		return fmt.Errorf("%s: %w", what, err)
	}
	switch {
	case kind == "Job" && result.Status == status.FailedStatus:
		// The API promises that a failed Job stays failed.
		failed, _ := client.ConditionOf(object, "Failed")
		return gate.Permanent(fmt.Errorf("%s failed: %s", what, failed.Why()))
	case result.Status != status.CurrentStatus:
		return fmt.Errorf("%s: %s", what, phrase(result.Message))
	case kind == "Job":
		return checkJob(object)
	}
	requested := client.Number(object, 1, "spec", "replicas")
	if kind == "DaemonSet" {
		requested = client.Number(object, 0, "status", "desiredNumberScheduled")
	}
	if requested < desired {
		return fmt.Errorf("%s: %d of %d pods requested", what, requested, desired)
	}
	if ready := client.Number(object, 0, "status", "readyReplicas"); kind == "StatefulSet" &&
		ready < requested {
		return fmt.Errorf("%s: %d of %d ready", what, ready, requested)
	}
	return nil
}

func checkJob(job *client.Object) error {
	if complete, ok := client.ConditionOf(job, "Complete"); ok && complete.Status == "True" {
		return nil
	}
	count := func(field string) int64 { return client.Number(job, 0, "status", field) }
	return fmt.Errorf("%s: not complete: %d running, %d succeeded, %d failed",
		client.Title(job), count("active"), count("succeeded"), count("failed"))
}

var counted = regexp.MustCompile(`^(\w+): (\d+)/(\d+)$`)

// phrase turns kstatus' "Available: 0/1" into "0 of 1 available".
func phrase(message string) string {
	m := counted.FindStringSubmatch(message)
	if m == nil {
		return client.Brief(message)
	}
	what := strings.ToLower(m[1])
	if what == "replicas" || what == "current" {
		what = "created"
	}
	return fmt.Sprintf("%s of %s %s", m[2], m[3], what)
}

// endpointSlice checks that a Service has an endpoint. That proves only that a pod's readiness probe passed;
// the webhook gate checks that a webhook answers.
func endpointSlice() definition {
	return definition{gate.Type{
		Name:    "endpoint_slice",
		Summary: "a Service has at least one ready endpoint",
		Attributes: map[string]gate.Attribute{
			"namespace": required(named("the Service's namespace")),
			"service":   required(named("the Service's name")),
		},
	}, func(v gate.Values) (Check, error) { return ServiceOf(v).check, nil }}
}

// Service is a Service by its name.
type Service struct{ Namespace, Name string }

// ServiceOf reads the Service from a gate's arguments.
func ServiceOf(v gate.Values) Service { return Service{v.String("namespace"), v.String("service")} }

// Object selects the Service itself.
func (s Service) Object() client.Selection {
	return client.Selection{Resource: client.Core("services"), Namespace: s.Namespace, Name: s.Name}
}

// check requires one ready endpoint among all of a Service's slices: it has one for each address family and
// for each hundred endpoints.
func (s Service) check(ctx context.Context, a *client.API) error {
	slices, err := client.ListAs[discoveryv1.EndpointSlice](ctx, a, client.Selection{
		Resource:  discoveryv1.SchemeGroupVersion.WithResource("endpointslices"),
		Namespace: s.Namespace, Labels: discoveryv1.LabelServiceName + "=" + s.Name}, "EndpointSlice")
	if err != nil {
		return err
	}
	ready, all := 0, 0
	for _, slice := range slices {
		if slice.DeletionTimestamp != nil {
			continue
		}
		for _, endpoint := range slice.Endpoints {
			all++
			// The API defines absence: unknown readiness counts as ready, unknown termination as none.
			c := endpoint.Conditions
			if (c.Ready == nil || *c.Ready) && (c.Terminating == nil || !*c.Terminating) {
				ready++
			}
		}
	}
	what := client.Titled("service", s.Namespace, s.Name)
	switch {
	case all == 0:
		if _, err := a.Get(ctx, s.Object(), "Service"); err != nil {
			return err
		}
		return fmt.Errorf("%s: no endpoints yet", what)
	case ready == 0:
		return fmt.Errorf("%s: 0 of %d endpoints ready", what, all)
	}
	return nil
}

// loadBalancer checks that a Service has the address that it was meant to have. Just any address proves
// little: others were given the requested one, and an announcer that may not use it takes another.
func loadBalancer() definition {
	return definition{gate.Type{
		Name:    "load_balancer",
		Summary: "a Service of type LoadBalancer has the requested address",
		Attributes: map[string]gate.Attribute{
			"namespace": required(named("the Service's namespace")),
			"service":   required(named("the Service's name")),
			"address": text(gate.ValidForm(netip.ParseAddr, "an IP address"),
				"the IP address that it has to have; default the one that the Service itself requests, or "+
					"else any"),
			"answers": {Type: cty.Bool, Help: "true requires that a TCP port there keeps connections, as " +
				"seen from where castle runs"},
		},
	}, func(v gate.Values) (Check, error) {
		return func(ctx context.Context, a *client.API) error {
			object, err := a.Get(ctx, ServiceOf(v).Object(), "Service")
			if err != nil {
				return err
			}
			return checkAddress(ctx, object, v.String("address"), v.Bool("answers"))
		}, nil
	}}
}

// checkAddress requires an address, or the ones that the Service requests if it is empty.
func checkAddress(ctx context.Context, object *client.Object, address string, answers bool) error {
	if found := terminating(object); found != nil {
		return found
	}
	service, err := client.As[corev1.Service](*object)
	if err != nil {
		return err
	}
	var has []string
	for _, ingress := range service.Status.LoadBalancer.Ingress {
		has = append(has, cmp.Or(ingress.IP, ingress.Hostname))
	}
	requested := []string{address}
	if address == "" {
		requested = requestedAddresses(service)
	}
	lacks := slices.DeleteFunc(slices.Clone(requested), func(want string) bool {
		return slices.ContainsFunc(has, func(one string) bool { return canonical(one) == canonical(want) })
	})
	what := client.Title(object)
	switch {
	case service.Spec.Type != corev1.ServiceTypeLoadBalancer:
		return problem(WrongType, what, "is of type %s, not LoadBalancer",
			cmp.Or(service.Spec.Type, corev1.ServiceTypeClusterIP))
	case len(has) == 0 && len(requested) == 0:
		return fmt.Errorf("%s: has no address yet", what)
	case len(has) == 0:
		return fmt.Errorf("%s: has no address yet, and requests %s", what, strings.Join(requested, ", "))
	case len(lacks) > 0:
		return fmt.Errorf("%s: has %s, not %s", what, strings.Join(has, ", "), strings.Join(lacks, ", "))
	case answers && address != "":
		return checkAnswers(ctx, what, service.Spec.Ports, address)
	case answers:
		return checkAnswers(ctx, what, service.Spec.Ports, has...)
	}
	return nil
}

// checkAnswers requires that one port of TCP keeps connections. One address is enough: this machine may have
// no IPv6, and no way to a private one.
func checkAnswers(ctx context.Context, what string, ports []corev1.ServicePort, addresses ...string) error {
	var silent []string
	for _, address := range addresses {
		for _, port := range ports {
			if port.Protocol == corev1.ProtocolTCP {
				err := probe.Kept(ctx, net.JoinHostPort(address, strconv.Itoa(int(port.Port))))
				if err == nil {
					return nil
				}
				silent = append(silent, err.Error())
			}
		}
	}
	if len(silent) == 0 {
		return nil
	}
	return &gate.Finding{Kind: NoAnswer, Object: what, Unwatched: true,
		Text: "no answer at its address: " + client.Several(silent)}
}

// requestedAddresses are the addresses that the Service itself requests: MetalLB's annotation, by its
// present and its former name, Cilium's, or the field that came before all.
func requestedAddresses(service corev1.Service) []string {
	list := cmp.Or(service.Annotations["metallb.io/loadBalancerIPs"],
		service.Annotations["metallb.universe.tf/loadBalancerIPs"],
		service.Annotations["lbipam.cilium.io/ips"],
		service.Spec.LoadBalancerIP) //nolint:staticcheck // deprecated, and still what many charts set
	return strings.FieldsFunc(list, func(r rune) bool { return r == ',' || r == ' ' })
}

// canonical is the one form of an address that may be written in several ways.
func canonical(address string) string {
	if parsed, err := netip.ParseAddr(address); err == nil {
		return parsed.Unmap().String()
	}
	return address
}

// dryRun creates an object in a dry run: the API server admits it as it would for real, and stores nothing.
// It waits for its webhooks. A shorter bound than the attempt's tells a webhook that hangs from such an API.
func dryRun(ctx context.Context, a *client.API, in client.Selection, object *client.Object,
	what string) error {
	within := client.DefaultAttempt
	if end, ok := ctx.Deadline(); ok {
		within = time.Until(end) * 3 / 4
	}
	bounded, stop := context.WithTimeout(ctx, within)
	defer stop()
	_, err := a.Dynamic.Resource(in.Resource).Namespace(in.Namespace).Create(bounded, object,
		metav1.CreateOptions{DryRun: []string{metav1.DryRunAll}, FieldManager: "castle"})
	if bounded.Err() != nil && ctx.Err() == nil {
		return problem(WebhookHangs, what, "no answer within %s: one of its webhooks hangs",
			within.Round(time.Second/2))
	}
	return err
}

// checkAdmission requires that the API server admits a new Pod of a workload. Pods that run hide for weeks
// that a quota, the namespace's Pod Security level or somebody else's webhook refuses the next one.
func checkAdmission(ctx context.Context, a *client.API, workload *client.Object) error {
	in := workload.GetNamespace()
	what := "namespace " + in // the same for all of its workloads, because they usually have one cause
	pods := client.Selection{Resource: client.Core("pods"), Namespace: in}
	err := dryRun(ctx, a, pods, podOf(workload), what)
	switch answer := client.Message(err); {
	case answer == "", client.LacksPermission(err):
		return err
	case strings.Contains(answer, "exceeded quota: "):
		return checkQuotas(ctx, a, in)
	default:
		return &gate.Finding{Kind: PodRefused, Object: what, Unwatched: true, Err: err,
			Text: "the API refuses a new Pod: " + client.Brief(answer)}
	}
}

// podOf is a Pod as a workload's controller would create it. Its name is always the same, for equal answers.
func podOf(workload *client.Object) *client.Object {
	template, _, _ := unstructured.NestedMap(workload.Object, "spec", "template")
	if template == nil {
		template = map[string]any{}
	}
	pod, controller := &client.Object{Object: template}, true
	pod.SetAPIVersion("v1")
	pod.SetKind("Pod")
	pod.SetNamespace(workload.GetNamespace())
	pod.SetName(workload.GetName() + "-castle")
	pod.SetOwnerReferences([]metav1.OwnerReference{{APIVersion: workload.GetAPIVersion(),
		Kind: workload.GetKind(), Name: workload.GetName(), UID: workload.GetUID(), Controller: &controller}})
	claims, _, _ := unstructured.NestedSlice(workload.Object, "spec", "volumeClaimTemplates")
	volumes, _, _ := unstructured.NestedSlice(template, "spec", "volumes")
	for _, entry := range claims {
		fields, _ := entry.(map[string]any)
		name, _, _ := unstructured.NestedString(fields, "metadata", "name")
		volumes = append(volumes, map[string]any{"name": name,
			"persistentVolumeClaim": map[string]any{"claimName": name}})
	}
	if spec, ok := template["spec"].(map[string]any); ok && len(claims) > 0 {
		spec["volumes"] = volumes
	}
	return pod
}

// checkQuotas finds the quota that lets no Pod be replaced: one that is below what is used. A quota that is
// just used up refuses a further Pod, but not the one in the place of another.
func checkQuotas(ctx context.Context, a *client.API, namespace string) error {
	quotas, err := client.ListAs[corev1.ResourceQuota](ctx, a,
		client.Selection{Resource: client.Core("resourcequotas"), Namespace: namespace}, "ResourceQuota")
	if err != nil {
		return err
	}
	var closed []*gate.Finding
	for _, quota := range quotas {
		for resource, most := range quota.Status.Hard {
			if used := quota.Status.Used[resource]; used.Cmp(most) > 0 {
				closed = append(closed, problem(QuotaBelowUse,
					client.Titled("resourcequota", namespace, quota.Name),
					"allows %s %s, and %s are in use", &most, resource, &used))
			}
		}
	}
	return together(closed)
}
