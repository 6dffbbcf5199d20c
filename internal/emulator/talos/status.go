package talos

import (
	"crypto/sha256"
	"fmt"
	"maps"
	"net/netip"
	"reflect"
	"strings"

	pb "github.com/siderolabs/talos/pkg/machinery/api/machine"
	"github.com/siderolabs/talos/pkg/machinery/resources/cluster"
	"github.com/siderolabs/talos/pkg/machinery/resources/runtime"

	"github.com/ephemeral-castle/castle/internal/emulator/talos/resources"
)

// refresh brings the status of every machine up to date. It runs at the end of each change, as the
// controllers of Talos do.
func (p *power) refresh() {
	for _, m := range p.world.machines {
		if m.server != nil {
			p.report(m)
		}
	}
	p.etcd.ReportQuorum()
}

// report writes the machine's status and its event, if it has changed
// (internal/app/machined/pkg/controllers/runtime/machine_status.go).
func (p *power) report(m *machine) {
	p.noteServices(m)
	p.describe(m)
	if m.doing == runtime.MachineStageBooting && p.booted(m) {
		m.doing = runtime.MachineStageRunning
		p.world.sequence(m, "", "boot", pb.SequenceEvent_STOP)
	}
	now := runtime.MachineStatusSpec{Stage: m.doing}
	if m.doing == runtime.MachineStageBooting || m.doing == runtime.MachineStageRunning {
		now.Status.UnmetConditions = p.unmet(m)
	}
	now.Status.Ready = len(now.Status.UnmetConditions) == 0
	if m.doing == runtime.MachineStageRunning && now.Status.Ready && !m.proven {
		m.proven, m.boots.Unproven = true, false // once in a boot (drop_upgrade_fallback.go)
	}
	if reflect.DeepEqual(now, m.reported) {
		return
	}
	m.reported = now
	resources.Set(m.resources, runtime.NewMachineStatus(), func(status *runtime.MachineStatus) {
		*status.TypedSpec() = now
	})
	event := &pb.MachineStatusEvent{Stage: pb.MachineStatusEvent_MachineStage(now.Stage),
		Status: &pb.MachineStatusEvent_MachineStatus{Ready: now.Status.Ready}}
	for _, u := range now.Status.UnmetConditions {
		event.Status.UnmetConditions = append(event.Status.UnmetConditions,
			&pb.MachineStatusEvent_MachineStatus_UnmetCondition{Name: u.Name, Reason: u.Reason})
	}
	p.world.publish(m, "", event)
	p.shareMembers()
}

// booted reports whether the sequence boot has ended: all services are up, and etcd is healthy.
func (p *power) booted(m *machine) bool {
	return m.ready && (!m.controlPlane() || m.etcd.Healthy())
}

// unmet lists why the machine is not ready. No Kubernetes tells the emulator whether the Node is: it counts
// as ready with its kubelet, once its cluster has an API server, unless SetUnmet says otherwise.
func (p *power) unmet(m *machine) (all []runtime.UnmetCondition) {
	var services []string
	for _, s := range servicesOf(m) {
		switch {
		case s.GetState() != "Running":
			services = append(services, s.GetId()+" not running")
		case !s.GetHealth().GetHealthy():
			services = append(services, s.GetId()+" not healthy")
		}
	}
	reasons := map[string]string{"services": strings.Join(services, ", ")}
	if !m.ready || !p.etcd.Announced(m.installed.CA) {
		reasons["nodeReady"] = fmt.Sprintf("node %q status is not available yet", m.hostname())
	}
	maps.Copy(reasons, m.declared)
	for _, name := range []string{"time", "network", "services", "staticPods", "nodeReady"} {
		if reasons[name] != "" {
			all = append(all, runtime.UnmetCondition{Name: name, Reason: reasons[name]})
		}
	}
	return all
}

// SetUnmet makes a condition of a running machine unmet, such as nodeReady, for a reason; met again without
// one.
func (f *Fleet) SetUnmet(machine, condition, reason string) error {
	defer f.world.lock()()
	m := f.world.find(machine)
	if m == nil {
		return fmt.Errorf("there is no machine %s", machine)
	}
	if m.declared == nil {
		m.declared = map[string]string{}
	}
	m.declared[condition] = reason
	if reason == "" {
		delete(m.declared, condition)
	}
	return nil
}

// shareMembers lists the machines of its cluster on each machine, as discovery does.
func (p *power) shareMembers() {
	for _, m := range p.world.machines {
		if m.server == nil || m.installed == nil {
			continue
		}
		for _, peer := range p.world.machines {
			if peer.installed == nil || peer.installed.CA != m.installed.CA || peer.runs.Release == "" {
				continue
			}
			spec := cluster.MemberSpec{Hostname: peer.hostname(),
				NodeID:          fmt.Sprintf("%x", sha256.Sum256([]byte(peer.spec.Address))),
				MachineType:     peer.installed.Provider.Machine().Type(),
				OperatingSystem: "Talos (" + peer.runs.Release + ")",
				Addresses:       []netip.Addr{netip.MustParseAddr(peer.spec.Address)}}
			if peer.controlPlane() {
				spec.ControlPlane = &cluster.ControlPlane{
					APIServerPort: peer.installed.Provider.Cluster().LocalAPIServerPort()}
			}
			resources.Set(m.resources, cluster.NewMember(cluster.NamespaceName, spec.Hostname),
				func(member *cluster.Member) { *member.TypedSpec() = spec })
		}
	}
}
