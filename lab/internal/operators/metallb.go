package operators

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/netip"
	"slices"
	"strings"
	"time"

	admissionv1 "k8s.io/api/admission/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"

	"github.com/ephemeral-castle/castle/lab/internal/operators/cluster"
)

// metalLB is MetalLB's controller: its webhook, and the addresses of Services. The real one's readiness has
// followed its webhook in some versions and not in others; here it never does.
type metalLB struct {
	w    *cluster.View
	h    *webhook
	told map[types.UID]string // the last events about a Service

	absent, nowhere *cluster.Fault // its CRDs, its speaker's nodes
}

// metalLBFaults are those that only the double has.
func metalLBFaults() []string {
	return []string{"crd-absent", "daemonset-no-node", "webhook-late", "webhook-refuses"}
}

func newMetalLB(w *cluster.View, routes Routes) *metalLB {
	m := &metalLB{w: w, told: map[types.UID]string{},
		absent:  w.Fault("crd-absent", "ipaddresspools.metallb.io"),
		nowhere: w.Fault("daemonset-no-node", "metallb-speaker")}
	const path = "/validate-metallb-io-"
	m.h = &webhook{
		w: w, routes: routes, workload: "metallb-controller", port: 9443,
		service: "metallb-webhook-service", secret: "metallb-webhook-cert",
		fill:      each(validating(w, "metallb-webhook-configuration"), converting(w, "bgppeers.metallb.io")),
		certified: 3 * time.Second, listens: 8 * time.Second, late: w.Fault("webhook-late",
			"/l2advertisements?"),
		refuses: w.Fault("webhook-refuses", "/l2advertisements?"), refused: path + "v1beta1-l2advertisement",
		reviewers: map[string]reviewer{
			path + "v1beta1-ipaddresspool":    m.pool,
			path + "v1beta1-l2advertisement":  m.advertisement,
			path + "v1beta1-bgpadvertisement": m.advertisement,
			path + "v1beta1-community":        anything,
			path + "v1beta1-bfdprofile":       anything,
			path + "v1beta2-bgppeer":          anything,
		},
	}
	return m
}

func (m *metalLB) Look(ctx context.Context) error {
	return errors.Join(m.serve(ctx), m.define(ctx), m.place(ctx))
}

func (m *metalLB) serve(ctx context.Context) error {
	d, err := m.w.Deployment(ctx, m.h.workload)
	if err != nil {
		return err
	}
	namespace := ""
	if d != nil {
		namespace = d.Namespace
	}
	if err := m.h.look(ctx, namespace); err != nil || d == nil {
		return err
	}
	class := ""
	for _, c := range d.Spec.Template.Spec.Containers {
		for _, arg := range c.Args {
			if value, is := strings.CutPrefix(arg, "--lb-class="); is {
				class = value
			}
		}
	}
	return m.assign(ctx, class)
}

func (m *metalLB) Close() { m.h.close() }

func pools() schema.GroupVersionResource {
	return schema.GroupVersionResource{Group: "metallb.io", Version: "v1beta1", Resource: "ipaddresspools"}
}

// pooled reports whether a pool of MetalLB has an address.
func pooled(w *cluster.View) func(context.Context, netip.Addr) (bool, error) {
	return func(ctx context.Context, at netip.Addr) (bool, error) {
		all, err := addressPools(ctx, w)
		return poolOf(all, []netip.Addr{at}) != nil, err
	}
}

// at rejects objects outside MetalLB's own namespace.
func (m *metalLB) at(r *admissionv1.AdmissionRequest) error {
	if r.Operation == admissionv1.Create && r.Namespace != m.h.namespace {
		return fmt.Errorf("resource must be created in %s namespace", m.h.namespace)
	}
	return nil
}

func (m *metalLB) advertisement(_ context.Context, r *admissionv1.AdmissionRequest) error {
	return m.at(r)
}

// pool wants the prefixes of all pools, the new one included, to be apart.
func (m *metalLB) pool(ctx context.Context, r *admissionv1.AdmissionRequest) error {
	if err := m.at(r); err != nil {
		return err
	}
	var wanted unstructured.Unstructured
	if err := json.Unmarshal(r.Object.Raw, &wanted.Object); err != nil {
		return err
	}
	all, err := m.w.List(ctx, pools(), m.h.namespace)
	if err != nil {
		return err
	}
	all = slices.DeleteFunc(all, func(p unstructured.Unstructured) bool {
		return p.GetName() == wanted.GetName()
	})
	slices.SortFunc(all, func(a, b unstructured.Unstructured) int {
		return strings.Compare(a.GetName(), b.GetName())
	})
	var taken []block
	for _, p := range append(all, wanted) {
		addresses, _, err := unstructured.NestedStringSlice(p.Object, "spec", "addresses")
		if err != nil {
			return err
		}
		if len(addresses) == 0 {
			return fmt.Errorf("parsing address pool %s: pool has no prefixes defined", p.GetName())
		}
		for _, text := range addresses {
			blocks, err := parseBlocks(text)
			if err != nil {
				return fmt.Errorf("parsing address pool %s: invalid CIDR %q in pool %q: %w", p.GetName(),
					text, p.GetName(), err)
			}
			for _, b := range blocks {
				for _, other := range taken {
					if b.Overlaps(other.Prefix) {
						return fmt.Errorf("CIDR %q in pool %q overlaps with already defined CIDR %q", b,
							p.GetName(), other)
					}
				}
			}
			taken = append(taken, blocks...)
		}
	}
	return nil
}
