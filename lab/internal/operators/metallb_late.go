package operators

import (
	"context"
	"strings"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/yaml"

	"github.com/ephemeral-castle/castle/lab/internal/operators/cluster"
)

// SpeakerLabel is the node selector of metallb-speaker during a fault: no node carries it until the
// fault is over.
const SpeakerLabel = "lab.castle/speaker"

// define makes the CRDs that the chart wrote down in a ConfigMap. Helm has long
// called the release deployed.
func (m *metalLB) define(ctx context.Context) error {
	if !m.w.Asked("crd-absent") {
		return nil
	}
	list, err := m.w.Typed.CoreV1().ConfigMaps("").List(ctx,
		metav1.ListOptions{FieldSelector: "metadata.name=metallb-late-crds"})
	if err != nil || len(list.Items) == 0 || m.absent.Holds() {
		return err
	}
	for text := range strings.SplitSeq(list.Items[0].Data["crds.yaml"], "\n---\n") {
		var d unstructured.Unstructured
		if err := yaml.Unmarshal([]byte(text), &d.Object); err != nil {
			return err
		}
		if len(d.Object) == 0 {
			continue
		}
		kinds := m.w.Untyped.Resource(definitions())
		if _, err := kinds.Get(ctx, d.GetName(), metav1.GetOptions{}); err == nil {
			continue
		}
		_, err := kinds.Create(ctx, &d, metav1.CreateOptions{})
		if err := cluster.Unless(err, apierrors.IsAlreadyExists); err != nil {
			return err
		}
	}
	return nil
}

// place labels the nodes for the speaker.
func (m *metalLB) place(ctx context.Context) error {
	if !m.w.Asked("daemonset-no-node") {
		return nil
	}
	list, err := m.w.Typed.AppsV1().DaemonSets("").List(ctx,
		metav1.ListOptions{FieldSelector: "metadata.name=metallb-speaker"})
	if err != nil || len(list.Items) == 0 || list.Items[0].Status.ObservedGeneration == 0 ||
		m.nowhere.Holds() {
		return err
	}
	nodes, err := m.w.Typed.CoreV1().Nodes().List(ctx, metav1.ListOptions{LabelSelector: "!" + SpeakerLabel})
	if err != nil {
		return err
	}
	patch := []byte(`{"metadata":{"labels":{"` + SpeakerLabel + `":"true"}}}`)
	for _, n := range nodes.Items {
		if _, err := m.w.Typed.CoreV1().Nodes().Patch(ctx, n.Name, types.StrategicMergePatchType, patch,
			metav1.PatchOptions{}); err != nil {
			return err
		}
	}
	return nil
}
