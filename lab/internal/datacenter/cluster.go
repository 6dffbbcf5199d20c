package datacenter

import (
	"context"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"time"

	"github.com/ephemeral-castle/castle/internal/emulator/talos"
	"github.com/ephemeral-castle/castle/lab/internal/controlplane"
	"github.com/ephemeral-castle/castle/lab/internal/kubernetes"
)

// cluster is the Kubernetes of one bootstrap. The datacenter's mutex guards it.
type cluster struct {
	spec talos.ClusterSpec
	dir  string
	// where the one real API server listens; each machine's address leads there while it is on
	backend  string
	process  *controlplane.Process // nil while it is off or starting
	upTo     context.CancelFunc    // ends what follows one start
	stored   map[string]bool       // control planes that have its etcd data on their disks
	answered bool                  // for the first time
	doors    map[string]*door
	names    map[string]string // address: the node's name
}

func (c *cluster) running() bool { return c.process != nil }

// bootstrapped is the moment when the first control plane would start.
func (d *Datacenter) bootstrapped(spec talos.ClusterSpec) {
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.cluster != nil {
		d.say("talos: %s is bootstrapped, but the lab holds one cluster at a time: it stays without "+
			"Kubernetes", spec.Name)
		return
	}
	backend, err := freeAddress()
	if err != nil {
		d.say("kubernetes: %v", err)
		return
	}
	d.cluster = &cluster{
		spec: spec, backend: backend, dir: filepath.Join(d.config.Dir, "kubernetes"),
		stored: map[string]bool{},
		doors:  map[string]*door{}, names: map[string]string{},
	}
	d.startCluster()
}

// startCluster starts the process; the caller holds the mutex. What a machine
// does meanwhile is noticed when the API answers.
func (d *Datacenter) startCluster() {
	c := d.cluster
	if c.upTo != nil {
		return
	}
	ctx, cancel := context.WithCancel(d.ctx)
	c.upTo = cancel
	d.say("kubernetes: %s starts", c.spec.Name)
	order := d.order(c)
	go func() {
		p, err := d.config.Kubernetes(ctx, order)
		if err != nil {
			if ctx.Err() == nil {
				d.say("kubernetes: %v", err)
			}
			return
		}
		d.mu.Lock()
		defer d.mu.Unlock()
		if ctx.Err() != nil || d.cluster != c {
			p.Kill()
			return
		}
		c.process = p
		d.say("kubernetes: %s answers", c.spec.Name)
		for _, m := range d.machines {
			d.join(m)
		}
		d.answered(c)
	}()
}

// join registers a machine's node and, for a control plane, opens its API; the
// caller holds the mutex.
func (d *Datacenter) join(m talos.MachineSpec) {
	c := d.cluster
	c.names[m.Address] = m.Hostname
	if m.ControlPlane {
		c.stored[m.Address] = true
		d.open(m.Address)
		for _, vip := range c.spec.VIPs {
			d.follow(vip)
		}
	}
	vm := d.vms[m.Address]
	node := kubernetes.Node{
		Name: m.Hostname, Address: m.Address, OS: "Talos (" + m.TalosVersion + ")",
		Kubelet: m.KubernetesVersion,
		CPUs:    number(vm.Config["cores"], 2), MemoryBytes: number(vm.Config["memory"], 4096) << 20,
		Labels: m.Labels, Annotations: m.Annotations, Taints: m.Taints,
	}
	nodes := kubernetes.Nodes{Client: c.process.Client}
	go d.untilDone("node "+m.Hostname, c.process, func(ctx context.Context) error {
		return nodes.Run(ctx, node)
	})
}

// untilDone repeats what a kubelet would repeat, as long as the API lives.
func (d *Datacenter) untilDone(what string, p *controlplane.Process, do func(context.Context) error) {
	ctx, cancel := context.WithCancel(d.ctx)
	defer cancel()
	tick := time.NewTicker(500 * time.Millisecond)
	defer tick.Stop()
	for {
		err := do(ctx)
		if err == nil {
			return
		}
		select {
		case <-p.Done():
			return
		case <-ctx.Done():
			return
		case <-tick.C:
			d.say("kubernetes: %s: %v", what, err)
		}
	}
}

// off is what a machine's end means for the cluster.
func (d *Datacenter) off(address string) {
	d.mu.Lock()
	defer d.mu.Unlock()
	m, configured := d.machines[address]
	delete(d.machines, address)
	delete(d.vms, address)
	c := d.cluster
	if c == nil || !configured {
		return
	}
	d.shut(address)
	left := slices.ContainsFunc(slices.Collect(maps.Values(d.machines)), func(m talos.MachineSpec) bool {
		return m.ControlPlane
	})
	if !left {
		if m.ControlPlane {
			d.say("kubernetes: the last control plane is off")
		}
		d.stopCluster()
		return
	}
	if c.running() {
		nodes := kubernetes.Nodes{Client: c.process.Client}
		go d.untilDone("node "+m.Hostname, c.process, func(ctx context.Context) error {
			return nodes.Stop(ctx, m.Hostname)
		})
	}
}

// diskLost treats the loss of a machine's disk: with the last one that had
// etcd's data the cluster is gone for good.
func (d *Datacenter) diskLost(address string) {
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.cluster == nil {
		return
	}
	delete(d.cluster.stored, address)
	if len(d.cluster.stored) == 0 && !slices.ContainsFunc(slices.Collect(maps.Values(d.machines)),
		func(m talos.MachineSpec) bool { return m.ControlPlane }) {
		d.endCluster()
	}
}

// stopCluster ends the process and keeps its data; the caller holds the mutex.
func (d *Datacenter) stopCluster() {
	c := d.cluster
	if c.upTo != nil {
		c.upTo()
		c.upTo = nil
	}
	for address := range c.doors {
		d.shut(address)
	}
	if c.process != nil {
		c.process.Kill()
		c.process = nil
	}
}

// endCluster also throws the data away; the caller holds the mutex.
func (d *Datacenter) endCluster() {
	if d.cluster == nil {
		return
	}
	d.stopCluster()
	if err := os.RemoveAll(filepath.Join(d.cluster.dir, "etcd")); err != nil {
		d.say("kubernetes: %v", err)
	}
	d.say("kubernetes: %s is gone", d.cluster.spec.Name)
	d.cluster = nil
}
