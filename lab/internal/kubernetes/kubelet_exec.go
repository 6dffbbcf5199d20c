package kubernetes

import (
	"context"
	"fmt"
	"io"
	"maps"
	"path"
	"slices"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	client "k8s.io/client-go/kubernetes"
	"k8s.io/cri-streaming/pkg/streaming/remotecommand"
	utilexec "k8s.io/utils/exec"
)

// shell runs the few commands of a container that the API can answer.
type shell struct {
	client    client.Interface
	pod       *corev1.Pod
	container *corev1.Container
}

// ExecInContainer runs a command. One that is not known ends as one that the image lacks: 127.
func (s *shell) ExecInContainer(ctx context.Context, _, _, _ string, command []string, _ io.Reader,
	out, errors io.WriteCloser, _ bool, _ <-chan remotecommand.TerminalSize, _ time.Duration) error {
	if errors == nil {
		errors = out // a terminal
	}
	code, text := s.run(ctx, command)
	to := out
	if code != 0 {
		to = errors
	}
	if _, err := io.WriteString(to, text); err != nil {
		return err
	}
	if err := to.Close(); err != nil { // or its end is lost with the connection
		return err
	}
	if code != 0 {
		return utilexec.CodeExitError{Code: code,
			Err: fmt.Errorf("command terminated with exit code %d", code)}
	}
	return nil
}

// run returns a command's exit code, and what it prints.
func (s *shell) run(ctx context.Context, command []string) (code int, text string) {
	name, args := path.Base(command[0]), command[1:]
	switch name {
	case "true":
		return 0, ""
	case "false":
		return 1, ""
	case "hostname":
		return 0, s.hostname() + "\n"
	case "echo":
		return 0, strings.Join(args, " ") + "\n"
	case "env", "printenv":
		return s.printEnvironment(ctx, args)
	case "cat":
		for _, file := range args {
			content, is := s.file(ctx, file)
			if !is {
				return 1, fmt.Sprintf("cat: %s: No such file or directory\n", file)
			}
			text += content
		}
		return 0, text
	}
	return 127, fmt.Sprintf("lab: %s: no image runs here; there are cat, echo, env, hostname, printenv, "+
		"true and false\n", name)
}

func (s *shell) hostname() string {
	if s.pod.Spec.HostNetwork {
		return s.pod.Spec.NodeName
	}
	return s.pod.Name
}

func (s *shell) printEnvironment(ctx context.Context, names []string) (code int, text string) {
	all := s.environment(ctx)
	if len(names) == 0 {
		for _, name := range slices.Sorted(maps.Keys(all)) {
			text += name + "=" + all[name] + "\n"
		}
		return 0, text
	}
	for _, name := range names {
		value, is := all[name]
		if !is {
			return 1, text
		}
		text += value + "\n"
	}
	return 0, text
}

// environment is what a kubelet gives the container.
func (s *shell) environment(ctx context.Context) map[string]string {
	all := map[string]string{"HOSTNAME": s.hostname(),
		"PATH": "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"}
	for _, from := range s.container.EnvFrom {
		var data map[string]string
		if from.ConfigMapRef != nil {
			data = s.data(ctx, false, from.ConfigMapRef.Name)
		}
		if from.SecretRef != nil {
			data = s.data(ctx, true, from.SecretRef.Name)
		}
		for name, value := range data {
			all[from.Prefix+name] = value
		}
	}
	for _, e := range s.container.Env {
		all[e.Name] = e.Value
		switch from := e.ValueFrom; {
		case from == nil:
		case from.ConfigMapKeyRef != nil:
			all[e.Name] = s.data(ctx, false, from.ConfigMapKeyRef.Name)[from.ConfigMapKeyRef.Key]
		case from.SecretKeyRef != nil:
			all[e.Name] = s.data(ctx, true, from.SecretKeyRef.Name)[from.SecretKeyRef.Key]
		case from.FieldRef != nil:
			all[e.Name] = map[string]string{"metadata.name": s.pod.Name,
				"metadata.namespace": s.pod.Namespace, "spec.nodeName": s.pod.Spec.NodeName,
				"status.podIP": s.pod.Status.PodIP, "status.hostIP": s.pod.Status.HostIP,
			}[from.FieldRef.FieldPath]
		}
	}
	return all
}

// data is that of a Secret or a ConfigMap of the Pod's namespace; empty without one.
func (s *shell) data(ctx context.Context, secret bool, name string) map[string]string {
	all := map[string]string{}
	if !secret {
		if object, err := s.client.CoreV1().ConfigMaps(s.pod.Namespace).Get(ctx, name,
			metav1.GetOptions{}); err == nil {
			maps.Copy(all, object.Data)
		}
		return all
	}
	object, err := s.client.CoreV1().Secrets(s.pod.Namespace).Get(ctx, name, metav1.GetOptions{})
	if err == nil {
		for key, value := range object.Data {
			all[key] = string(value)
		}
	}
	return all
}

// file is the content of a file that a ConfigMap or a Secret puts into the container.
func (s *shell) file(ctx context.Context, file string) (content string, is bool) {
	for _, mount := range s.container.VolumeMounts {
		rest, below := strings.CutPrefix(path.Clean(file), path.Clean(mount.MountPath))
		if !below || rest != "" && rest[0] != '/' {
			continue
		}
		at := slices.IndexFunc(s.pod.Spec.Volumes, func(v corev1.Volume) bool { return v.Name == mount.Name })
		if at < 0 {
			continue
		}
		content, is = s.files(ctx, s.pod.Spec.Volumes[at])[path.Join(mount.SubPath, rest[min(1, len(rest)):])]
		if is {
			return content, true
		}
	}
	return "", false
}

// files are those of a volume, by their path in it.
func (s *shell) files(ctx context.Context, v corev1.Volume) map[string]string {
	var data map[string]string
	var items []corev1.KeyToPath
	switch {
	case v.ConfigMap != nil:
		data, items = s.data(ctx, false, v.ConfigMap.Name), v.ConfigMap.Items
	case v.Secret != nil:
		data, items = s.data(ctx, true, v.Secret.SecretName), v.Secret.Items
	}
	if len(items) == 0 {
		return data
	}
	chosen := map[string]string{}
	for _, item := range items {
		chosen[item.Path] = data[item.Key]
	}
	return chosen
}
