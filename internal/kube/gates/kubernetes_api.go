package gates

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

	"github.com/siderolabs/gen/xslices"
	"github.com/zclconf/go-cty/cty"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	utilnet "k8s.io/apimachinery/pkg/util/net"

	"github.com/ephemeral-castle/castle/internal/gate"
	"github.com/ephemeral-castle/castle/internal/kube/client"
)

// Reachable is the gate kubernetes_api of the kubeconfig's cluster, for callers that must prove that a
// cluster exists before they rely on its absence.
func Reachable(kubeconfig []byte) gate.Gate {
	c := client.New(gate.Target{Kubeconfig: kubeconfig}, "")
	return gate.Gate{Name: "kubernetes_api", Check: c.Check(Ready)}
}

// kubernetesAPI checks the API's own readiness through one address, which proves that a virtual address
// leads to this cluster. It also checks each control plane's own address: behind one address a single
// control plane would do.
func kubernetesAPI() definition {
	return definition{typ: gate.Type{
		Name:    "kubernetes_api",
		Summary: "the Kubernetes API answers /readyz with a certificate of this cluster",
		Attributes: map[string]gate.Attribute{
			"address": text(validAddress, "the host or host:port to connect to, such as the virtual "+
				"address; default the kubeconfig's server"),
			"endpoints": {Type: cty.List(cty.String), Valid: validEach(0, validAddress),
				Help: "each control plane's own host or host:port, 6443 by default; every one has " +
					"to be ready too"},
		},
		New: func(name string, target gate.Target, v gate.Values) (gate.Gate, error) {
			var endpoints []string
			if err := v.Decode("endpoints", &endpoints); err != nil {
				return gate.Gate{}, fmt.Errorf("endpoints: %w", err)
			}
			all := xslices.Map(append([]string{v.String("address")}, endpoints...),
				func(address string) gate.Gate { return client.New(target, address).Gate(name, Ready) })
			return gate.Gate{Name: name, Check: checkAll(all), Changed: anyChange(all)}, nil
		},
	}}
}

// checkAll checks the gates of all addresses side by side, and names all that are closed.
func checkAll(gates []gate.Gate) func(context.Context) error {
	return func(ctx context.Context) error {
		answers := make([]error, len(gates))
		var all sync.WaitGroup
		for i, g := range gates {
			all.Go(func() { answers[i] = g.Check(ctx) })
		}
		all.Wait()
		if ctx.Err() != nil {
			return ctx.Err()
		}
		var closed []string
		for _, err := range answers {
			if err != nil && !slices.Contains(closed, err.Error()) {
				closed = append(closed, err.Error())
			}
		}
		switch err := errors.New(client.Several(closed)); {
		case len(closed) == 0:
			return nil
		case slices.ContainsFunc(answers, gate.IsPermanent):
			return gate.Permanent(err)
		default:
			return err
		}
	}
}

// anyChange signals a change of any of the gates.
func anyChange(gates []gate.Gate) func(context.Context) <-chan struct{} {
	return func(ctx context.Context) <-chan struct{} {
		changed := make(chan struct{}, 1)
		var all sync.WaitGroup
		for _, g := range gates {
			changes := g.Changed(ctx)
			all.Go(func() {
				for range changes {
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

func validAddress(x cty.Value) error {
	host := x.AsString()
	if h, port, err := net.SplitHostPort(host); err == nil {
		if _, err := strconv.ParseUint(port, 10, 16); err != nil {
			return fmt.Errorf("%q has a port that is not a number", x.AsString())
		}
		host = h
	}
	if host == "" || strings.ContainsAny(host, "/ []") || strings.Contains(host, ":") &&
		net.ParseIP(host) == nil {
		return fmt.Errorf("%q is not a host or host:port", x.AsString())
	}
	return nil
}

// largestReadyz is more than /readyz ever answers: a line for each of its checks.
const largestReadyz = 64 << 10

// Readyz is the API's answer to /readyz, with each of its own checks if verbose. It makes the request itself:
// client-go does not return the body of an error in plain text, where the API names the checks that fail.
func Readyz(ctx context.Context, a *client.API, query string) (*http.Response, string, error) {
	url := a.Server.JoinPath("readyz").String() + query
	request, err := http.NewRequestWithContext(ctx, http.MethodGet, url, http.NoBody)
	if err != nil {
		return nil, "", err
	}
	response, err := a.HTTP.Do(request)
	if err != nil {
		return nil, "", err
	}
	defer response.Body.Close() //nolint:errcheck // it was only read
	body, err := io.ReadAll(io.LimitReader(response.Body, largestReadyz))
	if err != nil {
		err = fmt.Errorf("kubernetes API at %s: /readyz: %w", a.Host, err)
	}
	return response, string(body), err
}

// Ready checks one API. None announces that it starts, but then a watch of what every cluster has can begin.
func Ready(ctx context.Context, a *client.API) error {
	a.Read(client.Selection{Resource: client.Core("namespaces"), Name: metav1.NamespaceSystem})
	// The next attempt makes a connection of its own: one that is kept could outlive the move of a virtual
	// address and prove nothing about it.
	defer utilnet.CloseIdleConnectionsFor(a.HTTP.Transport)
	response, body, err := Readyz(ctx, a, "")
	switch {
	case err != nil:
		return err
	case response.StatusCode == http.StatusUnauthorized, response.StatusCode == http.StatusForbidden:
		return a.Refused("/readyz: " + response.Status)
	case response.StatusCode != http.StatusOK:
		return fmt.Errorf("kubernetes API at %s: not ready: %s", a.Host,
			cmp.Or(FailedChecks(body), response.Status))
	case strings.TrimSpace(body) != "ok":
		return fmt.Errorf("kubernetes API at %s: /readyz does not answer ok", a.Host)
	}
	return nil
}

// FailedChecks names the checks that failed in the API's answer: "[-]etcd failed: reason withheld".
func FailedChecks(answer string) string {
	var failed []string
	for line := range strings.Lines(answer) {
		if check, ok := strings.CutPrefix(line, "[-]"); ok {
			check, _, _ = strings.Cut(check, " ")
			failed = append(failed, check)
		}
	}
	return strings.Join(failed, ", ")
}
