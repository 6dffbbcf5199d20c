package kube

import (
	"cmp"
	"fmt"
	"strings"

	corev1 "k8s.io/api/core/v1"
)

// podCause reads one Pod and returns a sentence, or nothing if it is not that;
// look is the command that shows more of it.
type podCause struct {
	read func(sight) string
	look func(sight) string
}

// podCauses is the list of what stops Pods, the most telling first.
func podCauses() []podCause {
	pod := func(s sight) string { return describe("Pod", s.Namespace, s.Name) }
	log := func(s sight) string {
		return "kubectl -n " + s.Namespace + " logs " + s.Name + " --all-containers --previous"
	}
	return []podCause{
		{unschedulable, pod}, {imagePull, pod}, {missingMount, pod}, {sandbox, pod}, {volume, pod}, {badConfig, pod},
		{crashing, log}, {unready, pod}, {lostNode, pod}, {finished, pod},
	}
}

// whyPods is the first cause on the list that any Pod shows, and where to look.
func whyPods(pods []sight) (cause, look string) {
	for _, cause := range podCauses() {
		for _, pod := range pods {
			if podReady(pod.Pod) && trouble(pod) == 0 {
				continue
			}
			if why := cause.read(pod); why != "" {
				return why, cause.look(pod)
			}
		}
	}
	return "", ""
}

func unschedulable(pod sight) string {
	for _, c := range pod.Status.Conditions {
		if c.Type == corev1.PodScheduled && c.Status == corev1.ConditionFalse {
			return fmt.Sprintf("%s fits on no node: %s", pod.title(), brief(c.Message))
		}
	}
	return ""
}

func imagePull(pod sight) string {
	for _, c := range containers(pod.Pod) {
		if c.State.Waiting == nil {
			continue
		}
		switch c.State.Waiting.Reason {
		case "ErrImagePull", "ImagePullBackOff", "InvalidImageName", "ErrImageNeverPull", "RegistryUnavailable":
			return fmt.Sprintf("image %s of %s cannot be pulled: %s", c.Image, pod.title(),
				brief(cmp.Or(said(pod.events, "Failed"), c.State.Waiting.Message, c.State.Waiting.Reason)))
		}
	}
	return ""
}

// said is the newest message among events with a reason. The kubelet repeats
// "Back-off pulling image" under the reason of the real one.
func said(events []happening, reason string) string {
	for _, e := range events {
		if e.reason == reason && !strings.HasPrefix(e.message, "Error: ") {
			return e.message
		}
	}
	return ""
}

// missingMount is a Secret or ConfigMap that a Pod mounts or reads and that is not there.
func missingMount(pod sight) string {
	texts := []string{said(pod.events, "FailedMount")}
	for _, c := range containers(pod.Pod) {
		if c.State.Waiting != nil && c.State.Waiting.Reason == "CreateContainerConfigError" {
			texts = append(texts, c.State.Waiting.Message)
		}
	}
	for _, text := range texts {
		for _, kind := range []string{"secret", "configmap"} {
			_, rest, found := strings.Cut(text, kind+` "`)
			name, after, quoted := strings.Cut(rest, `"`)
			if found && quoted && strings.HasPrefix(after, " not found") {
				name = strings.TrimPrefix(name, pod.Namespace+"/")
				return fmt.Sprintf("%s does not exist, and %s needs it", titled(kind, pod.Namespace, name), pod.title())
			}
		}
		if strings.HasPrefix(text, "couldn't find key ") {
			return fmt.Sprintf("%s: %s", pod.title(), brief(text))
		}
	}
	return ""
}

func sandbox(pod sight) string {
	if why := said(pod.events, "FailedCreatePodSandBox"); why != "" {
		return fmt.Sprintf("the node's network or container runtime cannot set up %s: %s", pod.title(), brief(why))
	}
	return ""
}

func volume(pod sight) string {
	for _, reason := range []string{"FailedAttachVolume", "FailedMapVolume", "FailedMount"} {
		if why := said(pod.events, reason); why != "" && pod.Status.Phase == corev1.PodPending {
			return fmt.Sprintf("a volume of %s does not come: %s", pod.title(), brief(why))
		}
	}
	return ""
}

func badConfig(pod sight) string {
	for _, c := range containers(pod.Pod) {
		if w := c.State.Waiting; w != nil && (w.Reason == "CreateContainerConfigError" || w.Reason == "CreateContainerError" || w.Reason == "RunContainerError") {
			return fmt.Sprintf("container %s of %s cannot start: %s", c.Name, pod.title(), brief(cmp.Or(w.Message, w.Reason)))
		}
	}
	return ""
}

func crashing(pod sight) string {
	for _, c := range containers(pod.Pod) {
		ended := c.State.Terminated
		if ended == nil {
			ended = c.LastTerminationState.Terminated
		}
		switch {
		case ended == nil, ended.ExitCode == 0 && c.RestartCount == 0:
		case ended.Reason == "OOMKilled":
			return fmt.Sprintf("container %s of %s is killed because it uses more memory than its limit", c.Name, pod.title())
		default:
			why := fmt.Sprintf("container %s of %s ended with exit code %d, %d restarts so far", c.Name, pod.title(), ended.ExitCode, c.RestartCount)
			if last := cmp.Or(pod.last[c.Name], ended.Message); last != "" {
				why += ", and said last: " + brief(last)
			}
			return why
		}
	}
	return ""
}

func unready(pod sight) string {
	for _, c := range pod.Status.ContainerStatuses {
		if c.State.Running == nil || c.Ready {
			continue
		}
		why := fmt.Sprintf("container %s of %s runs but is not ready", c.Name, pod.title())
		if probe := said(pod.events, "Unhealthy"); probe != "" {
			return why + ": " + brief(probe)
		}
		if last := pod.last[c.Name]; last != "" {
			return why + ", and said last: " + brief(last)
		}
		return why
	}
	return ""
}

// lostNode is a Pod whose node took it and does nothing with it.
func lostNode(pod sight) string {
	switch {
	case pod.DeletionTimestamp != nil:
		return pod.title() + " is being deleted and does not end"
	case pod.Spec.NodeName != "" && pod.Status.Phase == corev1.PodPending && len(containers(pod.Pod)) == 0:
		return fmt.Sprintf("node %s was given %s and says nothing about it", pod.Spec.NodeName, pod.title())
	}
	return ""
}

func finished(pod sight) string {
	if pod.Status.Phase == corev1.PodFailed {
		return fmt.Sprintf("%s failed: %s", pod.title(), brief(cmp.Or(pod.Status.Message, pod.Status.Reason, "it does not say why")))
	}
	return ""
}
