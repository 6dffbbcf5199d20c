package datacenter

import (
	"reflect"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/ephemeral-castle/castle/internal/fault"
	"github.com/ephemeral-castle/castle/lab/internal/operators"
)

func TestParseFaults(t *testing.T) {
	f, err := ParseFaults([]string{"webhook-late=90s", "ghost-vm=421", "infisical-secret-exists=1",
		"replica-last=worker-01"})
	want := Faults{Times: map[string]time.Duration{"webhook-late": 90 * time.Second}, GhostVM: 421,
		SecretExists: true, Nodes: map[string]string{"replica-last": "worker-01"}}
	if err != nil || !reflect.DeepEqual(f, want) {
		t.Errorf("got %+v, %v, want %+v", f, err, want)
	}
	for text, want := range map[string]string{
		"webhook-late":      "write it as NAME=VALUE",
		"webhook-late=soon": `fault webhook-late: invalid duration "soon"; use "90s" or "5m"`,
		"webhook-late=-1s":  `fault webhook-late: invalid duration "-1s"`,
		"ghost-vm=7":        "fault ghost-vm: 7 is not a VM id; use a number of at least 100",
		"etcd-full=always":  `fault etcd-full: invalid value "always"; use 1, or 0 for none`,
		"ghost-vm=database": "fault ghost-vm: database is not a VM id; use a number of at least 100",
		"replica-last=":     "fault replica-last: name a node, such as worker-01",
		"node-dead=":        "fault node-dead: name a node, such as worker-01",
		"power-cut=tomorrow": "unknown fault; use one of ghost-vm=ID, infisical-secret-exists=1, " +
			"rate-limited=DURATION, ",
	} {
		if _, err := ParseFaults([]string{text}); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: %v, want %q", text, err, want)
		}
	}
}

func TestAFaultNamesANodeOfTheCluster(t *testing.T) {
	known := []string{"blue-cp-01", "blue-worker-01"}
	for _, text := range []string{"worker-01", "blue-worker-01"} {
		f, err := ParseFaults([]string{"node-dead=" + text})
		if err == nil {
			err = f.Complete("blue", known)
		}
		if err != nil || f.Nodes["node-dead"] != "blue-worker-01" {
			t.Errorf("%s: %+v, %v", text, f, err)
		}
	}
	f := Faults{Nodes: map[string]string{"node-dead": "worker-09"}}
	const want = "fault node-dead: the cluster has no node worker-09; its nodes are blue-cp-01, " +
		"blue-worker-01"
	if err := f.Complete("blue", known); err == nil || err.Error() != want {
		t.Error(err)
	}
}

func TestEveryFaultOfTheListCanBeAskedFor(t *testing.T) {
	values := map[string]string{fault.Duration: "1m", fault.ID: "421", fault.Yes: "1",
		fault.Node: "worker-01"}
	for _, one := range fault.All() {
		f, err := ParseFaults([]string{one.Name + "=" + values[one.Value]})
		if none := (Faults{Times: map[string]time.Duration{}}); err != nil || reflect.DeepEqual(f, none) {
			t.Errorf("%s: %+v, %v", one, f, err)
		}
	}
}

func TestAFaultIsToldOnceAndOutlivesTheProcessThatItDisturbs(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var log strings.Builder
		l := newLogger(Config{Log: &log, Faults: Faults{
			Times: map[string]time.Duration{"webhook-late": time.Minute, "crd-absent": time.Minute,
				"ca-expired": time.Minute}, Frozen: true}})
		l.begins("webhook-late")
		l.begins("crd-absent")
		time.Sleep(10 * time.Second)
		l.ends("crd-absent")
		l.ends("kustomization-frozen")
		l.begins("webhook-late") // the next process does not know that it has begun
		lines := "   0.000s fault webhook-late: begins\n   0.000s fault crd-absent: begins\n" +
			"  10.000s fault crd-absent: ends\n  10.000s fault kustomization-frozen: ends\n"
		if log.String() != lines {
			t.Errorf("got:\n%swant:\n%s", log.String(), lines)
		}
		want := operators.Faults{Times: map[string]time.Duration{"webhook-late": 50 * time.Second,
			"crd-absent": 0, "ca-expired": time.Minute}}
		if got := l.remaining(); !reflect.DeepEqual(got, want) {
			t.Errorf("remaining: %+v, want %+v", got, want)
		}
	})
}
