package gates

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"maps"
	"regexp"
	"slices"
	"strings"

	"github.com/zclconf/go-cty/cty"
	corev1 "k8s.io/api/core/v1"
	storagev1 "k8s.io/api/storage/v1"

	"github.com/ephemeral-castle/castle/internal/gate"
	"github.com/ephemeral-castle/castle/internal/kube/client"
)

// nodes compares the registered nodes with the machines. Every one has to be ready: an unready one is an old
// node that came back, or has died. With names, a further node closes the gate: nothing deletes the node of a
// machine that is gone, and it would close the gate some minutes later, when nobody waits any more.
func nodes() definition {
	return definition{gate.Type{
		Name:    "nodes",
		Summary: "exactly the nodes in names are registered, or at least count nodes, and every one is ready",
		Attributes: map[string]gate.Attribute{
			"names": {Type: cty.List(cty.String), Valid: validEach(1, validName),
				Help: "the nodes that have to be registered, and no others"},
			"count": {Type: cty.Number, Valid: gate.ValidCount,
				Help: "how many nodes have to be registered, where names are not known"},
			"ready": {Type: cty.Bool, Help: "false only requires that they are registered, for a cluster " +
				"whose network comes later; default true"},
			"untainted": {Type: cty.List(cty.String), Valid: validEach(1, validWord),
				Help: `keys of taints that no node may have: ["node.cilium.io/agent-not-ready"]`},
			"provider": text(validWord, "the cloud that has to know every node: hcloud, of the provider id "+
				"hcloud://1000001"),
			"labels": {Type: cty.Map(cty.Map(cty.String)), Help: "by node, the labels that it has to have"},
			"taints": {Type: cty.Map(cty.Map(cty.String)), Help: "by node, the taints that it has to have: " +
				"key = \"value:effect\" or \"effect\""},
		},
		Check: func(v gate.Values) error {
			_, names := v["names"]
			if _, count := v["count"]; names == count {
				return errors.New("takes either names or count")
			}
			return nil
		},
	}, func(v gate.Values) (Check, error) {
		n := nodeCheck{count: v.Int("count"), ready: !v.Has("ready") || v.Bool("ready"),
			provider: v.String("provider")}
		err := errors.Join(v.Decode("names", &n.names), v.Decode("untainted", &n.untainted),
			v.Decode("labels", &n.labels), v.Decode("taints", &n.taints))
		if err != nil {
			return nil, err
		}
		return func(ctx context.Context, a *client.API) error {
			found, err := ListNodes(ctx, a, "")
			if err != nil {
				return err
			}
			if err := n.compare(found); err != nil {
				return err
			}
			return n.compareMetadata(found)
		}, nil
	}}
}

// nodeCheck is a nodes gate's arguments.
type nodeCheck struct {
	names     []string // any if empty
	untainted []string
	count     int
	ready     bool
	provider  string // any if empty

	labels, taints map[string]map[string]string // by node
}

func (n nodeCheck) compare(found []corev1.Node) error {
	var registered, unready []string
	for _, node := range found {
		registered = append(registered, node.Name)
		if node.DeletionTimestamp != nil {
			unready = append(unready, node.Name+" (is being deleted)")
		} else if why := NodeUnready(node); why != nil && n.ready {
			unready = append(unready, fmt.Sprintf("%s (%s)", node.Name, why.Text))
		} else if key := n.taint(node); key != "" {
			unready = append(unready, fmt.Sprintf("%s (has the taint %s)", node.Name, key))
		} else if !strings.HasPrefix(node.Spec.ProviderID, n.provider+"://") && n.provider != "" {
			unready = append(unready, fmt.Sprintf("%s (has no provider id %s://… yet)", node.Name,
				n.provider))
		}
	}
	isRegistered := func(name string) bool { return slices.Contains(registered, name) }
	missing, wanted := slices.DeleteFunc(slices.Clone(n.names), isRegistered), max(n.count, len(n.names))
	switch extra := n.extra(found); {
	case len(found) == 0:
		return problem(NodesMissing, "", "0 of %d nodes registered", wanted)
	case len(extra) > 0:
		return gate.Permanent(problem(NodeUnknown, "", "%s not in the configuration; once its machine is "+
			"gone: kubectl delete node %s", strings.Join(extra, ", "), strings.Join(extra, " ")))
	case len(missing) > 0:
		return problem(NodesMissing, "", "%d of %d nodes registered: %s missing", wanted-len(missing), wanted,
			client.Several(missing))
	case len(found) < n.count:
		return problem(NodesMissing, "", "%d of %d nodes registered: only %s", len(found), n.count,
			strings.Join(registered, ", "))
	case len(unready) > 0:
		return fmt.Errorf("%d of %d nodes not ready: %s", len(unready), len(found), client.Several(unready))
	}
	return nil
}

// taint is the key of a taint that the node may not have; empty if it has none.
func (n nodeCheck) taint(node corev1.Node) string {
	for _, t := range node.Spec.Taints {
		if slices.Contains(n.untainted, t.Key) {
			return t.Key
		}
	}
	return ""
}

// compareMetadata requires the labels and taints of each node. Talos sets those of a control plane with an
// administrator's rights; a worker sets its own, and Kubernetes lets no kubelet change taints.
func (n nodeCheck) compareMetadata(found []corev1.Node) error {
	for _, node := range found {
		what := "node " + node.Name
		for _, key := range slices.Sorted(maps.Keys(n.labels[node.Name])) {
			if value, has := node.Labels[key]; !has || value != n.labels[node.Name][key] {
				return problem("", what, "its label %s is not %q yet", key, n.labels[node.Name][key])
			}
		}
		for _, key := range slices.Sorted(maps.Keys(n.taints[node.Name])) {
			want := taintOf(key, n.taints[node.Name][key])
			if slices.ContainsFunc(node.Spec.Taints, func(has corev1.Taint) bool {
				return has.MatchTaint(&want) && has.Value == want.Value
			}) {
				continue
			}
			if _, controls := node.Labels["node-role.kubernetes.io/control-plane"]; controls {
				return problem("", what, "has no taint %s yet", want.ToString())
			}
			return gate.Permanent(problem("", what, "has no taint %s, and a worker gets its taints only "+
				"when it registers: kubectl taint node %s %[1]s --overwrite", want.ToString(), node.Name))
		}
	}
	return nil
}

// taintOf reads a taint as Talos writes it: "value:effect" or "effect".
func taintOf(key, text string) corev1.Taint {
	value, effect, found := strings.Cut(text, ":")
	if !found {
		value, effect = "", text
	}
	return corev1.Taint{Key: key, Value: value, Effect: corev1.TaintEffect(effect)}
}

// extra are the registered nodes that no name names, except those that are being deleted.
func (n nodeCheck) extra(found []corev1.Node) (names []string) {
	for _, node := range found {
		known := len(n.names) == 0 || slices.Contains(n.names, node.Name)
		if !known && node.DeletionTimestamp == nil {
			names = append(names, node.Name)
		}
	}
	return names
}

// ListNodes lists the nodes that a label selector selects, by name.
func ListNodes(ctx context.Context, a *client.API, selector string) ([]corev1.Node, error) {
	found, err := client.ListAs[corev1.Node](ctx, a,
		client.Selection{Resource: client.Core("nodes"), Labels: selector}, "Node")
	slices.SortFunc(found, func(a, b corev1.Node) int { return strings.Compare(a.Name, b.Name) })
	return found, err
}

// lacksNetwork is the kubelet's message while the container runtime has no network plugin that works.
var lacksNetwork = regexp.MustCompile("NetworkPluginNotReady|cni plugin not initialized")

// NodeUnready is the finding why a node takes no pods yet; nil if it does. A node that was cordoned by hand
// is ready. A podCIDR proves nothing: many networks hand out addresses of their own.
func NodeUnready(node corev1.Node) *gate.Finding {
	var ready *corev1.NodeCondition
	network := slices.ContainsFunc(node.Spec.Taints,
		func(t corev1.Taint) bool { return t.Key == corev1.TaintNodeNetworkUnavailable })
	for i, c := range node.Status.Conditions {
		switch c.Type {
		case corev1.NodeNetworkUnavailable:
			network = network || c.Status == corev1.ConditionTrue
		case corev1.NodeReady:
			ready = &node.Status.Conditions[i]
		}
	}
	what := "node " + node.Name
	switch {
	case ready == nil:
		return problem(gate.NeverReported, what, "has no condition Ready yet")
	case ready.Status != corev1.ConditionTrue:
		why := cmp.Or(client.Condition{Reason: ready.Reason, Message: ready.Message}.Why(), "not ready")
		if ready.Status == corev1.ConditionFalse && lacksNetwork.MatchString(ready.Message) {
			why = "no network yet: " + why
		}
		return problem("", what, "%s", why)
	case network:
		return problem(NoNetwork, what, "network unavailable")
	}
	return nil
}

// storageClass checks that a volume of a class could be created and mounted. The class and its driver exist,
// and the kubelet of every node that takes pods has registered the driver, whose pods run well before that.
func storageClass() definition {
	return definition{gate.Type{
		Name:    "storage_class",
		Summary: "a storage class exists and its CSI driver is registered on every node",
		Attributes: map[string]gate.Attribute{
			"name":    required(named("the class' name")),
			"driver":  named("the CSI driver's name; default the class' provisioner"),
			"default": {Type: cty.Bool, Help: "true requires that it is the cluster's one default class"},
			"selector": text(validSelector, "labels of the nodes that have to have the driver; default "+
				"every node that takes any pod"),
		},
	}, func(v gate.Values) (Check, error) {
		return storage{v.String("name"), v.String("driver"), v.String("selector"), v.Bool("default")}.check,
			nil
	}}
}

// storageOf selects a kind of the storage API, one object if named.
func storageOf(plural, name string) client.Selection {
	return client.Selection{Resource: storagev1.SchemeGroupVersion.WithResource(plural), Name: name}
}

// storage is a storage_class gate's arguments.
type storage struct {
	class, driver, selector string
	isDefault               bool
}

func (s storage) check(ctx context.Context, a *client.API) error {
	driver, err := s.checkClass(ctx, a)
	if err != nil {
		return err
	}
	csi, err := a.Get(ctx, storageOf("csidrivers", driver), "CSIDriver")
	if err != nil {
		return err
	}
	if found := terminating(csi); found != nil {
		return found
	}
	return s.checkNodes(ctx, a, driver)
}

// checkClass returns the driver's name.
func (s storage) checkClass(ctx context.Context, a *client.API) (string, error) {
	classes, err := client.ListAs[storagev1.StorageClass](ctx, a, storageOf("storageclasses", ""),
		"StorageClass")
	if err != nil {
		return "", err
	}
	at := slices.IndexFunc(classes, func(c storagev1.StorageClass) bool { return c.Name == s.class })
	if at < 0 {
		return "", client.NotFound("StorageClass", "", s.class)
	}
	var defaults []string
	for _, one := range classes {
		if one.Annotations["storageclass.kubernetes.io/is-default-class"] == "true" ||
			one.Annotations["storageclass.beta.kubernetes.io/is-default-class"] == "true" {
			defaults = append(defaults, one.Name)
		}
	}
	class, what := classes[at], client.Titled("storageclass", "", s.class)
	switch {
	case class.DeletionTimestamp != nil:
		return "", problem(Terminating, what, "is being deleted")
	case s.driver != "" && class.Provisioner != s.driver:
		return "", fmt.Errorf("%s: its provisioner is %s, not %s", what, class.Provisioner, s.driver)
	case s.isDefault && !slices.Contains(defaults, s.class):
		return "", fmt.Errorf("%s: is not the default class", what)
	case s.isDefault && len(defaults) > 1:
		slices.Sort(defaults)
		return "", fmt.Errorf("%s: is not the only default class: %s", what, strings.Join(defaults, ", "))
	}
	return cmp.Or(s.driver, class.Provisioner), nil
}

// checkNodes requires that every node that matters lists the driver.
func (s storage) checkNodes(ctx context.Context, a *client.API, driver string) error {
	nodes, err := ListNodes(ctx, a, s.selector)
	if err != nil {
		return err
	}
	csi, err := client.ListAs[storagev1.CSINode](ctx, a, storageOf("csinodes", ""), "CSINode")
	if err != nil {
		return err
	}
	matter, without := 0, []string(nil)
	for _, node := range nodes {
		if s.selector == "" && closedToPods(node) {
			continue
		}
		matter++
		if !slices.ContainsFunc(csi, func(one storagev1.CSINode) bool {
			return one.Name == node.Name && slices.ContainsFunc(one.Spec.Drivers,
				func(d storagev1.CSINodeDriver) bool { return d.Name == driver })
		}) {
			without = append(without, node.Name)
		}
	}
	switch {
	case matter == 0 && s.selector != "":
		return fmt.Errorf("no node with %s exists yet", s.selector)
	case matter == 0:
		return errors.New("no node takes pods yet")
	case len(without) > 0:
		return problem(gate.DriverMissing, client.Titled("csidriver", "", driver),
			"not registered on %d of %d nodes: %s", len(without), matter, client.Several(without))
	}
	return nil
}

// closedToPods reports whether somebody has set a node apart: a control plane, a cordoned node, one for
// certain pods. Kubernetes' own taints do not count: a node that is not ready now needs the driver, too.
func closedToPods(node corev1.Node) bool {
	return slices.ContainsFunc(node.Spec.Taints, func(taint corev1.Taint) bool {
		passing := strings.HasPrefix(taint.Key, "node.kubernetes.io/") &&
			taint.Key != corev1.TaintNodeUnschedulable
		return !passing && taint.Effect != corev1.TaintEffectPreferNoSchedule
	})
}
