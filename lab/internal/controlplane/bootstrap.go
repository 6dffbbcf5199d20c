package controlplane

import (
	"context"
	"errors"
	"io"
	"strings"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/util/yaml"
	"k8s.io/client-go/discovery/cached/memory"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/restmapper"

	"github.com/ephemeral-castle/castle/lab/internal/kubernetes"
)

// Talos applies these to every new cluster. Only the parts that clients can see are here: the
// names, the kinds and the nodes of the Pods.
const (
	flannel = `
apiVersion: apps/v1
kind: DaemonSet
metadata: {name: kube-flannel, namespace: kube-system, labels: {k8s-app: flannel, tier: node}}
spec:
  selector: {matchLabels: {k8s-app: flannel}}
  template:
    metadata: {labels: {k8s-app: flannel, tier: node}}
    spec:
      hostNetwork: true
      priorityClassName: system-node-critical
      tolerations: [{operator: Exists}]
      containers: [{name: kube-flannel, image: "ghcr.io/siderolabs/flannel:v0.28.4"}]
`
	kubeProxy = `
apiVersion: apps/v1
kind: DaemonSet
metadata: {name: kube-proxy, namespace: kube-system, labels: {k8s-app: kube-proxy, tier: node}}
spec:
  selector: {matchLabels: {k8s-app: kube-proxy}}
  template:
    metadata: {labels: {k8s-app: kube-proxy, tier: node}}
    spec:
      hostNetwork: true
      priorityClassName: system-cluster-critical
      tolerations: [{operator: Exists}]
      containers: [{name: kube-proxy, image: "registry.k8s.io/kube-proxy:v1.36.0"}]
`
	coreDNS = `
apiVersion: v1
kind: Service
metadata: {name: kube-dns, namespace: kube-system, labels: {k8s-app: kube-dns}}
spec:
  selector: {k8s-app: kube-dns}
  ports: [{name: dns, port: 53, protocol: UDP}, {name: dns-tcp, port: 53}]
---
apiVersion: apps/v1
kind: Deployment
metadata: {name: coredns, namespace: kube-system, labels: {k8s-app: kube-dns}}
spec:
  replicas: 2
  selector: {matchLabels: {k8s-app: kube-dns}}
  template:
    metadata: {labels: {k8s-app: kube-dns}}
    spec:
      priorityClassName: system-cluster-critical
      tolerations: [{key: node-role.kubernetes.io/control-plane, operator: Exists, effect: NoSchedule}]
      containers: [{name: coredns, image: "registry.k8s.io/coredns/coredns:v1.14.2"}]
`
)

// applyBootstrap creates the missing objects in order.
func applyBootstrap(ctx context.Context, c *kubernetes.Cluster, o Order) error {
	objects, err := dynamic.NewForConfig(c.REST)
	if err != nil {
		return err
	}
	mapper := restmapper.NewDeferredDiscoveryRESTMapper(memory.NewMemCacheClient(c.Client.Discovery()))
	var texts []string
	for _, part := range []struct {
		text    string
		without bool
	}{{flannel, o.Kubernetes.Network != ""}, {kubeProxy, o.WithoutProxy}, {coreDNS, !o.CoreDNS}} {
		if !part.without {
			texts = append(texts, part.text)
		}
	}
	for _, text := range append(texts, o.Manifests...) {
		for docs := yaml.NewYAMLOrJSONDecoder(strings.NewReader(text), 4096); ; {
			u := &unstructured.Unstructured{}
			err := docs.Decode(&u.Object)
			if errors.Is(err, io.EOF) {
				break
			}
			if err != nil {
				return err
			}
			if len(u.Object) == 0 {
				continue
			}
			if err := create(ctx, objects, mapper, u); err != nil {
				return err
			}
		}
	}
	return nil
}

func create(ctx context.Context, objects dynamic.Interface, mapper *restmapper.DeferredDiscoveryRESTMapper,
	u *unstructured.Unstructured) error {
	kind := u.GroupVersionKind()
	m, err := mapper.RESTMapping(schema.GroupKind{Group: kind.Group, Kind: kind.Kind}, kind.Version)
	if err != nil {
		return err
	}
	_, err = objects.Resource(m.Resource).Namespace(u.GetNamespace()).Create(ctx, u,
		metav1.CreateOptions{FieldManager: "talos"})
	if apierrors.IsAlreadyExists(err) {
		return nil
	}
	return err
}
