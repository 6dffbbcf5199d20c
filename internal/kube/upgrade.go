package kube

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"maps"
	"regexp"
	"slices"
	"strings"

	"github.com/hashicorp/go-version"
	corev1 "k8s.io/api/core/v1"

	"github.com/ephemeral-castle/castle/internal/foreign"
	"github.com/ephemeral-castle/castle/internal/gate"
	"github.com/ephemeral-castle/castle/internal/kube/client"
	"github.com/ephemeral-castle/castle/internal/kube/gates"
)

// label is a label of a metric.
var label = regexp.MustCompile(`(\w+)="([^"]*)"`)

// DeprecatedRequests lists the API versions that clients have requested since each API server's start, and
// that a release of Kubernetes or one before it removes. endpoints are the addresses of the API servers.
func DeprecatedRequests(ctx context.Context, target gate.Target, endpoints []string, release string) (
	[]string, error) {
	to, err := version.NewVersion(release)
	if err != nil {
		return nil, fmt.Errorf("release of Kubernetes: %w", err)
	}
	found, errs := map[string]bool{}, make([]error, len(endpoints))
	for i, endpoint := range endpoints {
		errs[i] = client.New(target, endpoint).Retry(ctx, func(ctx context.Context, a *client.API) error {
			return deprecatedRequests(ctx, a, to, found)
		})
	}
	return slices.Sorted(maps.Keys(found)), errors.Join(errs...)
}

// deprecatedRequests reads them from the metrics of an API server: megabytes, of which it holds one line.
func deprecatedRequests(ctx context.Context, a *client.API, release *version.Version,
	found map[string]bool) error {
	metrics, err := a.Raw.Get().AbsPath("/metrics").SetHeader("Accept", "text/plain").Stream(ctx)
	if err != nil {
		return err
	}
	defer metrics.Close()
	lines := bufio.NewScanner(metrics)
	for lines.Scan() {
		if !strings.HasPrefix(lines.Text(), "apiserver_requested_deprecated_apis{") {
			continue
		}
		of := map[string]string{}
		for _, pair := range label.FindAllStringSubmatch(lines.Text(), -1) {
			of[pair[1]] = pair[2]
		}
		removed, err := version.NewVersion(of["removed_release"])
		if err != nil || removed.GreaterThan(release) {
			continue // nobody has announced its removal, or a later release removes it
		}
		api := strings.Trim(of["group"]+"/"+of["version"], "/")
		resource := strings.Trim(of["resource"]+"/"+of["subresource"], "/")
		found[foreign.Text(fmt.Sprintf("%s %s (removed in %s)", api, resource, of["removed_release"]))] = true
	}
	return lines.Err()
}

// ServerRelease returns the release of the API server at an address, such as 1.36.3.
func ServerRelease(ctx context.Context, target gate.Target, address string) (release string, err error) {
	err = client.New(target, address).Check(func(ctx context.Context, a *client.API) (err error) {
		release, err = gates.ServerRelease(ctx, a)
		return err
	})(ctx)
	return release, err
}

// NodesReady returns an error unless each node is registered, ready, and has the kubelet of its release;
// without one, any. Other nodes do not count.
func NodesReady(ctx context.Context, target gate.Target, kubelets map[string]string) error {
	return client.Do(ctx, target, func(ctx context.Context, a *client.API) error {
		nodes, err := gates.ListNodes(ctx, a, "")
		if err != nil {
			return err
		}
		var missing []string
		for _, name := range slices.Sorted(maps.Keys(kubelets)) {
			at := slices.IndexFunc(nodes, func(n corev1.Node) bool { return n.Name == name })
			if at < 0 {
				missing = append(missing, "node "+name+" is not registered")
				continue
			}
			runs := strings.TrimPrefix(nodes[at].Status.NodeInfo.KubeletVersion, "v")
			if why := gates.NodeUnready(nodes[at]); why != nil {
				missing = append(missing, why.Error())
			} else if kubelets[name] != "" && runs != kubelets[name] {
				missing = append(missing, fmt.Sprintf("node %s: its kubelet is still that of %s", name, runs))
			}
		}
		if len(missing) > 0 {
			return errors.New(strings.Join(missing, "; "))
		}
		return nil
	})
}
