package talos_test

import (
	"io"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/siderolabs/talos/pkg/machinery/api/common"
	machineapi "github.com/siderolabs/talos/pkg/machinery/api/machine"
	"github.com/siderolabs/talos/pkg/machinery/constants"
	"github.com/siderolabs/talos/pkg/machinery/role"
)

// all reads a stream to its end.
func all(t *testing.T, recv func() (*common.Data, error)) (text string) {
	t.Helper()
	for {
		data, err := recv()
		if err == io.EOF {
			return text
		}
		if err != nil {
			t.Fatal(err)
		}
		text += string(data.GetBytes())
	}
}

func TestServicesHaveAHistoryAndLogs(t *testing.T) {
	l := newLab(t)
	l.raise(1, 0)
	if err := l.bootstrap(l.address(1)); err != nil {
		t.Fatal(err)
	}
	l.clock.advance(10 * step)
	c := l.as(role.Admin, l.address(1))
	list, err := c.ServiceInfo(within(t), "etcd")
	if err != nil || len(list) != 1 {
		t.Fatal(list, err)
	}
	var states []string
	for _, e := range list[0].Service.GetEvents().GetEvents() {
		if time.Since(e.GetTs().AsTime()) > time.Hour {
			t.Errorf("an event of %s", e.GetTs().AsTime())
		}
		states = append(states, e.GetState())
	}
	want := []string{"Waiting", "Preparing", "Starting", "Running", "Running"}
	if !slices.Equal(states, want) {
		t.Errorf("etcd was %v, want %v", states, want)
	}
	logs, err := c.Logs(within(t), constants.SystemContainerdNamespace, common.ContainerDriver_CONTAINERD,
		"etcd", false, 1)
	if err != nil {
		t.Fatal(err)
	}
	if got := all(t, logs.Recv); strings.Count(got, "\n") != 1 ||
		!strings.HasSuffix(got, "service[etcd](Running): Health check successful\n") {
		t.Errorf("the last line of etcd's log: %q", got)
	}
	kernel, err := c.Dmesg(within(t), false, false)
	if err != nil {
		t.Fatal(err)
	}
	if got := all(t, kernel.Recv); !strings.Contains(got, "boot sequence: done\n") ||
		!strings.Contains(got, "service[kubelet](Running)") {
		t.Errorf("the log of the kernel: %q", got)
	}
}

func TestEventsBeginWhereTheirReaderWants(t *testing.T) {
	l := newLab(t)
	l.raise(1, 0)
	c := l.as(role.Reader, l.address(1))
	count := func(req *machineapi.EventsRequest, want int) (ids []string) {
		t.Helper()
		stream, err := c.MachineClient.Events(within(t), req)
		if err != nil {
			t.Fatal(err)
		}
		for range want + 1 { // the first one is empty
			e, err := stream.Recv()
			if err != nil {
				t.Fatal(err)
			}
			ids = append(ids, e.GetId())
		}
		return ids[1:]
	}
	last := count(&machineapi.EventsRequest{TailEvents: 3}, 3)
	if got := count(&machineapi.EventsRequest{TailId: last[0]}, 2); !slices.Equal(got, last[1:]) {
		t.Errorf("after the first of %v: %v", last, got)
	}
	recent := count(&machineapi.EventsRequest{TailSeconds: 3600}, 3)
	if got := count(&machineapi.EventsRequest{TailEvents: -1}, 3); !slices.Equal(got, recent) {
		t.Errorf("all events begin with %v, those of an hour with %v", got, recent)
	}
}

func TestContainersAreThoseOfServicesAndStaticPods(t *testing.T) {
	l := newLab(t)
	l.raise(1, 1)
	names := func(n int, namespace string) (all []string) {
		t.Helper()
		answer, err := l.as(role.Reader, l.address(n)).Containers(within(t), namespace,
			common.ContainerDriver_CRI)
		if err != nil {
			t.Fatal(err)
		}
		for _, c := range answer.GetMessages()[0].GetContainers() {
			all = append(all, c.GetName())
		}
		return all
	}
	if got := names(2, constants.SystemContainerdNamespace); !slices.Equal(got, []string{"apid", "kubelet"}) {
		t.Errorf("on a worker: %v", got)
	}
	if got := names(1, constants.K8sContainerdNamespace); !slices.Contains(got, "kube-apiserver") {
		t.Errorf("static Pods of a control plane: %v", got)
	}
	if got := names(2, constants.K8sContainerdNamespace); len(got) != 0 {
		t.Errorf("static Pods of a worker: %v", got)
	}
}
