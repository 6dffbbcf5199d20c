package gates

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"net"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/siderolabs/gen/xslices"
	"github.com/zclconf/go-cty/cty"
	"k8s.io/apimachinery/pkg/util/version"
	apiversion "k8s.io/apimachinery/pkg/version"

	"github.com/ephemeral-castle/castle/internal/gate"
	"github.com/ephemeral-castle/castle/internal/kube/client"
)

// kubernetesVersion checks what runs, not what was applied. Talos pulls and starts another kubelet, API
// server, controller manager and scheduler as soon as its configuration names them, each control plane for
// itself; the scheduler and the controller manager tell nobody their version.
func kubernetesVersion() definition {
	return definition{typ: gate.Type{
		Name:    "kubernetes_version",
		Summary: "every API server and every kubelet runs the wanted release of Kubernetes",
		Attributes: map[string]gate.Attribute{
			"version": required(text(gate.ValidForm(version.ParseSemantic, "a release such as 1.36.3"),
				"the release, such as 1.36.3")),
			"endpoints": {Type: cty.List(cty.String), Valid: validEach(0, validAddress),
				Help: "each control plane's own host or host:port; default the kubeconfig's server"},
		},
		New: func(name string, target gate.Target, v gate.Values) (gate.Gate, error) {
			g := &versionGate{version: v.String("version"), runs: map[string]string{}}
			if err := v.Decode("endpoints", &g.endpoints); err != nil {
				return gate.Gate{}, fmt.Errorf("endpoints: %w", err)
			}
			nodes := client.New(target, "").Gate(name, g.readKubelets)
			all := []gate.Gate{nodes}
			addresses := g.endpoints
			if len(addresses) == 0 {
				addresses = []string{""}
			}
			for _, address := range addresses {
				check := client.New(target, address).Check(g.readAPIServer)
				all = append(all, gate.Gate{Name: name, Check: check})
			}
			check := func(ctx context.Context) error {
				clear(g.runs)
				if err := checkAll(all)(ctx); err != nil {
					return err
				}
				return g.compare(time.Now())
			}
			return gate.Gate{Name: name, Check: check, Changed: nodes.Changed}, nil
		},
	}}
}

// versionGate is a kubernetes_version gate's arguments, and its last answer.
type versionGate struct {
	version   string
	endpoints []string

	mu    sync.Mutex
	runs  map[string]string // versions by "kubelet blue-cp-01" and "API server 192.168.1.211"
	ready []string          // the ready nodes among them with another version
	since time.Time         // when ready became what it is
	last  string            // ready, as it was then
}

func (g *versionGate) note(what, runs string) {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.runs[what] = strings.TrimPrefix(runs, "v")
}

func (g *versionGate) readAPIServer(ctx context.Context, a *client.API) error {
	runs, err := ServerRelease(ctx, a)
	if err == nil {
		g.note("API server "+hostOf(a.Host), runs)
	}
	return err
}

// ServerRelease returns the release of an API server, such as 1.36.3.
func ServerRelease(ctx context.Context, a *client.API) (string, error) {
	body, err := a.Raw.Get().AbsPath("/version").DoRaw(ctx)
	if err != nil {
		return "", err
	}
	var info apiversion.Info
	if err := json.Unmarshal(body, &info); err != nil || info.GitVersion == "" {
		return "", fmt.Errorf("kubernetes API at %s: /version does not tell its version", a.Host)
	}
	return strings.TrimPrefix(info.GitVersion, "v"), nil
}

func (g *versionGate) readKubelets(ctx context.Context, a *client.API) error {
	nodes, err := ListNodes(ctx, a, "")
	if err == nil && len(nodes) == 0 {
		err = errors.New("no node is registered")
	}
	g.ready = nil
	for _, n := range nodes {
		runs := n.Status.NodeInfo.KubeletVersion
		if runs == "" {
			return fmt.Errorf("node %s: its kubelet has not told its version", n.Name)
		}
		g.note("kubelet "+n.Name, runs)
		if NodeUnready(n) == nil && strings.TrimPrefix(runs, "v") != g.version {
			g.ready = append(g.ready, n.Name)
		}
	}
	return err
}

// restarted is when a kubelet whose image has changed is no longer ready, or has another version: Talos stops
// it at once, and a node without a kubelet counts as ready for 50 seconds.
const restarted = 2 * time.Minute

// compare waits while kubelets and API servers restart, and not for kubelets that have kept their version.
func (g *versionGate) compare(now time.Time) error {
	by, lowest := map[string][]string{}, ""
	for _, what := range slices.Sorted(maps.Keys(g.runs)) {
		runs := g.runs[what]
		if runs == g.version {
			continue
		}
		by[runs] = append(by[runs], what)
		if lowest == "" || older(runs, lowest) {
			lowest = runs
		}
	}
	if len(by) == 0 {
		return nil
	}
	texts := xslices.Map(slices.Sorted(maps.Keys(by)),
		func(runs string) string { return runs + " runs on " + strings.Join(by[runs], ", ") })
	fix := ""
	if older(lowest, g.version) {
		fix = "castle rollout upgrades one machine after the other; or "
	}
	err := &gate.Finding{Kind: gate.UpgradeNeeded, Text: fmt.Sprintf("Kubernetes %s is wanted; %s; %s"+
		`set kubernetes_version = "%s" again; or castle recreate`, g.version, strings.Join(texts, "; "), fix,
		lowest)}
	if kept := strings.Join(g.ready, " "); kept != g.last {
		g.last, g.since = kept, now
	}
	if g.last != "" && now.Sub(g.since) >= restarted {
		return gate.Permanent(err)
	}
	return err
}

// older compares two releases.
func older(a, b string) bool {
	x, err := version.ParseSemantic(a)
	y, err2 := version.ParseSemantic(b)
	return err == nil && err2 == nil && x.LessThan(y)
}

// hostOf is an address without its port.
func hostOf(address string) string {
	if host, _, err := net.SplitHostPort(address); err == nil {
		return host
	}
	return address
}
