package talos_test

import (
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/cosi-project/runtime/pkg/safe"
	machineapi "github.com/siderolabs/talos/pkg/machinery/api/machine"
	"github.com/siderolabs/talos/pkg/machinery/client"
	"github.com/siderolabs/talos/pkg/machinery/resources/cluster"
	"github.com/siderolabs/talos/pkg/machinery/role"
)

// unmet are the conditions of a machine as "name: reason".
func (l *lab) unmet(address string) (all []string) {
	l.t.Helper()
	for _, u := range l.status(address).Status.UnmetConditions {
		all = append(all, u.Name+": "+u.Reason)
	}
	return all
}

// A machine boots until all its services are up, those of etcd included.
func TestAMachineRunsOnceItsServicesAreUp(t *testing.T) {
	l := newLab(t)
	l.raise(2, 1)
	for n := 1; n <= 2; n++ {
		if got := l.status(l.address(n)); got.Stage.String() != "booting" || got.Status.Ready {
			t.Errorf("control plane %d waits for its cluster and is %+v", n, got)
		}
	}
	if got, want := l.unmet(l.address(1)), []string{"services: etcd not running",
		`nodeReady: node "blue-01" status is not available yet`}; !slices.Equal(got, want) {
		t.Errorf("unmet: %v", got)
	}
	if got := l.status(l.address(3)); got.Stage.String() != "running" || got.Status.Ready {
		t.Errorf("the worker is %+v", got)
	}
	if err := l.bootstrap(l.address(1)); err != nil {
		t.Fatal(err)
	}
	l.clock.advance(10 * step)
	for n := 1; n <= 3; n++ {
		if got := l.status(l.address(n)); got.Stage.String() != "running" || !got.Status.Ready {
			t.Errorf("machine %d is %+v", n, got)
		}
	}
	l.fleet.Halt(l.address(2))
	if got, want := l.unmet(l.address(1)), []string{"services: etcd not healthy"}; !slices.Equal(got, want) {
		t.Errorf("without a quorum: %v", got)
	}
}

func TestAConditionIsUnmetForAReason(t *testing.T) {
	l := newLab(t)
	l.quorum(1, 0)
	if err := l.fleet.SetUnmet("blue-01", "nodeReady", `node "blue-01" is not ready`); err != nil {
		t.Fatal(err)
	}
	if got := l.unmet(l.address(1)); !slices.Equal(got, []string{`nodeReady: node "blue-01" is not ready`}) {
		t.Errorf("unmet: %v", got)
	}
	if err := l.fleet.SetUnmet("blue-01", "nodeReady", ""); err != nil {
		t.Fatal(err)
	}
	if got := l.status(l.address(1)); !got.Status.Ready {
		t.Errorf("it is %+v", got)
	}
	if err := l.fleet.SetUnmet("blue-09", "nodeReady", "a"); err == nil {
		t.Error("a machine that does not exist is not ready")
	}
}

// talosctl follows a restart by these events.
func TestEventsReportSequencesAndTheStatus(t *testing.T) {
	l := newLab(t)
	l.quorum(1, 0)
	events := func(options ...client.EventsOptionFunc) (all []string) {
		t.Helper()
		c := l.as(role.Reader, l.address(1))
		stream, err := c.Events(within(t), options...)
		if err != nil {
			t.Fatal(err)
		}
		if _, err := stream.Recv(); err != nil { // it has begun
			t.Fatal(err)
		}
		if err := l.fleet.SetUnmet("blue-01", "time", "the last one"); err != nil {
			t.Fatal(err)
		}
		defer func() { _ = l.fleet.SetUnmet("blue-01", "time", "") }()
		for {
			received, err := stream.Recv()
			if err != nil {
				t.Fatal(err)
			}
			e, err := client.UnmarshalEvent(received)
			if err != nil {
				t.Fatal(err)
			}
			switch payload := e.Payload.(type) {
			case *machineapi.SequenceEvent:
				all = append(all, payload.GetSequence()+" "+payload.GetAction().String())
			case *machineapi.MachineStatusEvent:
				all = append(all, fmt.Sprint(payload.GetStage(), payload.GetStatus().GetReady()))
				u := payload.GetStatus().GetUnmetConditions()
				if len(u) > 0 && u[0].GetReason() == "the last one" {
					return all
				}
			}
		}
	}
	if got := events(); !slices.Equal(got, []string{"RUNNING false"}) {
		t.Errorf("without a tail: %v", got)
	}
	got := strings.Join(events(client.WithTailEvents(-1)), ", ")
	if !strings.HasPrefix(got, "boot START, BOOTING false, ") ||
		!strings.Contains(got, "boot STOP, RUNNING false, ") ||
		!strings.Contains(got, ", RUNNING true, ") {
		t.Errorf("all of them: %s", got)
	}
	before := l.bootID(l.address(1))
	reboot, err := l.as(role.Admin, l.address(1)).RebootWithResponse(within(t))
	if err != nil {
		t.Fatal(err)
	}
	stream, err := l.as(role.Reader, l.address(1)).Events(within(t), client.WithTailEvents(-1),
		client.WithActorID(reboot.GetMessages()[0].GetActorId()))
	if err != nil {
		t.Fatal(err)
	}
	if _, err := stream.Recv(); err != nil {
		t.Fatal(err)
	}
	received, err := stream.Recv()
	if err != nil || received.GetActorId() != reboot.GetMessages()[0].GetActorId() {
		t.Errorf("the actor's: %v, %v", received, err)
	}
	l.clock.advance(5 * step)
	if l.bootID(l.address(1)) == before {
		t.Error("it did not restart")
	}
}

func TestMembersAreTheMachinesOfTheCluster(t *testing.T) {
	l := newLab(t)
	l.quorum(2, 1)
	all, err := safe.StateListAll[*cluster.Member](within(t), l.as(role.Reader, l.address(3)).COSI)
	if err != nil {
		t.Fatal(err)
	}
	var got []string
	for m := range all.All() {
		got = append(got, fmt.Sprint(m.TypedSpec().Hostname, " ", m.TypedSpec().MachineType, " ",
			m.TypedSpec().OperatingSystem, " ", m.TypedSpec().Addresses))
	}
	slices.Sort(got)
	if want := []string{
		"blue-01 controlplane Talos (v1.13.0) [" + l.address(1) + "]",
		"blue-02 controlplane Talos (v1.13.0) [" + l.address(2) + "]",
		"blue-03 worker Talos (v1.13.0) [" + l.address(3) + "]"}; !slices.Equal(got, want) {
		t.Errorf("members: %q", got)
	}
}

// talosctl get resolves the names of types by their definitions.
func TestTypesOfResourcesAreFoundByTheirAliases(t *testing.T) {
	l := newLab(t)
	l.raise(1, 0)
	c := l.as(role.Reader, l.address(1))
	for alias, want := range map[string]string{"machinestatus": "MachineStatuses.runtime.talos.dev",
		"members": "Members.cluster.talos.dev", "extensions": "ExtensionStatuses.runtime.talos.dev",
		"addresses": "AddressStatuses.net.talos.dev", "links": "LinkStatuses.net.talos.dev",
		"mc": "MachineConfigs.config.talos.dev"} {
		namespace := ""
		definition, err := c.ResolveResourceKind(within(t), &namespace, alias)
		if err != nil || definition.TypedSpec().Type != want || namespace == "" {
			t.Errorf("%s: %v, %v", alias, definition, err)
		}
	}
}
