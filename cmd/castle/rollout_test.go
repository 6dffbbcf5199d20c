//go:build integration

package main

import (
	"cmp"
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"text/tabwriter"
	"time"

	"github.com/ephemeral-castle/castle/internal/event"
)

// rolloutSpeed is the speed of the machines in TestRollout: fast, or N times real time.
const rolloutSpeed = "CASTLE_ROLLOUT_SPEED"

// oneRollout is one castle rollout, and what its watcher and its journal have seen.
type oneRollout struct {
	name  string
	args  []string
	steps []string // of the machines, in the order that each has to have

	took  time.Duration
	made  time.Duration // by steps
	watch watched
}

// rollouts bring blue to another Talos, another Kubernetes and other hardware, and make a machine anew.
func rollouts(t *testing.T) []*oneRollout {
	file, err := filepath.Abs("testdata/rollout/memory.tfvars")
	must(t, err)
	talos := []string{"--var", "talos_version=v1.13.1"}
	kubernetes := append(slices.Clone(talos), "--var", "kubernetes_version=1.36.4")
	memory := append(slices.Clone(kubernetes), "--var-file", file)
	all := []string{"change worker", "change worker", "change cp", "change cp", "change cp"}
	return []*oneRollout{
		{name: "Talos", args: talos, steps: all},
		{name: "Kubernetes", args: kubernetes, steps: slices.Concat(
			[]string{"kubernetes cp", "kubernetes cp", "kubernetes cp"}, all)},
		{name: "memory", args: memory, steps: all},
		{name: "cp-02 anew", args: append(slices.Clone(memory), "--replace", "cp-02"),
			steps: []string{"replace cp"}},
	}
}

// TestRollout changes all machines of blue, one after the other, and watches from outside that the cluster
// goes on meanwhile. It asserts orders and numbers; it prints durations, which depend on the machine.
func TestRollout(t *testing.T) {
	here := os.Getenv(inLab)
	if here == "" {
		args := []string{"-C", "../..", "--speed", cmp.Or(os.Getenv(rolloutSpeed), "fast")}
		if os.Getenv("CASTLE_SOAK_KEEP") != "" {
			args = append(args, "--keep")
		}
		rehearse(t, nil, append(args, "blue")...)
		return
	}
	t.Chdir(here)
	castleIn(t, "create")
	state := filepath.Join(os.Getenv("CASTLE_STATE_DIR"), "blue", "proxmox")
	w := newWatcher(t, state, map[string]string{"cp-01": "192.168.1.211", "cp-02": "192.168.1.212",
		"cp-03": "192.168.1.213", "worker-01": "192.168.1.214", "worker-02": "192.168.1.215"})
	files := &soakFiles{t: t, state: state}
	all := rollouts(t)
	for _, r := range all {
		w.begin()
		began := time.Now()
		castleIn(t, "rollout", append(r.args, "--yes")...)
		r.took = time.Since(began)
		r.watch = w.end()
		var steps []string
		for _, e := range files.journal("") {
			if e.Kind == event.MachineReady {
				kind, _, _ := strings.Cut(e.Machine, "-")
				steps = append(steps, e.Action+" "+kind)
				r.made += time.Duration(e.Seconds * float64(time.Second))
			}
		}
		if !slices.Equal(steps, r.steps) {
			t.Errorf("%s: the steps %q, want %q", r.name, steps, r.steps)
		}
		for _, broken := range r.watch.broken {
			t.Errorf("%s: %s", r.name, broken)
		}
	}
	t.Log("\n" + table(all))
	castleIn(t, "destroy", "--yes")
}

// castleIn runs a castle, which has to succeed, for blue.
func castleIn(t *testing.T, command string, args ...string) {
	t.Helper()
	args = append([]string{"-C", "../..", command, "blue", "--timestamps"}, args...)
	if command == "create" {
		args = append(args, "--yes")
	}
	if out, err := exec.Command("castle", args...).CombinedOutput(); err != nil {
		t.Fatalf("castle %s: %v\n%s", strings.Join(args, " "), err, out)
	}
}

func table(all []*oneRollout) string {
	var b strings.Builder
	w := tabwriter.NewWriter(&b, 0, 0, 2, ' ', 0)
	fmt.Fprintln(w, "rollout\ttook\tsteps\tratio\tnew: failed\tlongest gap\tkept: failed\tlongest gap\t"+
		"machines down\tmost\tfewest voters\tmost cordoned\tsamples\tlate heartbeats")
	for _, r := range all {
		x := r.watch
		fmt.Fprintf(w, "%s\t%.1f s\t%.1f s\t%.2f\t%d of %d\t%.2f s\t%d of %d\t%.2f s\t%.1f s\t"+
			"%d\t%d\t%d\t%d\t%d\n",
			r.name, r.took.Seconds(), r.made.Seconds(), r.took.Seconds()/r.made.Seconds(),
			x.anew.failed, x.anew.all, x.anew.longest.Seconds(),
			x.kept.failed, x.kept.all, x.kept.longest.Seconds(),
			x.down.Seconds(), x.mostDown, x.fewestVoters, x.mostCordoned, x.samples,
			x.late)
	}
	w.Flush() //nolint:errcheck // it writes into memory
	return b.String()
}

// nodesOf reads a list of nodes.
func nodesOf(answer []byte) (all []clusterNode, err error) {
	var list struct {
		Items []struct {
			Metadata struct{ Name string }
			Spec     struct{ Unschedulable bool }
			Status   struct {
				Conditions []struct{ Type, Status string }
			}
		}
	}
	err = json.Unmarshal(answer, &list)
	for _, item := range list.Items {
		n := clusterNode{name: item.Metadata.Name, cordoned: item.Spec.Unschedulable}
		for _, c := range item.Status.Conditions {
			if c.Type == "Ready" {
				n.ready, n.unknown = c.Status == "True", c.Status == "Unknown"
			}
		}
		all = append(all, n)
	}
	return all, err
}

// clusterNode is a Node of Kubernetes.
type clusterNode struct {
	name                     string
	ready, unknown, cordoned bool
}
