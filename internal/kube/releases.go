package kube

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	apiversion "k8s.io/apimachinery/pkg/version"

	"github.com/ephemeral-castle/castle/internal/gate"
	"github.com/ephemeral-castle/castle/internal/kube/client"
	"github.com/ephemeral-castle/castle/internal/kube/gates"
)

// ServerRelease returns the release of the API server at an address, such as 1.36.3.
func ServerRelease(ctx context.Context, target gate.Target, address string) (release string, err error) {
	err = client.New(target, address).Check(func(ctx context.Context, a *client.API) error {
		body, err := a.Raw.Get().AbsPath("/version").DoRaw(ctx)
		if err != nil {
			return err
		}
		var info apiversion.Info
		if err := json.Unmarshal(body, &info); err != nil || info.GitVersion == "" {
			return fmt.Errorf("kubernetes API at %s: /version does not tell its version", a.Host)
		}
		release = strings.TrimPrefix(info.GitVersion, "v")
		return nil
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
