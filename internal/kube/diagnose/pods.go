package diagnose

import (
	"cmp"
	"context"
	"fmt"
	"path"
	"regexp"
	"slices"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/klog/v2"

	"github.com/ephemeral-castle/castle/internal/kube/client"
	"github.com/ephemeral-castle/castle/internal/kube/gates"
)

const (
	mostPods = 20       // Pods that are kept of one selection
	mostLogs = 6        // Pods whose logs are read, those with problems first
	logLines = "50"     // of each container, the last ones
	logRoom  = 16 << 10 // bytes of them
	logTime  = 1500 * time.Millisecond
)

// podReport is a Pod with the evidence about it.
type podReport struct {
	pod      corev1.Pod
	events   []corev1.Event    // warnings about it, the newest first
	lastLine map[string]string // of each container's log
}

func (r podReport) String() string { return client.Titled("pod", r.pod.Namespace, r.pod.Name) }

// pods reads the Pods that a selector selects, with their logs, and looks for a cause in them. Those with
// problems come first. matters may leave out others.
func (d *diagnosis) pods(ctx context.Context, namespace, selector string,
	matters func(corev1.Pod) bool) []podReport {
	e := d.evidence
	items := e.list(ctx, client.Selection{Resource: client.Core("pods"), Namespace: namespace,
		Labels: selector}, "Pod")
	var all []podReport
	for i := range items {
		pod, err := client.As[corev1.Pod](items[i])
		if err != nil || matters != nil && !matters(pod) {
			continue
		}
		all = append(all, podReport{pod: pod, lastLine: map[string]string{}})
		if len(all) <= mostPods {
			e.object(&items[i])
		}
	}
	slices.SortStableFunc(all, func(a, b podReport) int {
		return cmp.Compare(problems(b.pod), problems(a.pod))
	})
	for i := range all {
		r := &all[i]
		r.events = about(e.eventsIn(ctx, r.pod.Namespace), "Pod", r.pod.Name)
		if i < mostLogs {
			e.logs(ctx, r)
		}
	}
	d.because(podCause(all))
	return all
}

// problems weighs how much a Pod may explain.
func problems(pod corev1.Pod) int {
	weight := 0
	if !podReady(pod) {
		weight += 2
	}
	for _, c := range containers(pod) {
		weight += int(min(c.RestartCount, 1))
	}
	return weight
}

func podReady(pod corev1.Pod) bool {
	return pod.Status.Phase == corev1.PodSucceeded ||
		slices.ContainsFunc(pod.Status.Conditions, func(c corev1.PodCondition) bool {
			return c.Type == corev1.PodReady && c.Status == corev1.ConditionTrue
		})
}

// containers are all of a Pod's containers that have a status, in the order of their start.
func containers(pod corev1.Pod) []corev1.ContainerStatus {
	return slices.Concat(pod.Status.InitContainerStatuses, pod.Status.ContainerStatuses)
}

// logs keeps the last lines of a Pod's containers, and of those that they replaced, in one file.
func (e *evidence) logs(ctx context.Context, r *podReport) {
	if !e.redacts {
		e.missed = append(e.missed,
			fmt.Sprintf("log of %s: left out, because secrets in it could not be hidden", r))
		return
	}
	var b strings.Builder
	for _, c := range containers(r.pod) {
		if c.State.Waiting != nil && c.RestartCount == 0 {
			continue // it has not started yet
		}
		if c.RestartCount > 0 {
			r.lastLine[c.Name] = e.log(ctx, &b, r, c.Name, true)
		}
		if c.State.Waiting == nil {
			r.lastLine[c.Name] = cmp.Or(e.log(ctx, &b, r, c.Name, false), r.lastLine[c.Name])
		}
	}
	e.keep(path.Join("pods", r.pod.Namespace, r.pod.Name+".log"), []byte(b.String()))
}

// log reads one container's last lines and returns the last of them.
func (e *evidence) log(ctx context.Context, b *strings.Builder, r *podReport, container string,
	previous bool) string {
	which := "container " + container
	if previous {
		which += ", before its last restart"
	}
	if e.muted[r.pod.Spec.NodeName] {
		return ""
	}
	ctx, stop := context.WithTimeout(ctx, logTime)
	defer stop()
	body, err := e.api.Raw.Get().AbsPath("/api/v1/namespaces", r.pod.Namespace, "pods", r.pod.Name, "log").
		Param("container", container).Param("tailLines", logLines).Param("limitBytes", fmt.Sprint(logRoom)).
		Param("previous", fmt.Sprint(previous)).Do(ctx).Raw()
	if err != nil {
		e.muted[r.pod.Spec.NodeName] = ctx.Err() != nil // its other logs would take as long
		e.miss(fmt.Sprintf("log of %s, %s", r, which), err)
		return ""
	}
	text := strings.TrimRight(string(body), "\n")
	if len(body) >= logRoom {
		text += "…" // so that masking finds the beginning of a secret there
	}
	fmt.Fprintf(b, "--- %s\n%s\n", which, text)
	return strings.TrimSpace(text[strings.LastIndexByte(text, '\n')+1:])
}

// podCause is the first cause that any Pod shows, the most telling first, and the command that shows more.
func podCause(pods []podReport) (cause, look string) {
	for _, read := range []func(podReport) string{
		unschedulable, imagePull, missingReference, failedEvent, badConfig, crashing, unready, stuck,
	} {
		for _, r := range pods {
			if problems(r.pod) == 0 {
				continue
			}
			switch why := read(r); why {
			case "":
			case crashing(r):
				return why, fmt.Sprintf("kubectl -n %s logs %s --all-containers --previous", r.pod.Namespace,
					r.pod.Name)
			default:
				return why, describe("Pod", r.pod.Namespace, r.pod.Name)
			}
		}
	}
	return "", ""
}

// waiting returns the first container that waits for one of these reasons.
func waiting(r podReport, reasons ...string) (c corev1.ContainerStatus, why string, found bool) {
	for _, c := range containers(r.pod) {
		if w := c.State.Waiting; w != nil && slices.Contains(reasons, w.Reason) {
			return c, cmp.Or(w.Message, w.Reason), true
		}
	}
	return c, "", false
}

// message is the newest message among events with a reason. The kubelet repeats "Back-off pulling image"
// under the reason of the original error.
func message(events []corev1.Event, reason string) string {
	for _, e := range events {
		if e.Reason == reason && !strings.HasPrefix(e.Message, "Error: ") {
			return strings.TrimSpace(e.Message)
		}
	}
	return ""
}

func unschedulable(r podReport) string {
	for _, c := range r.pod.Status.Conditions {
		if c.Type == corev1.PodScheduled && c.Status == corev1.ConditionFalse {
			return fmt.Sprintf("%s fits on no node: %s", r, client.Brief(c.Message))
		}
	}
	return ""
}

func imagePull(r podReport) string {
	c, why, found := waiting(r, "ErrImagePull", "ImagePullBackOff", "InvalidImageName", "ErrImageNeverPull",
		"RegistryUnavailable")
	if !found {
		return ""
	}
	return fmt.Sprintf("image %s of %s cannot be pulled: %s", c.Image, r,
		client.Brief(cmp.Or(message(r.events, "Failed"), why)))
}

var notFound = regexp.MustCompile(`(secret|configmap) "([^"]*)" not found`)

// missingReference is a Secret or ConfigMap that a Pod mounts or reads and that does not exist.
func missingReference(r podReport) string {
	_, waits, _ := waiting(r, "CreateContainerConfigError")
	for _, text := range []string{message(r.events, "FailedMount"), waits} {
		if m := notFound.FindStringSubmatch(text); m != nil {
			name := strings.TrimPrefix(m[2], r.pod.Namespace+"/")
			return fmt.Sprintf("%s does not exist, and %s needs it",
				client.Titled(m[1], r.pod.Namespace, name), r)
		}
		if strings.HasPrefix(text, "couldn't find key ") {
			return fmt.Sprintf("%s: %s", r, client.Brief(text))
		}
	}
	return ""
}

// failedEvent is a failure that an event reports while the Pod starts.
func failedEvent(r podReport) string {
	for _, e := range podEvents {
		if why := message(r.events, e.sign); why != "" && r.pod.Status.Phase != corev1.PodRunning {
			return fmt.Sprintf("%s %s: %s", e.cause, r, client.Brief(why))
		}
	}
	return ""
}

func badConfig(r podReport) string {
	c, why, found := waiting(r, "CreateContainerConfigError", "CreateContainerError", "RunContainerError")
	if !found {
		return ""
	}
	return fmt.Sprintf("container %s of %s cannot start: %s", c.Name, r, client.Brief(why))
}

func crashing(r podReport) string {
	for _, c := range containers(r.pod) {
		ended := cmp.Or(c.State.Terminated, c.LastTerminationState.Terminated)
		switch {
		case ended == nil, ended.ExitCode == 0 && c.RestartCount == 0:
		case ended.Reason == "OOMKilled":
			return fmt.Sprintf("container %s of %s is killed because it uses more memory than its limit",
				c.Name, r)
		default:
			why := fmt.Sprintf("container %s of %s ended with exit code %d, %d restarts so far",
				c.Name, r, ended.ExitCode, c.RestartCount)
			return why + lastLog(cmp.Or(r.lastLine[c.Name], ended.Message))
		}
	}
	return ""
}

func lastLog(line string) string {
	if line == "" {
		return ""
	}
	return ", last log line: " + client.Brief(line)
}

func unready(r podReport) string {
	for _, c := range r.pod.Status.ContainerStatuses {
		if c.State.Running == nil || c.Ready {
			continue
		}
		why := fmt.Sprintf("container %s of %s runs but is not ready", c.Name, r)
		if probe := message(r.events, "Unhealthy"); probe != "" {
			return why + ": " + client.Brief(probe)
		}
		return why + lastLog(r.lastLine[c.Name])
	}
	return ""
}

// stuck is a Pod that its node does not start or end, or that has failed.
func stuck(r podReport) string {
	pod := r.pod
	switch {
	case pod.DeletionTimestamp != nil:
		return fmt.Sprintf("%s is being deleted and does not end", r)
	case pod.Spec.NodeName != "" && pod.Status.Phase == corev1.PodPending && len(containers(pod)) == 0:
		return fmt.Sprintf("%s is scheduled to node %s, which has not reported on it", r, pod.Spec.NodeName)
	case pod.Status.Phase == corev1.PodFailed:
		return fmt.Sprintf("%s failed: %s", r,
			client.Brief(cmp.Or(pod.Status.Message, pod.Status.Reason, "its status has no reason")))
	}
	return ""
}

// creator is the part of a workload that creates Pods.
type creator struct {
	Spec struct {
		Selector metav1.LabelSelector   `json:"selector"`
		Template corev1.PodTemplateSpec `json:"template"`
	} `json:"spec"`
}

// workload explains a Deployment, DaemonSet, StatefulSet or Job: the objects that its controllers could not
// create, its Pods, and its own status.
func (d *diagnosis) workload(ctx context.Context, kind, namespace, name string) {
	object := d.get(ctx, gates.WorkloadSelection(kind, namespace, name), kind)
	if object == nil {
		return
	}
	d.because(uncreated(client.Title(object), d.evidence.eventsIn(ctx, namespace), kind, name))
	set, err := client.As[creator](*object)
	if err != nil {
		return
	}
	selector, err := metav1.LabelSelectorAsSelector(&set.Spec.Selector)
	if err == nil && !selector.Empty() {
		d.pods(ctx, namespace, selector.String(), nil)
	}
	if _, seen := client.Observed(object); kind == "DaemonSet" && seen &&
		client.Number(object, 0, "status", "desiredNumberScheduled") == 0 {
		d.because(client.Title(object) + ": " + unplaced(set.Spec.Template.Spec, d.evidence.nodes(ctx)))
	}
	d.because(noProgress(object, "Progressing"))
}

// uncreated explains why a workload's controller cannot create its Pods; ReplicaSets make a Deployment's.
func uncreated(what string, events []corev1.Event, kind, name string) string {
	for _, e := range slices.Backward(events) {
		of := e.InvolvedObject
		own := of.Kind == kind && of.Name == name ||
			kind == "Deployment" && of.Kind == "ReplicaSet" && strings.HasPrefix(of.Name, name+"-")
		if own && e.Reason == "FailedCreate" {
			return fmt.Sprintf("%s: %s: %s", what, creation.cause(strings.ToLower(e.Message)),
				client.Brief(e.Message))
		}
	}
	return ""
}

// unplaced explains why a DaemonSet's Pods match no node.
func unplaced(pod corev1.PodSpec, nodes []corev1.Node) string {
	var matching, tainted []string
	for _, n := range nodes {
		if !labels.SelectorFromSet(pod.NodeSelector).Matches(labels.Set(n.Labels)) {
			continue
		}
		matching = append(matching, n.Name)
		if taint := untolerated(n.Spec.Taints, pod.Tolerations); taint != "" {
			tainted = append(tainted, n.Name+" ("+taint+")")
		}
	}
	switch {
	case len(nodes) == 0:
		return "there is no node"
	case len(matching) == 0:
		return "no node has the labels of its nodeSelector: " + labels.Set(pod.NodeSelector).String()
	case len(tainted) == len(matching):
		return "every node that it selects has a taint that its Pods do not tolerate: " +
			client.Several(tainted)
	}
	return "no node matches its nodeSelector and affinity"
}

// untolerated is the first taint that keeps Pods with these tolerations away.
func untolerated(taints []corev1.Taint, tolerations []corev1.Toleration) string {
	for _, taint := range taints {
		tolerated := slices.ContainsFunc(tolerations,
			func(t corev1.Toleration) bool { return t.ToleratesTaint(klog.Background(), &taint, false) })
		if !tolerated && taint.Effect != corev1.TaintEffectPreferNoSchedule {
			return taint.Key + ":" + string(taint.Effect)
		}
	}
	return ""
}

// creators explains the workloads whose Pods would have some labels and do not exist.
func (d *diagnosis) creators(ctx context.Context, namespace string, wanted labels.Selector) {
	for _, kind := range []string{"Deployment", "DaemonSet", "StatefulSet"} {
		for _, o := range d.evidence.list(ctx, gates.WorkloadSelection(kind, namespace, ""), kind) {
			set, err := client.As[creator](o)
			if err == nil && wanted.Matches(labels.Set(set.Spec.Template.Labels)) {
				d.workload(ctx, kind, namespace, o.GetName())
			}
		}
	}
}
