package kube

import (
	"cmp"
	"context"
	"fmt"
	"path"
	"slices"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
)

const (
	mostPods = 20       // Pods that are kept of one selection
	mostLogs = 6        // Pods whose logs are read, those in trouble first
	logLines = "50"     // of each container, the last ones
	logRoom  = 16 << 10 // bytes of them
	logTime  = 1500 * time.Millisecond
)

// sight is a Pod with what is known about it.
type sight struct {
	corev1.Pod
	events []happening       // warnings about it, the newest first
	last   map[string]string // the last line that each container said
}

func (s sight) title() string { return titled("pod", s.Namespace, s.Name) }

// pods reads the Pods that a selector picks, with their logs, and looks for a
// cause in what they say. Those in trouble come first.
func (q *inquiry) pods(ctx context.Context, namespace, selector string) []sight {
	return q.somePods(ctx, namespace, selector, func(corev1.Pod) bool { return true })
}

// somePods is pods for those that matter.
func (q *inquiry) somePods(ctx context.Context, namespace, selector string, matters func(corev1.Pod) bool) []sight {
	items, err := q.a.list(ctx, corev1.SchemeGroupVersion.WithResource("pods"), namespace, selector)
	if err != nil {
		q.miss("pods"+in(namespace), err)
		return nil
	}
	var all []sight
	for _, item := range items {
		pod, err := as[corev1.Pod](item)
		if err != nil || !matters(pod) {
			continue
		}
		all = append(all, sight{Pod: pod, last: map[string]string{}})
		item.SetKind("Pod") // some lists leave it out
		if len(all) <= mostPods {
			q.object(&item)
		}
	}
	slices.SortStableFunc(all, func(a, b sight) int { return cmp.Compare(trouble(b), trouble(a)) })
	for i := range all {
		pod := &all[i]
		pod.events = about(q.events(ctx, pod.Namespace), "Pod", pod.Name)
		if i < mostLogs {
			q.logs(ctx, pod)
		}
	}
	q.because(whyPods(all))
	return all
}

// trouble weighs how much a Pod may have to tell.
func trouble(s sight) int {
	weight := 0
	if !podReady(s.Pod) {
		weight += 2
	}
	for _, c := range containers(s.Pod) {
		if c.RestartCount > 0 {
			weight++
		}
	}
	return weight
}

func podReady(pod corev1.Pod) bool {
	if pod.Status.Phase == corev1.PodSucceeded {
		return true
	}
	for _, c := range pod.Status.Conditions {
		if c.Type == corev1.PodReady {
			return c.Status == corev1.ConditionTrue
		}
	}
	return false
}

// containers are all of a Pod's containers that it says something about, those
// that come first first.
func containers(pod corev1.Pod) []corev1.ContainerStatus {
	return slices.Concat(pod.Status.InitContainerStatuses, pod.Status.ContainerStatuses)
}

// logs keeps the last lines of a Pod's containers, and of those that they
// replaced, in one file.
func (q *inquiry) logs(ctx context.Context, pod *sight) {
	if !q.sealed {
		q.missed = append(q.missed, "log of "+pod.title()+": left out, as nothing could be hidden in it")
		return
	}
	var b strings.Builder
	for _, c := range containers(pod.Pod) {
		if c.State.Waiting != nil && c.RestartCount == 0 {
			continue // it has not said anything yet
		}
		if c.RestartCount > 0 {
			pod.last[c.Name] = q.log(ctx, &b, pod, c.Name, true)
		}
		if c.State.Waiting == nil {
			pod.last[c.Name] = cmp.Or(q.log(ctx, &b, pod, c.Name, false), pod.last[c.Name])
		}
	}
	q.keep(path.Join("pods", pod.Namespace, pod.Name+".log"), []byte(b.String()))
}

// log reads one container's last lines and returns the last of them.
func (q *inquiry) log(ctx context.Context, b *strings.Builder, pod *sight, container string, previous bool) string {
	which := "container " + container
	if previous {
		which += ", before its last restart"
	}
	if q.deaf[pod.Spec.NodeName] {
		return ""
	}
	ctx, stop := context.WithTimeout(ctx, logTime)
	defer stop()
	body, err := q.a.raw.Get().AbsPath("/api/v1/namespaces", pod.Namespace, "pods", pod.Name, "log").
		Param("container", container).Param("tailLines", logLines).Param("limitBytes", fmt.Sprint(logRoom)).
		Param("previous", fmt.Sprint(previous)).Do(ctx).Raw()
	if err != nil {
		q.deaf[pod.Spec.NodeName] = ctx.Err() != nil // its other logs would take as long
		q.miss("log of "+pod.title()+", "+which, err)
		return ""
	}
	text := strings.TrimRight(string(body), "\n")
	fmt.Fprintf(b, "--- %s\n%s\n", which, text)
	return strings.TrimSpace(text[strings.LastIndexByte(text, '\n')+1:])
}
