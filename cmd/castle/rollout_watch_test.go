//go:build integration

package main

import (
	"context"
	"fmt"
	"maps"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/cosi-project/runtime/pkg/safe"
	"github.com/siderolabs/talos/pkg/machinery/client"
	clientconfig "github.com/siderolabs/talos/pkg/machinery/client/config"
	"github.com/siderolabs/talos/pkg/machinery/resources/runtime"
	"google.golang.org/grpc"
	"google.golang.org/grpc/backoff"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"
)

// watcher looks at a cluster from outside of castle: at its API server through the virtual address, at its
// nodes, and at each machine through Talos.
type watcher struct {
	t        *testing.T
	config   *rest.Config
	machines map[string]*client.Client // by their names

	stop func()
	done sync.WaitGroup
	mu   sync.Mutex
	seen watched
}

// watched is what a watcher has seen.
type watched struct {
	anew, kept   requests // with a connection for each one, and with one that is kept
	samples      int      // looks at all machines
	mostDown     int      // that were down, or not ready, at once
	mostCordoned int
	fewestVoters int           // of etcd that served
	down         time.Duration // of all machines together
	late         int           // samples of a node without a heartbeat whose machine was well
	broken       []string
}

// requests are those of one client, one every 50 ms.
type requests struct {
	all, failed int
	longest     time.Duration // from the first one that failed to the next that succeeded
}

// newWatcher reads the credentials in the state directory.
func newWatcher(t *testing.T, state string, addresses map[string]string) *watcher {
	w := &watcher{t: t, machines: map[string]*client.Client{}}
	var err error
	w.config, err = clientcmd.BuildConfigFromFlags("", filepath.Join(state, "kubeconfig"))
	must(t, err)
	w.config.QPS = -1
	text, err := os.ReadFile(filepath.Join(state, "talosconfig"))
	must(t, err)
	for name, address := range addresses {
		config, err := clientconfig.FromBytes(text)
		must(t, err)
		// A machine that is back is to be seen at once.
		quick := grpc.ConnectParams{MinConnectTimeout: time.Second, Backoff: backoff.Config{
			BaseDelay: 50 * time.Millisecond, Multiplier: 1, MaxDelay: 50 * time.Millisecond}}
		w.machines[name], err = client.New(t.Context(), client.WithConfig(config),
			client.WithEndpoints(address), client.WithGRPCDialOptions(grpc.WithConnectParams(quick)))
		must(t, err)
		t.Cleanup(func() { w.machines[name].Close() }) //nolint:errcheck // it has only read
	}
	return w
}

// begin begins to watch anew, until end.
func (w *watcher) begin() {
	w.seen = watched{fewestVoters: len(w.machines)}
	ctx, stop := context.WithCancel(w.t.Context())
	w.stop = stop
	for _, one := range []func(context.Context){
		func(ctx context.Context) { w.ask(ctx, &w.seen.anew, true) },
		func(ctx context.Context) { w.ask(ctx, &w.seen.kept, false) },
		w.look,
	} {
		w.done.Go(func() { one(ctx) })
	}
}

func (w *watcher) end() watched {
	w.stop()
	w.done.Wait()
	return w.seen
}

// ask requests /readyz at the virtual address every 50 ms.
func (w *watcher) ask(ctx context.Context, r *requests, anew bool) {
	secured, err := rest.TLSConfigFor(w.config)
	if err != nil {
		w.t.Error(err)
		return
	}
	transport := &http.Transport{TLSClientConfig: secured, DisableKeepAlives: anew, ForceAttemptHTTP2: !anew}
	defer transport.CloseIdleConnections()
	c := &http.Client{Transport: transport, Timeout: 5 * time.Second}
	tick := time.NewTicker(50 * time.Millisecond)
	defer tick.Stop()
	var since time.Time // the first that failed
	for {
		began := time.Now()
		answer, err := c.Get(w.config.Host + "/readyz")
		if ctx.Err() != nil {
			return
		}
		_, err = answerOf(answer, err)
		r.all++
		switch {
		case err != nil:
			r.failed++
			if since.IsZero() {
				since = began
			}
		case !since.IsZero():
			r.longest = max(r.longest, time.Since(since))
			since = time.Time{}
		}
		select {
		case <-ctx.Done():
			if !since.IsZero() {
				r.longest = max(r.longest, time.Since(since))
			}
			return
		case <-tick.C:
		}
	}
}

// look looks at nodes and machines, again and again.
func (w *watcher) look(ctx context.Context) {
	last := time.Now()
	for ctx.Err() == nil {
		down, voters, unknown := w.askTalos(ctx)
		nodes, err := w.nodes(ctx)
		if ctx.Err() != nil {
			return
		}
		var cordoned []string
		for _, n := range nodes {
			_, name, _ := strings.Cut(n.name, "-")
			switch {
			case n.ready:
			case !n.unknown:
				down[name] = "its node is not ready"
			case down[name] == "": // the lab waits 8 s for a heartbeat, and a busy machine is late with it
				w.seen.late++
			}
			if n.cordoned {
				cordoned = append(cordoned, name)
			}
		}
		now := time.Now()
		w.seen.down += time.Duration(len(down)) * now.Sub(last)
		last = now
		w.seen.samples++
		w.seen.mostDown = max(w.seen.mostDown, len(down))
		w.seen.mostCordoned = max(w.seen.mostCordoned, len(cordoned))
		if unknown == 0 {
			w.seen.fewestVoters = min(w.seen.fewestVoters, voters)
		}
		w.hold(len(down) <= 1, "machines are down: %v", down)
		w.hold(len(cordoned) <= 1, "nodes are cordoned: %v", cordoned)
		w.hold(unknown > 0 || voters >= 2, "only %d voters of etcd serve; down: %v", voters, down)
		if err != nil {
			w.t.Logf("%s nodes: %v", now.Format("15:04:05.000"), err)
		}
		select {
		case <-ctx.Done():
		case <-time.After(100 * time.Millisecond): // the lab has more to do than to answer
		}
	}
}

// hold notes that something does not hold, with the time at which it did not.
func (w *watcher) hold(holds bool, format string, args ...any) {
	const most = 10
	if !holds && len(w.seen.broken) < most {
		w.seen.broken = append(w.seen.broken, time.Now().Format("15:04:05.000 ")+fmt.Sprintf(format, args...))
	}
}

// askTalos asks all machines how they are. Those that do not answer in time are unknown: what is off refuses
// connections.
func (w *watcher) askTalos(ctx context.Context) (down map[string]string, voters, unknown int) {
	bounded, stop := context.WithTimeout(ctx, 5*time.Second)
	defer stop()
	down = map[string]string{}
	var all sync.WaitGroup
	for name, c := range w.machines {
		all.Go(func() {
			is, err := safe.StateGetByID[*runtime.MachineStatus](bounded, c.COSI, runtime.MachineStatusID)
			serves := false
			if err == nil && strings.HasPrefix(name, "cp-") {
				serves = servesEtcd(bounded, c)
			}
			w.mu.Lock()
			defer w.mu.Unlock()
			switch {
			case status.Code(err) == codes.DeadlineExceeded:
				unknown++
			case err != nil:
				down[name] = err.Error()
			case is.TypedSpec().Stage != runtime.MachineStageRunning:
				down[name] = is.TypedSpec().Stage.String()
			}
			if serves {
				voters++
			}
		})
	}
	all.Wait()
	return down, voters, unknown
}

// servesEtcd reports whether a machine's member of etcd votes and has a leader.
func servesEtcd(ctx context.Context, c *client.Client) bool {
	answer, err := c.EtcdStatus(ctx)
	if err != nil || len(answer.GetMessages()) == 0 {
		return false
	}
	is := answer.GetMessages()[0].GetMemberStatus()
	return is.GetLeader() != 0 && !is.GetIsLearner()
}

// nodes lists the nodes through the first control plane that answers: the virtual address may be on its way.
func (w *watcher) nodes(ctx context.Context) ([]clusterNode, error) {
	err := fmt.Errorf("no control plane")
	for _, name := range slices.Sorted(maps.Keys(w.machines)) {
		if !strings.HasPrefix(name, "cp-") {
			continue
		}
		var nodes []clusterNode
		if nodes, err = w.nodesAt(ctx, w.machines[name].GetEndpoints()[0]); err == nil {
			return nodes, nil
		}
	}
	return nil, err
}

func (w *watcher) nodesAt(ctx context.Context, address string) ([]clusterNode, error) {
	config := rest.CopyConfig(w.config)
	config.Timeout = 5 * time.Second
	c, err := rest.HTTPClientFor(config)
	if err != nil {
		return nil, err
	}
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, "https://"+net.JoinHostPort(address, "6443")+
		"/api/v1/nodes", nil)
	if err != nil {
		return nil, err
	}
	answer, err := answerOf(c.Do(req))
	if err != nil {
		return nil, err
	}
	return nodesOf(answer)
}
