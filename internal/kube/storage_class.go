package kube

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
	apierrors "k8s.io/apimachinery/pkg/api/errors"

	"github.com/ephemeral-castle/castle/internal/gate"
)

// storageClass asks whether a volume of a class could be made and mounted: the
// class is there, its driver is announced, and the kubelet of every node that
// takes pods has registered it. A driver's pods run well before that.
func storageClass() gate.Type {
	return gate.Type{
		Name:       "storage_class",
		Summary:    "a storage class exists and its CSI driver is registered on every node",
		Kubernetes: true,
		Attributes: map[string]gate.Attribute{
			"name":     {Type: cty.String, Required: true, Valid: validName, Help: "the class' name"},
			"driver":   {Type: cty.String, Valid: validName, Help: "the CSI driver's name; the class' provisioner if absent"},
			"default":  {Type: cty.Bool, Help: "true wants it to be the cluster's one default class"},
			"selector": {Type: cty.String, Valid: validSelector, Help: "labels of the nodes that have to have the driver; every node that takes any pod if absent"},
		},
		New: func(name string, target gate.Target, v gate.Values) (gate.Gate, error) {
			s := storage{class: v.String("name"), driver: v.String("driver"), isDefault: v.Bool("default"), selector: v.String("selector")}
			c := newCluster(target, "")
			return gate.Gate{Name: name, Check: c.ask(s.check), Changed: c.changes(always(s.selections()...))}, nil
		},
	}
}

// storage is a storage_class gate's arguments.
type storage struct {
	class, driver, selector string
	isDefault               bool
}

func (s storage) selections() []selection {
	return []selection{
		{in: storagev1.SchemeGroupVersion.WithResource("storageclasses")},
		{in: storagev1.SchemeGroupVersion.WithResource("csidrivers")},
		{in: storagev1.SchemeGroupVersion.WithResource("csinodes")},
		{in: corev1.SchemeGroupVersion.WithResource("nodes"), labels: s.selector},
	}
}

func (s storage) check(ctx context.Context, a *api) error {
	driver, err := s.judgeClass(ctx, a)
	if err != nil {
		return err
	}
	csi, err := a.get(ctx, storagev1.SchemeGroupVersion.WithResource("csidrivers"), "", driver)
	switch {
	case apierrors.IsNotFound(err):
		return fmt.Errorf("csidriver %s does not exist yet", driver)
	case err != nil:
		return err
	case csi.GetDeletionTimestamp() != nil:
		return fmt.Errorf("%s: is being deleted", title(csi))
	}
	return s.judgeNodes(ctx, a, driver)
}

// judgeClass returns the driver's name.
func (s storage) judgeClass(ctx context.Context, a *api) (string, error) {
	items, err := a.list(ctx, storagev1.SchemeGroupVersion.WithResource("storageclasses"), "", "")
	if err != nil {
		return "", err
	}
	var (
		class    *storagev1.StorageClass
		defaults []string
	)
	for _, item := range items {
		one, err := as[storagev1.StorageClass](item)
		if err != nil {
			return "", err
		}
		if one.Name == s.class {
			class = &one
		}
		if isDefaultClass(one) {
			defaults = append(defaults, one.Name)
		}
	}
	what := titled("storageclass", "", s.class)
	switch {
	case class == nil:
		return "", fmt.Errorf("%s does not exist yet", what)
	case class.DeletionTimestamp != nil:
		return "", fmt.Errorf("%s: is being deleted", what)
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

// judgeNodes wants every node that matters to list the driver.
func (s storage) judgeNodes(ctx context.Context, a *api, driver string) error {
	nodes, err := a.nodes(ctx, s.selector)
	if err != nil {
		return err
	}
	items, err := a.list(ctx, storagev1.SchemeGroupVersion.WithResource("csinodes"), "", "")
	if err != nil {
		return err
	}
	registered := map[string]bool{}
	for _, item := range items {
		one, err := as[storagev1.CSINode](item)
		if err != nil {
			return err
		}
		registered[one.Name] = slices.ContainsFunc(one.Spec.Drivers, func(d storagev1.CSINodeDriver) bool { return d.Name == driver })
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
		return fmt.Errorf("csidriver %s: not registered on %d of %d nodes: %s", driver, len(without), matter, several(without))
	}
	return nil
}

// closedToPods reports whether somebody has set a node apart: a control plane,
// one that was cordoned, one that is for certain pods. Kubernetes' own taints
// do not count: what is not ready now will have to run the driver as well.
func closedToPods(node corev1.Node) bool {
	return slices.ContainsFunc(node.Spec.Taints, func(taint corev1.Taint) bool {
		passing := strings.HasPrefix(taint.Key, "node.kubernetes.io/") && taint.Key != corev1.TaintNodeUnschedulable
		return !passing && taint.Effect != corev1.TaintEffectPreferNoSchedule
	})
}
