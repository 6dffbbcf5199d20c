package talos_test

import (
	"fmt"
	"testing"

	"github.com/siderolabs/talos/pkg/machinery/role"
)

func TestServiceListShowsTheProgressOfEtcd(t *testing.T) {
	l := newLab(t)
	l.fleet.HoldLearner("blue-02")
	l.raise(3, 1)
	etcd := func(n int) string {
		t.Helper()
		resp, err := l.as(role.Reader, l.address(n)).ServiceList(within(t))
		if err != nil {
			t.Fatal(err)
		}
		for _, s := range resp.GetMessages()[0].GetServices() {
			if events := s.GetEvents().GetEvents(); s.GetId() == "etcd" {
				return fmt.Sprintf("%s healthy=%t: %s", s.GetState(), s.GetHealth().GetHealthy(),
					events[len(events)-1].GetMsg())
			}
		}
		return "none"
	}
	const preparing, well = "Preparing healthy=false: Running pre state",
		"Running healthy=true: Health check successful"
	for n, want := range map[int]string{1: preparing, 2: preparing, 4: "none"} {
		if got := etcd(n); got != want {
			t.Errorf("before the bootstrap, etcd on %d: %s", n, got)
		}
	}
	if err := l.bootstrap(l.address(1)); err != nil {
		t.Fatal(err)
	}
	l.clock.advance(10 * step)
	for n, want := range map[int]string{
		1: well, 2: "Running healthy=false: Health check failed: etcdserver: rpc not supported for learner",
		3: preparing,
	} {
		if got := etcd(n); got != want {
			t.Errorf("with a learner that is held, etcd on %d: %s", n, got)
		}
	}
	l.fleet.ReleaseLearner("blue-02")
	l.clock.advance(10 * step)
	l.fleet.Halt(l.address(2))
	l.fleet.Halt(l.address(3))
	if got := etcd(1); got != "Running healthy=false: Health check failed: context deadline exceeded" {
		t.Errorf("without a quorum: %s", got)
	}
}
