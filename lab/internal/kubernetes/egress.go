package kubernetes

import (
	"context"
	"errors"
	"fmt"
	"net"
	"os"
	"strconv"
	"sync"
	"syscall"

	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	utilnet "k8s.io/apimachinery/pkg/util/net"
	"k8s.io/apiserver/pkg/server/egressselector"
	client "k8s.io/client-go/kubernetes"
	"k8s.io/klog/v2"
)

// Routes map a workload's Pods to a local process. They may change at any time: a webhook without a
// route is a webhook whose process does not listen yet.
type Routes struct {
	mu sync.RWMutex
	to map[string]string
}

// Register leads "namespace/app:port", app being the name of the Deployment,
// DaemonSet or StatefulSet and port the container's, to a loopback address.
func (r *Routes) Register(workload, address string) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.to == nil {
		r.to = map[string]string{}
	}
	r.to[workload] = address
}

// Unregister ends what Register began; calls are refused from now on.
func (r *Routes) Unregister(workload string) {
	r.mu.Lock()
	defer r.mu.Unlock()
	delete(r.to, workload)
}

func (r *Routes) lookup(workload string) (string, bool) {
	r.mu.RLock()
	defer r.mu.RUnlock()
	to, ok := r.to[workload]
	return to, ok
}

// egress stands in for kube-proxy and the Pod network on the API server's own
// outgoing calls. It dials the loopback and nothing else.
type egress struct {
	client client.Interface
	routes *Routes
	nodes  *kubelets
}

func (e *egress) selector() *egressselector.EgressSelector {
	return egressselector.NewEgressSelectorWithMap(map[egressselector.EgressType]utilnet.DialFunc{
		egressselector.Cluster: e.dial,
	})
}

func (e *egress) dial(ctx context.Context, network, address string) (net.Conn, error) {
	host, port, err := net.SplitHostPort(address)
	if err != nil {
		return nil, err
	}
	if port == strconv.Itoa(kubeletPort) {
		return e.nodes.dial(ctx, network, host)
	}
	target := address
	if ip := net.ParseIP(host); host != "localhost" && (ip == nil || !ip.IsLoopback()) {
		number, err := strconv.ParseInt(port, 10, 32)
		if err != nil {
			return nil, err
		}
		if target, err = e.resolve(ctx, host, int32(number)); err != nil {
			klog.InfoS("No way to a Pod", "address", address, "reason", err.Error())
			return nil, refused(network, address)
		}
	}
	var d net.Dialer
	c, err := d.DialContext(ctx, network, target)
	if errors.Is(err, syscall.ECONNREFUSED) {
		return nil, refused(network, address)
	}
	return c, err
}

func refused(network, address string) error { return failed(network, address, syscall.ECONNREFUSED) }

// failed returns the kernel's own error, with the requested address.
func failed(network, address string, why syscall.Errno) error {
	a, err := net.ResolveTCPAddr("tcp", address)
	if err != nil {
		return err
	}
	return &net.OpError{Op: "dial", Net: network, Addr: a, Err: os.NewSyscallError("connect", why)}
}

// resolve finds the local process behind a Service's cluster IP and port.
func (e *egress) resolve(ctx context.Context, clusterIP string, port int32) (string, error) {
	services, err := e.client.CoreV1().Services("").List(ctx, metav1.ListOptions{})
	if err != nil {
		return "", err
	}
	for _, s := range services.Items {
		if s.Spec.ClusterIP != clusterIP {
			continue
		}
		for _, p := range s.Spec.Ports {
			if p.Port == port {
				return e.endpoint(ctx, s.Namespace, s.Name, p.Name)
			}
		}
	}
	return "", errors.New("no Service has this address and port")
}

func (e *egress) endpoint(ctx context.Context, namespace, service, portName string) (string, error) {
	slices, err := e.client.DiscoveryV1().EndpointSlices(namespace).List(ctx,
		metav1.ListOptions{LabelSelector: discoveryv1.LabelServiceName + "=" + service})
	if err != nil {
		return "", err
	}
	for _, slice := range slices.Items {
		for _, p := range slice.Ports {
			if p.Name == nil || p.Port == nil || *p.Name != portName {
				continue
			}
			for _, ep := range slice.Endpoints {
				if ep.Conditions.Ready != nil && *ep.Conditions.Ready && ep.TargetRef != nil {
					return e.process(ctx, ep.TargetRef.Namespace, ep.TargetRef.Name, *p.Port)
				}
			}
		}
	}
	return "", fmt.Errorf("service %s/%s has no ready endpoint", namespace, service)
}

func (e *egress) process(ctx context.Context, namespace, pod string, port int32) (string, error) {
	p, err := e.client.CoreV1().Pods(namespace).Get(ctx, pod, metav1.GetOptions{})
	if err != nil {
		return "", err
	}
	workload := fmt.Sprintf("%s/%s:%d", namespace, e.owner(ctx, p), port)
	if to, ok := e.routes.lookup(workload); ok {
		return to, nil
	}
	return "", fmt.Errorf("no process is registered for %s", workload)
}

// owner is the name of the Deployment, DaemonSet or StatefulSet of a Pod.
func (e *egress) owner(ctx context.Context, p *corev1.Pod) string {
	if len(p.OwnerReferences) == 0 {
		return p.Name
	}
	o := p.OwnerReferences[0]
	if o.Kind != "ReplicaSet" {
		return o.Name
	}
	set, err := e.client.AppsV1().ReplicaSets(p.Namespace).Get(ctx, o.Name, metav1.GetOptions{})
	if err != nil || len(set.OwnerReferences) == 0 {
		return o.Name
	}
	return set.OwnerReferences[0].Name
}
