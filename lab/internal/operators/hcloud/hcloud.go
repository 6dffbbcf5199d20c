// Package hcloud gives the stand-ins for Hetzner Cloud's controllers the client that their containers would
// have: with the token and the address in their environment.
package hcloud

import (
	"context"
	"fmt"
	"net/http"
	"time"

	api "github.com/hetznercloud/hcloud-go/v2/hcloud"
	corev1 "k8s.io/api/core/v1"

	"github.com/ephemeral-castle/castle/lab/internal/operators/cluster"
)

// Environment is that of a Pod's first container, with the values of Secrets. A kubelet starts no container
// without one of these.
func Environment(ctx context.Context, w *cluster.View, namespace string, p corev1.PodSpec,
) (map[string]string, error) {
	env := map[string]string{}
	for _, e := range p.Containers[0].Env {
		env[e.Name] = e.Value
		if e.ValueFrom == nil || e.ValueFrom.SecretKeyRef == nil {
			continue
		}
		from := e.ValueFrom.SecretKeyRef
		values, _, err := w.Offered(ctx, "Secret", namespace, from.Name)
		if err != nil {
			return nil, err
		}
		if values[from.Key] == "" {
			return nil, fmt.Errorf("CreateContainerConfigError: secret %q has no key %s", from.Name, from.Key)
		}
		env[e.Name] = values[from.Key]
	}
	return env, nil
}

// Client is what a container with this environment calls the API with.
func Client(env map[string]string, h *http.Client) *api.Client {
	options := []api.ClientOption{api.WithToken(env["HCLOUD_TOKEN"]), api.WithHTTPClient(h),
		api.WithPollOpts(api.PollOpts{BackoffFunc: api.ConstantBackoff(100 * time.Millisecond)})}
	if env["HCLOUD_ENDPOINT"] != "" {
		options = append(options, api.WithEndpoint(env["HCLOUD_ENDPOINT"]))
	}
	return api.NewClient(options...)
}
