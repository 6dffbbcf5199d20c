package gates

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/zclconf/go-cty/cty"
	corev1 "k8s.io/api/core/v1"
	storagev1 "k8s.io/api/storage/v1"

	"github.com/ephemeral-castle/castle/internal/gate"
	"github.com/ephemeral-castle/castle/internal/kube/client"
)

// storageClass checks that a volume of a class could be created and mounted. The class and its driver exist,
// and the kubelet of every node that takes pods has registered the driver. A driver's pods run well before
// that.
func storageClass() definition {
	return definition{gate.Type{
		Name:    "storage_class",
		Summary: "a storage class exists and its CSI driver is registered on every node",
		Attributes: map[string]gate.Attribute{
			"name": {Type: cty.String, Required: true, Valid: validName, Help: "the class' name"},
			"driver": {Type: cty.String, Valid: validName,
				Help: "the CSI driver's name; default the class' provisioner"},
			"default": {Type: cty.Bool, Help: "true requires that it is the cluster's one default class"},
			"selector": {Type: cty.String, Valid: validSelector,
				Help: "labels of the nodes that have to have the driver; default every node that takes " +
					"any pod"},
		},
	}, func(v gate.Values) (Checker, error) {
		return storage{v.String("name"), v.String("driver"), v.String("selector"), v.Bool("default")}, nil
	}}
}

// Storage selects a kind of the storage API, one object if named.
func Storage(plural, name string) client.Selection {
	return client.Selection{Resource: storagev1.SchemeGroupVersion.WithResource(plural), Name: name}
}

// storage is a storage_class gate's arguments.
type storage struct {
	class, driver, selector string
	isDefault               bool
}

func (s storage) Selections(context.Context, *client.API) ([]client.Selection, error) {
	return []client.Selection{
		Storage("storageclasses", ""), Storage("csidrivers", ""), Storage("csinodes", ""),
		{Resource: client.Core("nodes"), Labels: s.selector},
	}, nil
}

func (s storage) Check(ctx context.Context, a *client.API) error {
	driver, err := s.checkClass(ctx, a)
	if err != nil {
		return err
	}
	csi, err := a.Get(ctx, Storage("csidrivers", driver), "CSIDriver")
	if err != nil {
		return err
	}
	if err := terminating(csi); err != nil {
		return err
	}
	return s.checkNodes(ctx, a, driver)
}

// checkClass returns the driver's name.
func (s storage) checkClass(ctx context.Context, a *client.API) (string, error) {
	classes, err := client.ListAs[storagev1.StorageClass](ctx, a, Storage("storageclasses", ""),
		"StorageClass")
	if err != nil {
		return "", err
	}
	var (
		class    *storagev1.StorageClass
		defaults []string
	)
	for i, one := range classes {
		if one.Name == s.class {
			class = &classes[i]
		}
		if isDefaultClass(one) {
			defaults = append(defaults, one.Name)
		}
	}
	what := client.Titled("storageclass", "", s.class)
	switch {
	case class == nil:
		return "", client.NotFound("StorageClass", "", s.class)
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

func isDefaultClass(class storagev1.StorageClass) bool {
	return class.Annotations["storageclass.kubernetes.io/is-default-class"] == "true" ||
		class.Annotations["storageclass.beta.kubernetes.io/is-default-class"] == "true"
}

// checkNodes requires that every node that matters lists the driver.
func (s storage) checkNodes(ctx context.Context, a *client.API, driver string) error {
	nodes, err := listNodes(ctx, a, s.selector)
	if err != nil {
		return err
	}
	csi, err := client.ListAs[storagev1.CSINode](ctx, a, Storage("csinodes", ""), "CSINode")
	if err != nil {
		return err
	}
	registered := map[string]bool{}
	for _, one := range csi {
		registered[one.Name] = slices.ContainsFunc(one.Spec.Drivers,
			func(d storagev1.CSINodeDriver) bool { return d.Name == driver })
	}
	matter, without := 0, []string(nil)
	for _, node := range nodes {
		if s.selector == "" && closedToPods(node) {
			continue
		}
		matter++
		if !registered[node.Name] {
			without = append(without, node.Name)
		}
	}
	switch {
	case matter == 0 && s.selector != "":
		return fmt.Errorf("no node with %s exists yet", s.selector)
	case matter == 0:
		return errors.New("no node takes pods yet")
	case len(without) > 0:
		return problem(DriverMissing, client.Titled("csidriver", "", driver),
			"not registered on %d of %d nodes: %s",
			len(without), matter, client.Several(without))
	}
	return nil
}

// closedToPods reports whether somebody has set a node apart: a control plane, a cordoned node, one for
// certain pods. Kubernetes' own taints do not count: a node that is not ready now will have to run the
// driver as well.
func closedToPods(node corev1.Node) bool {
	return slices.ContainsFunc(node.Spec.Taints, func(taint corev1.Taint) bool {
		passing := strings.HasPrefix(taint.Key, "node.kubernetes.io/") &&
			taint.Key != corev1.TaintNodeUnschedulable
		return !passing && taint.Effect != corev1.TaintEffectPreferNoSchedule
	})
}
