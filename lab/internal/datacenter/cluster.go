package datacenter

import (
	"context"
	"maps"
	"net"
	"path/filepath"
	"slices"
	"sync"
	"time"

	"github.com/ephemeral-castle/castle/internal/emulator/proxmox"
	"github.com/ephemeral-castle/castle/internal/emulator/talos"
	"github.com/ephemeral-castle/castle/lab/internal/controlplane"
	"github.com/ephemeral-castle/castle/lab/internal/kubernetes"
	"github.com/ephemeral-castle/castle/lab/internal/operators/pgo"
	"github.com/ephemeral-castle/castle/lab/internal/operators/volumes"
)

// cluster is the Kubernetes of one bootstrap. The datacenter's mutex guards it.
type cluster struct {
	spec talos.ClusterSpec
	dir  string
	// where the one real API server listens; each machine's address leads there while it is on
	backend  string
	process  *controlplane.Process // nil while it is off or starting
	upTo     context.CancelFunc    // ends what follows one start
	names    []string              // in the certificate that the API server serves
	stored   map[string]bool       // control planes that have its etcd data on their disks
	answered bool                  // for the first time
	refused  bool                  // no control plane could start
	stalled  bool                  // its etcd has no quorum
	doors    map[string]*door
	balancer net.Listener             // nil without one
	starting map[string]*time.Timer   // by address: until its API server is up again
	nodes    map[string]string        // address: the node's name
	acts     map[string]chan struct{} // by node: closed when its kubelet's last act is done

	described map[string]context.CancelFunc // by node: ends what its Talos tries to write to it
}

// kube is the Kubernetes that the configured machines form: at most one cluster.
type kube struct {
	config  Config
	ctx     context.Context
	log     *logger
	proxmox *proxmox.Server
	fleet   *talos.Fleet

	addresses *addresses

	mu       sync.Mutex
	machines map[string]talos.MachineSpec // by address: those that are configured and on
	booted   map[string]bool              // by address: their nodes do not know yet that they have booted
	disks    map[string]bool              // by address: machines with volumes of the cluster
	replicas map[string]string            // by address: the node whose volumes of Longhorn its disks hold
	sources  map[string]string            // by address: where its API server's requests come from
	holders  map[string]string            // by virtual address: who holds it, "" once nobody does any more
	cluster  *cluster
}

func newKube(ctx context.Context, c Config, log *logger) *kube {
	return &kube{
		config: c, ctx: ctx, log: log, addresses: newAddresses(),
		machines: map[string]talos.MachineSpec{}, booted: map[string]bool{}, sources: map[string]string{},
		disks: map[string]bool{}, replicas: map[string]string{},
		holders: map[string]string{},
	}
}

func (c *cluster) running() bool { return c.process != nil }

// bootstrapped is the moment when the first control plane would start.
func (k *kube) bootstrapped(spec talos.ClusterSpec) {
	k.mu.Lock()
	defer k.mu.Unlock()
	if k.cluster != nil {
		k.log.say("talos: %s is bootstrapped, but the lab holds one cluster at a time: it stays without "+
			"Kubernetes", spec.Name)
		return
	}
	backend, err := freeAddress()
	if err != nil {
		k.log.say("kubernetes: %v", err)
		return
	}
	k.cluster = &cluster{
		spec: spec, backend: backend, dir: k.dir(),
		stored: map[string]bool{},
		doors:  map[string]*door{}, starting: map[string]*time.Timer{}, nodes: map[string]string{},
		acts: map[string]chan struct{}{}, described: map[string]context.CancelFunc{},
	}
	if !spec.Recovered {
		if err := kubernetes.RemoveEtcd(k.cluster.dir); err != nil {
			k.log.say("kubernetes: %v", err)
		}
	}
	if err := kubernetes.SetQuorum(k.cluster.dir, true); err != nil {
		k.log.say("kubernetes: %v", err)
	}
	k.balance(k.cluster)
	k.startCluster()
}

// dir is where the files of Kubernetes are, and etcd's data.
func (k *kube) dir() string { return filepath.Join(k.config.Dir, "kubernetes") }

// startCluster starts the process; the caller holds the mutex. The cluster picks up changes of a
// machine in the meantime once the API answers.
func (k *kube) startCluster() {
	c := k.cluster
	if c.upTo != nil || c.stalled {
		return
	}
	why := k.refusal(c.spec)
	if c.refused = why != ""; c.refused {
		k.log.say("kubernetes: %s does not start: %s", c.spec.Name, why)
		return
	}
	ctx, cancel := context.WithCancel(k.ctx)
	c.upTo = cancel
	k.log.say("kubernetes: %s starts", c.spec.Name)
	order := k.order(c)
	c.names = order.Kubernetes.CertSANs
	go func() {
		p, err := k.config.Kubernetes(ctx, order)
		if err != nil {
			if ctx.Err() == nil {
				k.log.say("kubernetes: %v", err)
			}
			return
		}
		nodes, err := kubernetes.Nodes{Client: p.Client}.Running(ctx)
		if err != nil {
			k.log.say("kubernetes: nodes: %v", err)
		}
		k.mu.Lock()
		defer k.mu.Unlock()
		if ctx.Err() != nil || k.cluster != c {
			p.Kill()
			return
		}
		c.process = p
		k.log.say("kubernetes: %s answers", c.spec.Name)
		k.stopAbsent(nodes)
		for _, m := range k.machines {
			k.join(m)
		}
		k.answered(c)
	}()
}

// stopAbsent stops the kubelets of nodes whose machines are not on: etcd may not know yet, or not any more.
// The caller holds the mutex.
func (k *kube) stopAbsent(nodes []string) {
	on := map[string]bool{}
	for _, m := range k.machines {
		on[m.Hostname] = true
	}
	for _, node := range nodes {
		if !on[node] {
			k.kubelet(node, kubernetes.Nodes.Stop)
		}
	}
}

// join registers a machine's node and, for a control plane, opens its API; the
// caller holds the mutex.
func (k *kube) join(m talos.MachineSpec) {
	c := k.cluster
	addresses, why := nodeIPs(m, c.spec.ServiceCIDRs)
	if why != "" {
		k.log.say("talos %s: %s", m.Address, why)
		return
	}
	if name := c.nodes[m.Address]; name != "" && name != m.Hostname {
		k.kubelet(name, kubernetes.Nodes.Stop) // it has another name now, and nobody deletes the old node
	}
	c.nodes[m.Address] = m.Hostname
	k.disks[m.Address], k.replicas[m.Address] = true, m.Hostname
	if m.ControlPlane && !c.stalled { // without a quorum, no member of etcd joins
		c.stored[m.Address] = true
		k.certify(c, m, func() { k.open(m.Address, m.Address) })
	}
	vm := k.addresses.vm(m.Address)
	node := kubernetes.Node{
		Name: m.Hostname, Addresses: addresses, OS: "Talos (" + m.TalosVersion + ")",
		Kubelet: m.KubernetesVersion, StaticPods: m.StaticPods,
		CPUs: number(vm.Config["cores"], 2), MemoryBytes: number(vm.Config["memory"], 4096) << 20,
		Taints: m.RegisterTaints, Booted: k.booted[m.Address],
	}
	delete(k.booted, m.Address)
	k.kubelet(m.Hostname, func(nodes kubernetes.Nodes, ctx context.Context, _ string) error {
		return nodes.Run(ctx, node)
	})
	k.describe(m)
}

// describe has a machine's Talos write to its node, until that succeeds or something else is to be written:
// Kubernetes refuses some of it for ever. The caller holds the mutex.
func (k *kube) describe(m talos.MachineSpec) {
	c := k.cluster
	c.undescribe(m.Hostname)
	ctx, cancel := context.WithCancel(k.ctx)
	c.described[m.Hostname] = cancel
	p, want := c.process, kubernetes.Description{ControlPlane: m.ControlPlane, Labels: m.Labels,
		Annotations: m.Annotations, Taints: m.Taints}
	go k.untilDone(ctx, "node "+m.Hostname, p, func(ctx context.Context) error {
		return kubernetes.Describe(ctx, p.REST, m.Hostname, want)
	})
}

func (c *cluster) undescribe(node string) {
	if stop := c.described[node]; stop != nil {
		stop()
		delete(c.described, node)
	}
}

// kubelet does what a node's kubelet does next, after all that it does already; the caller holds the mutex.
func (k *kube) kubelet(node string, do func(kubernetes.Nodes, context.Context, string) error) {
	c := k.cluster
	p, before, done := c.process, c.acts[node], make(chan struct{})
	c.acts[node] = done
	go func() {
		defer close(done)
		if before != nil {
			<-before
		}
		k.untilDone(k.ctx, "node "+node, p, func(ctx context.Context) error {
			return do(kubernetes.Nodes{Client: p.Client}, ctx, node)
		})
	}()
}

// untilDone retries an action of a kubelet while the API runs.
func (k *kube) untilDone(ctx context.Context, what string, p *controlplane.Process,
	do func(context.Context) error) {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	tick := time.NewTicker(500 * time.Millisecond)
	defer tick.Stop()
	for last := ""; ; {
		err := do(ctx)
		if err == nil {
			return
		}
		if err.Error() != last {
			last = err.Error()
			k.log.say("kubernetes: %s: %v", what, err)
		}
		select {
		case <-p.Done():
			return
		case <-ctx.Done():
			return
		case <-tick.C:
		}
	}
}

// off applies a power cut of a machine to the cluster.
func (k *kube) off(address string) { k.leave(address, kubernetes.Nodes.Stop) }

// down is a machine that ends its services, to restart or to switch itself off.
func (k *kube) down(address string) {
	k.log.say("talos %s: goes down", address)
	k.leave(address, kubernetes.Nodes.ShutDown)
}

// leave is a machine that is not on any more, with what its kubelet does last.
func (k *kube) leave(address string, last func(kubernetes.Nodes, context.Context, string) error) {
	k.mu.Lock()
	defer k.mu.Unlock()
	m, configured := k.machines[address]
	delete(k.machines, address)
	c := k.cluster
	if c == nil || !configured {
		return
	}
	k.shut(address)
	left := slices.ContainsFunc(slices.Collect(maps.Values(k.machines)), func(m talos.MachineSpec) bool {
		return m.ControlPlane
	})
	if !left {
		if m.ControlPlane {
			k.log.say("kubernetes: the last control plane is off")
		}
		k.stopCluster()
		return
	}
	c.undescribe(m.Hostname)
	if c.running() {
		k.kubelet(m.Hostname, last)
	}
}

// diskLost treats the loss of etcd's data on a machine's disk: with the last one that had it the cluster is
// gone for good, even if other control planes are on. Who has it is known once the API has answered.
func (k *kube) diskLost(address string) {
	k.mu.Lock()
	defer k.mu.Unlock()
	if k.disks[address] {
		if delete(k.disks, address); len(k.disks) == 0 {
			defer k.volumesLost()
		}
	}
	if k.cluster == nil {
		return
	}
	delete(k.cluster.stored, address)
	on := slices.ContainsFunc(slices.Collect(maps.Values(k.machines)),
		func(m talos.MachineSpec) bool { return m.ControlPlane })
	if len(k.cluster.stored) == 0 && (k.cluster.answered || !on) {
		k.endCluster()
	}
}

// replicasLost is the loss of all disks of a machine: a reset leaves the volumes of Longhorn.
func (k *kube) replicasLost(address string) {
	k.mu.Lock()
	defer k.mu.Unlock()
	node := k.replicas[address]
	if node == "" {
		return
	}
	delete(k.replicas, address)
	if err := volumes.RemoveReplicas(k.dir(), node); err != nil {
		k.log.say("volumes: %v", err)
	}
}

// volumesLost is the loss of the last disk with data of databases; the caller holds the mutex.
func (k *kube) volumesLost() {
	if err := pgo.RemoveDatabases(k.dir()); err != nil {
		k.log.say("volumes: %v", err)
	}
}

// stopCluster ends the process and keeps its data; the caller holds the mutex.
func (k *kube) stopCluster() {
	c := k.cluster
	if c.upTo != nil {
		c.upTo()
		c.upTo = nil
	}
	for address := range c.doors {
		k.shut(address)
	}
	clear(c.starting)
	if c.process != nil {
		c.process.Kill()
		c.process = nil
	}
}

// endCluster also throws the data away; the caller holds the mutex.
func (k *kube) endCluster() {
	if k.cluster == nil {
		return
	}
	k.stopCluster()
	if k.cluster.balancer != nil {
		k.cluster.balancer.Close() //nolint:errcheck // it was open
	}
	if err := kubernetes.RemoveEtcd(k.cluster.dir); err != nil {
		k.log.say("kubernetes: %v", err)
	}
	k.log.say("kubernetes: %s is gone", k.cluster.spec.Name)
	k.cluster = nil
}
