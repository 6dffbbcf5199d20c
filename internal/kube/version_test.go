package kube

import (
	"fmt"
	"strings"
	"testing"

	"github.com/zclconf/go-cty/cty"

	"github.com/ephemeral-castle/castle/internal/gate"
)

func nodeWith(kubelet, ready string) string {
	return fmt.Sprintf(`{kind: Node, status: {nodeInfo: {kubeletVersion: %q}, conditions: [{type: Ready, `+
		`status: %q}]}}`, kubelet, ready)
}

// TestKubernetesVersion asks what runs: every kubelet, and the API server of every control plane.
func TestKubernetesVersion(t *testing.T) {
	const cp, worker = "/api/v1/nodes/blue-cp-01", "/api/v1/nodes/blue-w-01"
	again := `set kubernetes_version = "1.36.3" again; or castle recreate`
	for name, tt := range map[string]struct{ api, cp, worker, want string }{
		"all as wanted": {api: "v1.36.4", cp: "v1.36.4", worker: "v1.36.4"},
		"an upgrade that did not happen": {api: "v1.36.3", cp: "v1.36.3", worker: "v1.36.3",
			want: "Kubernetes 1.36.4 is wanted; 1.36.3 runs on API server IP, kubelet blue-cp-01, kubelet " +
				"blue-w-01; castle rollout upgrades one machine after the other; or " + again},
		"one kubelet": {api: "v1.36.4", cp: "v1.36.4", worker: "v1.36.3", want: "Kubernetes 1.36.4 is " +
			"wanted; 1.36.3 runs on kubelet blue-w-01; castle rollout upgrades one machine after the " +
			"other; or " + again},
		"an API server": {api: "v1.36.3", cp: "v1.36.4", worker: "v1.36.4", want: "Kubernetes 1.36.4 is " +
			"wanted; 1.36.3 runs on API server IP; castle rollout upgrades one machine after the other; or " +
			again},
		"newer than wanted": {api: "v1.36.5", cp: "v1.36.5", worker: "v1.36.5", want: "Kubernetes 1.36.4 " +
			"is wanted; 1.36.5 runs on API server IP, kubelet blue-cp-01, kubelet blue-w-01; " +
			`set kubernetes_version = "1.36.5" again; or castle recreate`},
		"a kubelet that tells nothing": {api: "v1.36.4", cp: "v1.36.4",
			want: "node blue-w-01: its kubelet has not told its version"},
		"an API server that tells nothing": {cp: "v1.36.4", worker: "v1.36.4",
			want: "kubernetes API at HOST: /version does not tell its version"},
	} {
		t.Run(name, func(t *testing.T) {
			f := newFakeAPI(t)
			f.answer("/version", 200, map[string]string{"gitVersion": tt.api})
			f.add(t, cp, nodeWith(tt.cp, "True"))
			f.add(t, worker, nodeWith(tt.worker, "True"))
			host := f.Listener.Addr().String()
			ip, _, _ := strings.Cut(host, ":")
			g := newGate(t, "kubernetes_version", f.kubeconfig(), map[string]cty.Value{
				"version": cty.StringVal("1.36.4"), "endpoints": cty.ListVal([]cty.Value{str(host)})})
			err := g.Check(t.Context())
			expect(t, f, err, strings.ReplaceAll(tt.want, "IP", ip), false)
			if upgrade := strings.Contains(tt.want, "is wanted"); upgrade !=
				(gate.KindOf(err) == gate.UpgradeNeeded) {
				t.Errorf("got kind %q", gate.KindOf(err))
			}
		})
	}
}
