// Package operators does in the lab the work of the operators behind the stand-in charts: Cilium, MetalLB,
// Longhorn, Hetzner Cloud's controllers, External Secrets, PGO, Flux and metrics-server. One more is the
// fault drain-blocked.
//
// The Pods of these charts run no containers, so this package does their work against the real API.
// It creates a webhook's certificate, fills its caBundle and opens its socket, in that order and
// with a delay before each step. It validates custom resources and sets the status that the real
// controllers set, in their words.
//
// Each operator is a function that reads the cluster and takes the next step that is due. It stores
// only the time at which it first saw something, so the next pass retries a step that failed. An
// operator whose workload is absent does nothing.
package operators

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"path/filepath"
	"slices"
	"sync"
	"time"

	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"

	"github.com/ephemeral-castle/castle/lab/internal/operators/cilium"
	"github.com/ephemeral-castle/castle/lab/internal/operators/cluster"
	"github.com/ephemeral-castle/castle/lab/internal/operators/flux"
	"github.com/ephemeral-castle/castle/lab/internal/operators/hcloud/ccm"
	"github.com/ephemeral-castle/castle/lab/internal/operators/hcloud/csi"
	"github.com/ephemeral-castle/castle/lab/internal/operators/pgo"
	"github.com/ephemeral-castle/castle/lab/internal/operators/upstream"
)

// Routes is the API server's way to the processes behind Pods; lab/internal/kubernetes has it.
type Routes interface {
	// Register leads "namespace/app:port" to a loopback address.
	Register(workload, address string)
	// Unregister ends what Register began.
	Unregister(workload string)
}

// Faults, Turn and Asks belong to the cluster that the operators work in.
type (
	Faults = cluster.Faults
	Turn   = cluster.Turn
	Asks   = cluster.Asks
)

// Config configures the operators.
type Config struct {
	REST   *rest.Config
	Routes Routes
	Faults cluster.Faults
	// Turn is called when a fault begins or ends; it may be nil.
	Turn func(cluster.Turn)
	// Asks are castle's requests to the API; a fault lasts until castle has met it. It may be nil.
	Asks *cluster.Asks
	// Speed divides the time that the operators' steps take outside; 0 means no time at all.
	Speed float64
	// Controllers is the folder with the real controllers; empty for the doubles. Logs is where they log.
	Controllers, Logs string
	// AgeKey is the identity of age that stands in for the user's.
	AgeKey string
	// Machines are what Talos offers to Pods on the host's network.
	Machines cilium.Machines
	// Dir is the directory of the databases' data, and that of the volumes.
	Dir string
	// HTTP reaches Infisical; nil is http.DefaultClient, which trusts what SSL_CERT_FILE names.
	HTTP *http.Client
	// Log is called with the error of an operator; it may be nil.
	Log func(operator string, err error)
}

// interval is the time between two passes of an operator. The real operators watch; a delay of a
// quarter of a second does not affect the lab. After idle without a request from outside it is quietInterval:
// nobody would notice, and passes took half of the lab's computing time.
const (
	interval      = 250 * time.Millisecond
	idle          = 15 * time.Second
	quietInterval = time.Second
)

// Run runs all operators until ctx ends, and then closes their sockets and databases.
func Run(ctx context.Context, c Config) error {
	typed, err := kubernetes.NewForConfig(c.REST)
	if err != nil {
		return err
	}
	untyped, err := dynamic.NewForConfig(c.REST)
	if err != nil {
		return err
	}
	if c.HTTP == nil {
		c.HTTP = http.DefaultClient
	}
	w := cluster.New(typed, untyped, c.Speed, time.Now)
	a := flux.NewApplier(untyped, typed.Discovery())
	w.Faults, w.Turn, w.Asks, w.Fresh = c.Faults, c.Turn, c.Asks, interval/2
	pause := func() time.Duration {
		if c.Asks.Quiet(time.Now(), idle) {
			return quietInterval
		}
		return interval
	}
	var all sync.WaitGroup
	for name, o := range team(w, a, c) {
		all.Go(func() {
			defer o.Close()
			play(ctx, o, pause, func(err error) {
				if c.Log != nil {
					c.Log(name, err)
				}
			})
		})
	}
	all.Wait()
	return context.Cause(ctx)
}

// operator takes the next steps that are due.
type operator interface {
	Look(ctx context.Context) error
	Close()
}

func team(w *cluster.View, a *flux.Applier, c Config) map[string]operator {
	all := map[string]operator{
		"cilium":           cilium.New(w, c.Machines),
		"metallb":          newMetalLB(w, c.Routes),
		"csi-registrar":    &registrar{w},
		"longhorn":         newLonghorn(w, c.Routes, c.Dir),
		"external-secrets": newExternalSecrets(w, c.Routes, c.HTTP),
		"hcloud-ccm":       ccm.New(w, c.HTTP),
		"hcloud-csi":       csi.New(w, c.HTTP),
		"pgo":              pgo.New(w, c.Dir, pooled(w)),
		"drain-blocked":    &drainBlocker{w: w},
		"metrics":          newMetricsServer(w, c.Routes),
	}
	if c.Controllers == "" {
		all["flux"] = flux.New(w, flux.NewFleet(w, a, c.AgeKey), filepath.Join(c.Dir, "flux"))
		all["helm"] = flux.NewHelm(w, a, c.REST, c.HTTP)
		return all
	}
	real := upstream.Options{Folder: c.Controllers, Dir: filepath.Join(c.Dir, "controllers"), Logs: c.Logs,
		Kubeconfig: filepath.Join(c.Dir, "kubeconfig"), Routes: c.Routes}
	if slices.ContainsFunc(metalLBFaults(), w.Asked) { // only the double has them
		real.Without = []string{"metallb-controller"}
	} else {
		delete(all, "metallb")
	}
	all["real"] = upstream.New(w, real)
	return all
}

// play reports an error once, not with every look that meets it again.
func play(ctx context.Context, o operator, pause func() time.Duration, report func(error)) {
	last := ""
	for {
		err := safely(ctx, o)
		switch {
		case ctx.Err() != nil:
			return
		case err == nil:
			last = ""
		case err.Error() != last:
			last = err.Error()
			report(err)
		}
		select {
		case <-ctx.Done():
			return
		case <-time.After(pause()):
		}
	}
}

// safely recovers a panic of an operator, so that one malformed object does not stop the lab.
func safely(ctx context.Context, o operator) (err error) {
	defer func() {
		if r := recover(); r != nil {
			err = errors.Join(err, fmt.Errorf("panic: %v", r))
		}
	}()
	return o.Look(ctx)
}
