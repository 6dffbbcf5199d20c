package kubernetes_test

import (
	"bytes"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes/scheme"
	"k8s.io/client-go/tools/portforward"
	"k8s.io/client-go/tools/remotecommand"
	"k8s.io/client-go/transport/spdy"

	"github.com/ephemeral-castle/castle/lab/internal/kubernetes"
)

// runningPod is the Pod of the Deployment operator.
func runningPod(t *testing.T, c *kubernetes.Cluster) corev1.Pod {
	t.Helper()
	pods, err := c.Client.CoreV1().Pods("default").List(t.Context(), metav1.ListOptions{
		LabelSelector: "app=operator"})
	check(t, err)
	if len(pods.Items) != 1 {
		t.Fatalf("%d Pods", len(pods.Items))
	}
	return pods.Items[0]
}

// answerPods asks for what kubectl logs, exec and port-forward do.
func answerPods(t *testing.T, c *kubernetes.Cluster, folder string) {
	pod := runningPod(t, c)
	last := int64(1)
	logs := func(options corev1.PodLogOptions) (string, error) {
		stream, err := c.Client.CoreV1().Pods("default").GetLogs(pod.Name, &options).Stream(t.Context())
		if err != nil {
			return "", err
		}
		defer stream.Close()
		text, err := io.ReadAll(stream)
		return string(text), err
	}
	if text, err := logs(corev1.PodLogOptions{Timestamps: true}); err != nil ||
		!strings.Contains(text, "Z lab: container c is started") || strings.Count(text, "\n") != 2 {
		t.Errorf("logs: %q, %v", text, err)
	}
	if text, err := logs(corev1.PodLogOptions{TailLines: &last}); err != nil ||
		text != "lab: the Pod's containers are ready\n" {
		t.Errorf("the last line: %q, %v", text, err)
	}
	if _, err := logs(corev1.PodLogOptions{Previous: true}); err == nil ||
		!strings.Contains(err.Error(), "previous terminated container") {
		t.Errorf("logs of a former container: %v", err)
	}
	file := filepath.Join(folder, "operator.log")
	const begun = `{"ts":"2026-01-02T03:04:05.000Z","msg":"begun"}` + "\n"
	check(t, os.WriteFile(file, []byte(begun+"second\n"), 0o600))
	if text, err := logs(corev1.PodLogOptions{Timestamps: true}); err != nil ||
		text != "2026-01-02T03:04:05Z "+begun+"2026-01-02T03:04:05Z second\n" {
		t.Errorf("logs of the process in its place: %q, %v", text, err)
	}
	check(t, os.Remove(file))
	for command, want := range map[string]string{
		"hostname":                        pod.Name + "\n",
		"printenv GREETING FROM":          "hello\nfrom the ConfigMap\n",
		"cat /etc/operator/greeting.conf": "from the ConfigMap",
		"cat /etc/operator/none":          "cat: /etc/operator/none: No such file or directory\n1",
		"ls /": "lab: ls: no image runs here; there are cat, echo, env, hostname, printenv, true and " +
			"false\n127",
	} {
		if have := execute(t, c, pod, strings.Fields(command)); have != want {
			t.Errorf("%s: %q, want %q", command, have, want)
		}
	}
	c.Routes.Register("default/operator:8080", listening(t, "the operator"))
	defer c.Routes.Unregister("default/operator:8080")
	if have, err := forwarded(t, c, pod, 8080); err != nil || have != "the operator" {
		t.Errorf("port 8080: %q, %v", have, err)
	}
	if have, _ := forwarded(t, c, pod, 8081); have != "" { //nolint:errcheck // the connection just ends
		t.Errorf("port 8081, at which nobody listens: %q", have)
	}
}

// execute returns what a command prints, and its exit code where it fails.
func execute(t *testing.T, c *kubernetes.Cluster, pod corev1.Pod, command []string) string {
	t.Helper()
	url := c.Client.CoreV1().RESTClient().Post().Resource("pods").Namespace(pod.Namespace).Name(pod.Name).
		SubResource("exec").VersionedParams(&corev1.PodExecOptions{Command: command, Stdout: true,
		Stderr: true}, scheme.ParameterCodec).URL()
	e, err := remotecommand.NewSPDYExecutor(c.REST, http.MethodPost, url)
	check(t, err)
	var out, errors bytes.Buffer
	err = e.StreamWithContext(t.Context(), remotecommand.StreamOptions{Stdout: &out, Stderr: &errors})
	if code, is := err.(interface{ ExitStatus() int }); is {
		return out.String() + errors.String() + fmt.Sprint(code.ExitStatus())
	}
	check(t, err)
	return out.String() + errors.String()
}

// listening is the address of a listener that says one thing to each caller.
func listening(t *testing.T, word string) string {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	check(t, err)
	t.Cleanup(func() { l.Close() })
	go func() {
		for {
			caller, err := l.Accept()
			if err != nil {
				return
			}
			io.WriteString(caller, word) //nolint:errcheck // the caller reads it
			caller.Close()
		}
	}()
	return l.Addr().String()
}

// forwarded is what a port of a Pod says to a caller of the forwarded one.
func forwarded(t *testing.T, c *kubernetes.Cluster, pod corev1.Pod, port int) (string, error) {
	t.Helper()
	url := c.Client.CoreV1().RESTClient().Post().Resource("pods").Namespace(pod.Namespace).Name(pod.Name).
		SubResource("portforward").URL()
	transport, upgrader, err := spdy.RoundTripperFor(c.REST)
	check(t, err)
	ready, stop, ended := make(chan struct{}), make(chan struct{}), make(chan error, 1)
	f, err := portforward.New(spdy.NewDialer(upgrader, &http.Client{Transport: transport}, http.MethodPost,
		url), []string{fmt.Sprintf("0:%d", port)}, stop, ready, io.Discard, io.Discard)
	check(t, err)
	go func() { ended <- f.ForwardPorts() }()
	defer func() { close(stop); <-ended }()
	select {
	case err := <-ended:
		ended <- err
		return "", err
	case <-ready:
	}
	ports, err := f.GetPorts()
	check(t, err)
	caller, err := net.Dial("tcp", fmt.Sprintf("127.0.0.1:%d", ports[0].Local))
	check(t, err)
	defer caller.Close()
	text, err := io.ReadAll(caller)
	return string(text), err
}
