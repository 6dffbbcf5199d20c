package cilium

import (
	"context"
	"errors"
	"reflect"
	"slices"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/ephemeral-castle/castle/lab/internal/operators/cluster"
)

// connects is about how long an agent needs for a session: its first attempt, and the router's answer.
const connects = 5 * time.Second

// bgp is a resource of Cilium's BGP control plane.
func bgp(plural string) schema.GroupVersionResource {
	return schema.GroupVersionResource{Group: "cilium.io", Version: "v2", Resource: plural}
}

// instances are the spec of a CiliumBGPClusterConfig or a CiliumBGPNodeConfig, and the status of the latter.
type instances struct {
	All []instance `json:"bgpInstances"`
}

type instance struct {
	Name     string  `json:"name"`
	LocalASN int64   `json:"localASN,omitempty"`
	Peers    []*peer `json:"peers,omitempty"`
}

type peer struct {
	Name         string  `json:"name"`
	PeerAddress  string  `json:"peerAddress"`
	PeerASN      int64   `json:"peerASN,omitempty"`
	Config       *config `json:"peerConfigRef,omitempty"`
	PeeringState string  `json:"peeringState,omitempty"`
}

type config struct {
	Name string `json:"name"`
}

// instancesOf reads the instances in an object's spec.
func instancesOf(o unstructured.Unstructured) (i instances, _ error) {
	return i, runtime.DefaultUnstructuredConverter.FromUnstructured(cluster.Nested(o.Object, "spec"), &i)
}

// speaks has the operator give each node its sessions, and the agents open them. Sources: operator/pkg/bgp
// and pkg/bgp of Cilium 1.18.
func (c *Cilium) speaks(ctx context.Context, nodes []corev1.Node, agents []corev1.Pod) error {
	enabled, err := c.config(ctx, "enable-bgp-control-plane")
	if err != nil || enabled != "true" {
		return err
	}
	clusters, err := c.w.List(ctx, bgp("ciliumbgpclusterconfigs"), "")
	if err != nil {
		return err
	}
	configs, err := c.w.List(ctx, bgp("ciliumbgppeerconfigs"), "")
	if err != nil {
		return err
	}
	have, err := c.w.List(ctx, bgp("ciliumbgpnodeconfigs"), "")
	if err != nil {
		return err
	}
	var errs []error
	want := map[string]*unstructured.Unstructured{}
	for _, o := range clusters {
		selector, err := selectorOf(o.Object, "spec", "nodeSelector")
		if err != nil {
			return err
		}
		selected := slices.DeleteFunc(slices.Clone(nodes), func(n corev1.Node) bool {
			return !selector.Matches(labels.Set(n.Labels))
		})
		for _, n := range selected {
			want[n.Name] = nodeConfig(n.Name, &o)
		}
		lacks, err := missing(o, configs)
		if err != nil {
			return err
		}
		errs = append(errs, c.w.SetStatus(ctx, bgp("ciliumbgpclusterconfigs"), &o, func(s map[string]any) {
			c.warn(s, o, "cilium.io/NoMatchingNode", len(selected) == 0)
			c.warn(s, o, "cilium.io/MissingPeerConfigs", lacks)
		}))
	}
	usable, err := c.authenticated(ctx, configs)
	return errors.Join(append(errs, err, c.configure(ctx, have, want),
		c.connect(ctx, have, usable, agents))...)
}

// authenticated are the CiliumBGPPeerConfigs without those whose password is missing: an agent then uses an
// empty one, which the lab's routers refuse.
func (c *Cilium) authenticated(ctx context.Context, configs []unstructured.Unstructured) (
	usable []unstructured.Unstructured, _ error) {
	for _, o := range configs {
		secret := cluster.Text(cluster.Nested(o.Object, "spec"), "authSecretRef")
		if secret != "" {
			found, err := c.w.Typed.CoreV1().Secrets("kube-system").Get(ctx, secret, metav1.GetOptions{})
			if err != nil && !apierrors.IsNotFound(err) {
				return nil, err
			}
			if err != nil || len(found.Data["password"]) == 0 {
				continue
			}
		}
		usable = append(usable, o)
	}
	return usable, nil
}

// warn puts one of the operator's conditions into a status. They are True where something is wrong.
func (c *Cilium) warn(status map[string]any, o unstructured.Unstructured, typ string, wrong bool) {
	value := map[bool]string{true: "True", false: "False"}[wrong]
	c.w.SetCondition(status, typ, value, strings.TrimPrefix(typ, "cilium.io/"), "", o.GetGeneration())
}

// nodeConfig is what the operator makes of a CiliumBGPClusterConfig for a node.
func nodeConfig(node string, of *unstructured.Unstructured) *unstructured.Unstructured {
	isController := true
	object := &unstructured.Unstructured{Object: map[string]any{"apiVersion": "cilium.io/v2",
		"kind": "CiliumBGPNodeConfig",
		"spec": map[string]any{"bgpInstances": cluster.Nested(of.Object, "spec")["bgpInstances"]}}}
	object.SetName(node)
	object.SetOwnerReferences([]metav1.OwnerReference{{APIVersion: "cilium.io/v2",
		Kind: "CiliumBGPClusterConfig", Name: of.GetName(), UID: of.GetUID(), Controller: &isController}})
	return object
}

// missing reports whether a session of an object refers to a CiliumBGPPeerConfig that does not exist.
func missing(o unstructured.Unstructured, configs []unstructured.Unstructured) (bool, error) {
	all, err := instancesOf(o)
	for _, i := range all.All {
		for _, p := range i.Peers {
			is := func(o unstructured.Unstructured) bool { return p.Config.Name == o.GetName() }
			if p.Config != nil && !slices.ContainsFunc(configs, is) {
				return true, err
			}
		}
	}
	return false, err
}

// configure creates, updates and deletes the objects by which agents know their sessions.
func (c *Cilium) configure(ctx context.Context, have []unstructured.Unstructured,
	want map[string]*unstructured.Unstructured) error {
	in, known := c.w.Untyped.Resource(bgp("ciliumbgpnodeconfigs")), map[string]bool{}
	var errs []error
	for _, o := range have {
		known[o.GetName()] = true
		var err error
		switch w := want[o.GetName()]; {
		case w == nil:
			err = in.Delete(ctx, o.GetName(), metav1.DeleteOptions{})
		case !reflect.DeepEqual(o.Object["spec"], w.Object["spec"]):
			changed := o.DeepCopy()
			changed.Object["spec"] = w.Object["spec"]
			_, err = in.Update(ctx, changed, metav1.UpdateOptions{})
		}
		errs = append(errs, cluster.Unless(err, gone))
	}
	for name, w := range want {
		if !known[name] {
			_, err := in.Create(ctx, w, metav1.CreateOptions{})
			errs = append(errs, cluster.Unless(err, apierrors.IsAlreadyExists))
		}
	}
	return errors.Join(errs...)
}

// connect has each agent open its sessions. The lab's routers expect every node, and know no AS number.
func (c *Cilium) connect(ctx context.Context, nodes, configs []unstructured.Unstructured,
	agents []corev1.Pod) error {
	var errs []error
	for _, o := range nodes {
		step := "bgp " + o.GetName()
		lacks, err := missing(o, configs)
		if err != nil {
			return err
		}
		if lacks {
			c.w.Restart(step)
		}
		if !slices.ContainsFunc(agents, func(a corev1.Pod) bool {
			return a.Spec.NodeName == o.GetName() && ready(a)
		}) {
			c.w.Restart(step) // and the last status stays
			continue
		}
		state := "active"
		if !lacks && c.w.Passed(step, connects) {
			state = "established"
		}
		all, err := instancesOf(o)
		if err != nil {
			return err
		}
		for _, i := range all.All {
			for _, p := range i.Peers {
				p.Config, p.PeeringState = nil, state
			}
		}
		status, err := runtime.DefaultUnstructuredConverter.ToUnstructured(&all)
		if err != nil {
			return err
		}
		errs = append(errs, c.w.SetStatus(ctx, bgp("ciliumbgpnodeconfigs"), &o, func(s map[string]any) {
			s["bgpInstances"] = status["bgpInstances"]
		}))
	}
	return errors.Join(errs...)
}
