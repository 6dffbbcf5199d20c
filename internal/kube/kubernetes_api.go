package kube

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"slices"
	"strconv"
	"strings"
	"sync"

	"github.com/zclconf/go-cty/cty"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	utilnet "k8s.io/apimachinery/pkg/util/net"

	"github.com/ephemeral-castle/castle/internal/gate"
)

// Reachable is the gate kubernetes_api of the cluster that kubeconfig leads to,
// for whoever must know that a cluster is there before relying on its silence.
func Reachable(kubeconfig []byte) gate.Gate {
	c := newCluster(gate.Target{Kubeconfig: kubeconfig}, "")
	return gate.Gate{Name: "kubernetes_api", Check: c.ask(ready)}
}

// kubernetesAPI asks the API for its own readiness through one address, which
// is how a virtual address is proved to lead to this cluster, and at each
// control plane's own: behind one address a single one would do.
func kubernetesAPI() gate.Type {
	return gate.Type{
		Name:       "kubernetes_api",
		Summary:    "the Kubernetes API answers /readyz with a certificate of this cluster",
		Kubernetes: true,
		Attributes: map[string]gate.Attribute{
			"address":   {Type: cty.String, Valid: validAddress, Help: "the host or host:port to ask, such as the virtual address; the kubeconfig's server if absent"},
			"endpoints": {Type: cty.List(cty.String), Valid: validAddresses, Help: "each control plane's own host or host:port; every one has to be ready too"},
		},
		New: func(name string, target gate.Target, v gate.Values) (gate.Gate, error) {
			var endpoints []string
			if err := v.Decode("endpoints", &endpoints); err != nil {
				return gate.Gate{}, fmt.Errorf("endpoints: %w", err)
			}
			doors := []*cluster{newCluster(target, v.String("address"))}
			for _, endpoint := range endpoints {
				doors = append(doors, newCluster(target, endpoint))
			}
			return gate.Gate{Name: name, Check: every(doors), Changed: anyOf(doors)}, nil
		},
	}
}

// every asks all doors side by side, and names all that are closed.
func every(doors []*cluster) func(context.Context) error {
	return func(ctx context.Context) error {
		answers := make([]error, len(doors))
		var all sync.WaitGroup
		for i, door := range doors {
			all.Go(func() { answers[i] = door.ask(ready)(ctx) })
		}
		all.Wait()
		if ctx.Err() != nil {
			return ctx.Err()
		}
		var closed []string
		permanent := false
		for _, err := range answers {
			if err != nil && !slices.Contains(closed, err.Error()) {
				closed = append(closed, err.Error())
				permanent = permanent || gate.IsPermanent(err)
			}
		}
		switch {
		case len(closed) == 0:
			return nil
		case permanent:
			return gate.Permanent(errors.New(several(closed)))
		}
		return errors.New(several(closed))
	}
}

// anyOf tells of an API that comes up behind one of the doors: no API announces
// that, but then a watch of something that every cluster has can begin.
func anyOf(doors []*cluster) func(context.Context) <-chan struct{} {
	system := selection{in: corev1.SchemeGroupVersion.WithResource("namespaces"), name: metav1.NamespaceSystem}
	return func(ctx context.Context) <-chan struct{} {
		changed := make(chan struct{}, 1)
		var all sync.WaitGroup
		for _, door := range doors {
			behind := door.changes(always(system))(ctx)
			all.Go(func() {
				for range behind {
					select {
					case changed <- struct{}{}:
					default:
					}
				}
			})
		}
		go func() {
			all.Wait()
			close(changed)
		}()
		return changed
	}
}

func validAddresses(x cty.Value) error {
	for _, address := range x.AsValueSlice() {
		if address.IsNull() {
			return errors.New("one of them is null")
		}
		if err := validAddress(address); err != nil {
			return err
		}
	}
	return nil
}

func validAddress(x cty.Value) error {
	host := x.AsString()
	if h, port, err := net.SplitHostPort(host); err == nil {
		if _, err := strconv.ParseUint(port, 10, 16); err != nil {
			return fmt.Errorf("%q has no number for a port", x.AsString())
		}
		host = h
	}
	if host == "" || strings.ContainsAny(host, "/ []") || strings.Contains(host, ":") && net.ParseIP(host) == nil {
		return fmt.Errorf("%q is no host or host:port", x.AsString())
	}
	return nil
}

// largest is more than /readyz ever says: a line for each of its checks.
const largest = 64 << 10

// ready makes the request itself: client-go does not hand out the body of an
// error in plain text, where the API names the checks that fail.
func ready(ctx context.Context, a *api) error {
	// The next attempt makes a connection of its own: one that is kept could
	// outlive the move of a virtual address and prove nothing about it.
	defer utilnet.CloseIdleConnectionsFor(a.http.Transport)
	request, err := http.NewRequestWithContext(ctx, http.MethodGet, a.server.JoinPath("readyz").String(), http.NoBody)
	if err != nil {
		return err
	}
	response, err := a.http.Do(request)
	if err != nil {
		return err
	}
	defer response.Body.Close() //nolint:errcheck // it was only read
	body, err := io.ReadAll(io.LimitReader(response.Body, largest))
	switch {
	case err != nil:
		return fmt.Errorf("kubernetes API at %s: /readyz: %w", a.host, err)
	case response.StatusCode == http.StatusUnauthorized:
		return a.unauthorized("/readyz: " + response.Status)
	case response.StatusCode == http.StatusForbidden:
		return gate.Permanent(fmt.Errorf("kubernetes API at %s refuses the kubeconfig's user: /readyz: %s", a.host, response.Status))
	case response.StatusCode != http.StatusOK:
		return fmt.Errorf("kubernetes API at %s: not ready: %s", a.host, cmp.Or(failing(string(body)), response.Status))
	case strings.TrimSpace(string(body)) != "ok":
		return fmt.Errorf("kubernetes API at %s: /readyz does not answer ok", a.host)
	}
	return nil
}

// failing names the checks that failed in the API's answer: "[-]etcd failed: reason withheld".
func failing(answer string) string {
	var failed []string
	for line := range strings.Lines(answer) {
		if check, ok := strings.CutPrefix(line, "[-]"); ok {
			check, _, _ = strings.Cut(check, " ")
			failed = append(failed, check)
		}
	}
	return strings.Join(failed, ", ")
}
