package kubernetes

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	client "k8s.io/client-go/kubernetes"
	"k8s.io/cri-streaming/pkg/streaming/portforward"
	"k8s.io/cri-streaming/pkg/streaming/remotecommand"
	"k8s.io/kubernetes/pkg/api/legacyscheme"
)

// kubeletPort is where a kubelet serves the API server, and streamTime bounds how long its streams may idle.
const (
	kubeletPort = 10250
	streamTime  = time.Hour
)

// kubelets serve what the API server asks the nodes for: kubectl logs, exec and port-forward. No container
// runs, so logs tell what the API shows of one, or what the process in its place logs; a command sees its
// environment and its files, and a port leads to the process that stands in for its workload. They listen in
// memory: only the API server is there.
type kubelets struct {
	client client.Interface
	folder string // with the logs of such processes, a file for each Deployment
	egress *egress
	conns  chan net.Conn
	closed chan struct{}
	once   sync.Once
	server *http.Server
}

func newKubelets(api client.Interface, e *egress, ca KeyPair, logs string) (*kubelets, error) {
	signer, err := parseAuthority(ca)
	if err != nil {
		return nil, fmt.Errorf("CA: %w", err)
	}
	pair, err := signer.issue(subject{name: "system:node:lab", org: "system:nodes",
		use: x509.ExtKeyUsageServerAuth})
	if err != nil {
		return nil, err
	}
	certificate, err := tls.X509KeyPair(pair.Certificate, pair.Key)
	if err != nil {
		return nil, err
	}
	k := &kubelets{client: api, folder: logs, egress: e, conns: make(chan net.Conn),
		closed: make(chan struct{})}
	mux := http.NewServeMux()
	mux.HandleFunc("GET /containerLogs/{namespace}/{pod}/{container}", k.logs)
	for _, path := range []string{"/exec/{namespace}/{pod}/{container}",
		"/exec/{namespace}/{pod}/{uid}/{container}"} {
		mux.HandleFunc(path, k.exec)
	}
	for _, path := range []string{"/portForward/{namespace}/{pod}", "/portForward/{namespace}/{pod}/{uid}"} {
		mux.HandleFunc(path, k.forward)
	}
	k.server = &http.Server{Handler: mux, ErrorLog: log.New(io.Discard, "", 0),
		TLSConfig: &tls.Config{Certificates: []tls.Certificate{certificate},
			NextProtos: []string{"http/1.1"}}}
	k.server.SetKeepAlivesEnabled(false) // the next request may be for another node
	return k, nil
}

// run serves until ctx ends.
func (k *kubelets) run(ctx context.Context) error {
	stop := context.AfterFunc(ctx, func() { k.server.Close() })
	defer stop()
	if err := k.server.ServeTLS(k, "", ""); !errors.Is(err, http.ErrServerClosed) {
		return err
	}
	return nil
}

// Accept, Close and Addr make kubelets the listener of their server.
func (k *kubelets) Accept() (net.Conn, error) {
	select {
	case c := <-k.conns:
		return c, nil
	case <-k.closed:
		return nil, net.ErrClosed
	}
}

// Close has nobody connect any more.
func (k *kubelets) Close() error {
	k.once.Do(func() { close(k.closed) })
	return nil
}

// Addr is nobody's.
func (k *kubelets) Addr() net.Addr { return &net.TCPAddr{Port: kubeletPort} }

// dial connects to the kubelet of the node at an address. A machine that is off answers nobody.
func (k *kubelets) dial(ctx context.Context, network, host string) (net.Conn, error) {
	nodes, err := k.client.CoreV1().Nodes().List(ctx, metav1.ListOptions{
		LabelSelector: runningLabel + "=true", ResourceVersion: "0"})
	if err != nil {
		return nil, err
	}
	is := func(a corev1.NodeAddress) bool { return a.Address == host }
	if !slices.ContainsFunc(nodes.Items, func(n corev1.Node) bool {
		return slices.ContainsFunc(n.Status.Addresses, is)
	}) {
		return nil, failed(network, net.JoinHostPort(host, strconv.Itoa(kubeletPort)), syscall.EHOSTUNREACH)
	}
	ours, theirs := net.Pipe()
	select {
	case k.conns <- theirs:
		return ours, nil
	case <-k.closed:
		return nil, net.ErrClosed
	case <-ctx.Done():
		return nil, context.Cause(ctx)
	}
}

// find returns the Pod and the container of a request, or answers in the words of a kubelet.
func (k *kubelets) find(w http.ResponseWriter, r *http.Request) (*corev1.Pod, *corev1.Container) {
	pod, err := k.client.CoreV1().Pods(r.PathValue("namespace")).Get(r.Context(), r.PathValue("pod"),
		metav1.GetOptions{})
	if err != nil {
		http.Error(w, fmt.Sprintf("pod %q not found", r.PathValue("pod")), http.StatusNotFound)
		return nil, nil
	}
	for _, c := range slices.Concat(pod.Spec.InitContainers, pod.Spec.Containers) {
		if c.Name == r.PathValue("container") {
			return pod, &c
		}
	}
	return pod, nil
}

// logs serves kubectl logs.
func (k *kubelets) logs(w http.ResponseWriter, r *http.Request) {
	pod, container := k.find(w, r)
	if pod == nil {
		return
	}
	options := &corev1.PodLogOptions{}
	err := legacyscheme.ParameterCodec.DecodeParameters(r.URL.Query(), corev1.SchemeGroupVersion, options)
	switch {
	case err != nil:
	case container == nil:
		err = fmt.Errorf("container %q not found in pod %q", r.PathValue("container"), pod.Name)
	case options.Previous:
		err = fmt.Errorf("previous terminated container %q in pod %q not found", container.Name, pod.Name)
	case started(pod, container.Name).IsZero():
		err = fmt.Errorf("container %q in pod %q is waiting to start: ContainerCreating", container.Name,
			pod.Name)
	}
	if err != nil {
		http.Error(w, err.Error(), http.StatusBadRequest)
		return
	}
	w.WriteHeader(http.StatusOK)
	io.WriteString(w, k.logOf(pod, container, options)) //nolint:errcheck // it has gone
	http.NewResponseController(w).Flush()               //nolint:errcheck // likewise
	if options.Follow {
		k.whileRuns(r.Context(), pod)
	}
}

// whileRuns returns when a Pod ends, or the caller.
func (k *kubelets) whileRuns(ctx context.Context, pod *corev1.Pod) {
	tick := time.NewTicker(time.Second)
	defer tick.Stop()
	for {
		now, err := k.client.CoreV1().Pods(pod.Namespace).Get(ctx, pod.Name,
			metav1.GetOptions{ResourceVersion: "0"})
		if err != nil || now.UID != pod.UID || now.Status.Phase != corev1.PodRunning {
			return
		}
		select {
		case <-ctx.Done():
			return
		case <-tick.C:
		}
	}
}

// started is when a container has started; zero if it has not.
func started(pod *corev1.Pod, container string) (at time.Time) {
	for _, s := range slices.Concat(pod.Status.InitContainerStatuses, pod.Status.ContainerStatuses) {
		switch {
		case s.Name != container:
		case s.State.Running != nil:
			return s.State.Running.StartedAt.Time
		case s.State.Terminated != nil:
			return s.State.Terminated.StartedAt.Time
		}
	}
	return at
}

// line is one of a log.
type line struct {
	at   time.Time
	text string
}

// written are the lines of the process that runs in place of a Pod's container; none without one.
func (k *kubelets) written(pod *corev1.Pod) (all []line) {
	owner := metav1.GetControllerOf(pod)
	if k.folder == "" || owner == nil {
		return nil
	}
	deployment := owner.Name[:max(0, strings.LastIndex(owner.Name, "-"))] // without a ReplicaSet's hash
	text, err := os.ReadFile(filepath.Join(k.folder, filepath.Base(deployment)+".log"))
	if err != nil {
		return nil
	}
	at := pod.CreationTimestamp.Time
	for one := range strings.Lines(string(text)) {
		var stamp struct{ TS string }
		if json.Unmarshal([]byte(one), &stamp) == nil {
			for _, layout := range []string{time.RFC3339Nano, "2006-01-02T15:04:05.000Z0700"} {
				if t, err := time.Parse(layout, stamp.TS); err == nil {
					at = t
				}
			}
		}
		all = append(all, line{at, strings.TrimSuffix(one, "\n")})
	}
	return all
}

// logOf is what the log of a container has of these options.
func (k *kubelets) logOf(pod *corev1.Pod, container *corev1.Container, options *corev1.PodLogOptions) string {
	all := []line{{started(pod, container.Name),
		fmt.Sprintf("lab: container %s is started, in the API alone: image %s does not run", container.Name,
			container.Image)}}
	for _, c := range pod.Status.Conditions {
		if c.Type == corev1.ContainersReady && c.Status == corev1.ConditionTrue {
			all = append(all, line{c.LastTransitionTime.Time, "lab: the Pod's containers are ready"})
		}
	}
	if process := k.written(pod); len(process) > 0 {
		all = process
	}
	since := time.Time{}
	if options.SinceTime != nil {
		since = options.SinceTime.Time
	}
	if options.SinceSeconds != nil {
		since = time.Now().Add(-time.Duration(*options.SinceSeconds) * time.Second)
	}
	all = slices.DeleteFunc(all, func(l line) bool { return l.at.Before(since) })
	if n := options.TailLines; n != nil {
		all = all[max(0, len(all)-int(*n)):]
	}
	var text strings.Builder
	for _, l := range all {
		if options.Timestamps {
			text.WriteString(l.at.UTC().Format(time.RFC3339Nano) + " ")
		}
		text.WriteString(l.text + "\n")
	}
	if n := options.LimitBytes; n != nil && int64(text.Len()) > *n {
		return text.String()[:*n]
	}
	return text.String()
}

// exec serves kubectl exec.
func (k *kubelets) exec(w http.ResponseWriter, r *http.Request) {
	pod, container := k.find(w, r)
	if pod == nil {
		return
	}
	if container == nil || started(pod, container.Name).IsZero() {
		http.Error(w, fmt.Sprintf("container not found (%q)", r.PathValue("container")),
			http.StatusNotFound)
		return
	}
	options, err := remotecommand.NewOptions(r)
	if err != nil {
		http.Error(w, err.Error(), http.StatusBadRequest)
		return
	}
	remotecommand.ServeExec(w, r, &shell{k.client, pod, container}, pod.Name, string(pod.UID), container.Name,
		r.URL.Query()["command"], options, streamTime, remotecommand.DefaultStreamCreationTimeout,
		remotecommand.SupportedStreamingProtocols)
}

// forward serves kubectl port-forward.
func (k *kubelets) forward(w http.ResponseWriter, r *http.Request) {
	pod, _ := k.find(w, r)
	if pod == nil {
		return
	}
	options, err := portforward.NewV4Options(r)
	if err != nil {
		http.Error(w, err.Error(), http.StatusBadRequest)
		return
	}
	portforward.ServePortForward(w, r, forwarder{k.egress, pod}, pod.Name, string(pod.UID), options,
		streamTime, remotecommand.DefaultStreamCreationTimeout, portforward.SupportedProtocols)
}

// forwarder leads a Pod's ports to the local process of its workload.
type forwarder struct {
	egress *egress
	pod    *corev1.Pod
}

// PortForward copies both ways until one side ends. Where no process stands in for the workload, nothing
// listens.
func (f forwarder) PortForward(ctx context.Context, _, _ string, port int32,
	stream io.ReadWriteCloser) error {
	defer stream.Close()
	address, err := f.egress.process(ctx, f.pod.Namespace, f.pod.Name, port)
	if err != nil {
		return fmt.Errorf("failed to connect to localhost:%d inside the Pod: %w", port,
			refused("tcp4", net.JoinHostPort("127.0.0.1", strconv.Itoa(int(port)))))
	}
	var d net.Dialer
	to, err := d.DialContext(ctx, "tcp", address)
	if err != nil {
		return err
	}
	defer to.Close()
	ended := make(chan error, 2)
	go func() { _, err := io.Copy(to, stream); ended <- err }()
	go func() { _, err := io.Copy(stream, to); ended <- err }()
	return <-ended
}
