// Package ccm does in the lab the work of Hetzner Cloud's cloud controller manager, on the emulated API.
//
// It gives the nodes of waiting kubelets their provider id, addresses and labels, and takes their taint. It
// deletes the node of a server that is gone, and taints that of one that is off. For a Service of type
// LoadBalancer it makes a load balancer with the label, the name, the ports and the targets of the real one,
// and holds the Service by a finalizer until that is deleted.
//
// A cluster that is destroyed with its Services leaves the load balancers behind, and so does one whose
// controller is uninstalled first. Sources: hcloud/instances.go, hcloud/load_balancers.go and
// internal/hcops/load_balancer.go of v1.35.0, and the controllers of k8s.io/cloud-provider.
//
// Missing: routes, certificates, protocols other than tcp, and what annotations say of health checks.
package ccm

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"net/http"
	"time"

	api "github.com/hetznercloud/hcloud-go/v2/hcloud"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/ephemeral-castle/castle/lab/internal/operators/cluster"
	"github.com/ephemeral-castle/castle/lab/internal/operators/hcloud"
)

// Manager is the controller.
type Manager struct {
	w    *cluster.View
	http *http.Client

	env     map[string]string // with which it runs
	client  *api.Client
	network *api.Network

	servers []*api.Server
	readAt  time.Time

	ensured map[string]string // by uid of a Service: what its load balancer was made of
}

// New returns a controller that calls the API through h.
func New(w *cluster.View, h *http.Client) *Manager {
	return &Manager{w: w, http: h, ensured: map[string]string{}}
}

// Close ends nothing.
func (m *Manager) Close() {}

// Look takes the next steps that are due.
func (m *Manager) Look(ctx context.Context) error {
	d, err := m.w.Deployment(ctx, "hcloud-cloud-controller-manager")
	if err != nil || d == nil {
		return err
	}
	env, err := hcloud.Environment(ctx, m.w, d.Namespace, d.Spec.Template.Spec)
	if err != nil {
		return err
	}
	if m.client == nil || !maps.Equal(env, m.env) {
		if err := m.start(ctx, env); err != nil {
			return err
		}
	}
	list, err := m.w.Typed.CoreV1().Nodes().List(ctx, metav1.ListOptions{ResourceVersion: "0"})
	if err != nil {
		return err
	}
	var errs []error
	addresses := m.w.Passed("ccm addresses", 5*time.Minute)
	for _, n := range list.Items {
		errs = append(errs, cluster.About("node "+n.Name, m.node(ctx, n, addresses)))
	}
	if addresses {
		m.w.Restart("ccm addresses")
	}
	return errors.Join(append(errs, m.balance(ctx, list.Items))...)
}

// start is the start of the process, which ends without a network or with a token that the API refuses.
func (m *Manager) start(ctx context.Context, env map[string]string) error {
	client := hcloud.Client(env, m.http)
	var network *api.Network
	if name := env["HCLOUD_NETWORK"]; name != "" {
		n, _, err := client.Network.Get(ctx, name)
		if err != nil {
			return err
		}
		if n == nil {
			return fmt.Errorf("hcloud/newCloud: Network %s not found", name)
		}
		network = n
	}
	if _, _, err := client.Location.List(ctx, api.LocationListOpts{}); err != nil {
		return fmt.Errorf("hcloud/newCloud: %w", err)
	}
	m.env, m.client, m.network, m.readAt = env, client, network, time.Time{}
	clear(m.ensured)
	return nil
}

// server finds the server of a node: by the id that the node has, or by its name. The list is a second old at
// most.
func (m *Manager) server(ctx context.Context, n corev1.Node) (*api.Server, error) {
	if now := time.Now(); now.Sub(m.readAt) > time.Second {
		all, err := m.client.Server.All(ctx)
		if err != nil {
			return nil, err
		}
		m.servers, m.readAt = all, now
	}
	for _, s := range m.servers {
		if n.Spec.ProviderID == providerID(s) || n.Spec.ProviderID == "" && s.Name == n.Name {
			return s, nil
		}
	}
	return nil, nil
}

func providerID(s *api.Server) string { return fmt.Sprintf("hcloud://%d", s.ID) }
