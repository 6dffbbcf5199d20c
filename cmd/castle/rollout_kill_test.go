//go:build integration

package main

import (
	"cmp"
	"fmt"
	"maps"
	"math/rand/v2"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"
)

// TestRolloutKills kills castle again and again while it changes the machines of a cluster, and gives the
// same command again: it must end in the cluster of the configuration, with nothing left to do.
//
//	CASTLE_ROLLOUT_KILLS   how many kills there are; the default is 3
//	CASTLE_ROLLOUT_SEED    replays the schedule
//	CASTLE_ROLLOUT_ROUND   the first round of that schedule, for the one that has failed
func TestRolloutKills(t *testing.T) {
	rehearseKills(t, "mini", "ROLLOUT", "3", func(k *soak) {
		(&rolloutKills{soak: k, used: 20 * time.Second}).run()
	})
}

// rehearseKills rehearses a cluster for a test that kills castle, and calls inside there. CASTLE_<name>_KILLS
// and the like configure it.
func rehearseKills(t *testing.T, cluster, name, kills string, inside func(*soak)) {
	seed := strconv.FormatInt(time.Now().Unix(), 10)
	settings := map[string]string{"KILLS": kills, "SEED": seed, "ROUND": "1"}
	reaches := func(setting string) string {
		return "TF_VAR_castle_test_" + strings.ToLower(name+"_"+setting) // castle passes no others on
	}
	if here := os.Getenv(inLab); here != "" {
		t.Chdir(here)
		inside(newKills(t, cluster, func(setting string) uint64 {
			n, err := strconv.ParseUint(os.Getenv(reaches(setting)), 10, 64)
			if err != nil {
				t.Fatalf("CASTLE_%s_%s: %v", name, setting, err)
			}
			return n
		}))
		return
	}
	var environ []string
	for setting, usual := range settings {
		environ = append(environ, reaches(setting)+"="+cmp.Or(os.Getenv("CASTLE_"+name+"_"+setting), usual))
	}
	// A restart takes two seconds: long enough that a kill may fall into it.
	args := []string{"-C", "../..", cluster, "--speed", "20"}
	if os.Getenv("CASTLE_SOAK_KEEP") != "" {
		args = append(args, "--keep")
	}
	rehearse(t, environ, args...)
}

func newKills(t *testing.T, cluster string, setting func(string) uint64) *soak {
	drawn := rand.NewPCG(setting("SEED"), 0)
	state := filepath.Join(os.Getenv("CASTLE_STATE_DIR"), cluster, "proxmox")
	files, random := &soakFiles{t: t, state: state}, rand.New(drawn)
	return &soak{t: t, seed: setting("SEED"), round: setting("ROUND"), rand: random, drawn: drawn,
		kills: int(setting("KILLS")), out: t.TempDir(), repository: "../..", cluster: cluster,
		lab: &soakLab{t: t, state: state}, files: files, harm: &soakHarm{t: t, rand: random, files: files},
		hits: soakHits{}}
}

// rolloutKills is such a test, inside its rehearsal: a soak whose command changes machines.
type rolloutKills struct {
	soak *soak
	want wanted
	used time.Duration // what a rollout without a kill last took
}

// wanted is the configuration that a round brings the cluster to.
type wanted struct {
	memory, talos, kubernetes int  // which of several values
	schematic                 bool // another one
	second                    bool // a second worker
	replace                   bool // worker-01 is made anew
}

// targets change what is wanted. Talos and Kubernetes go on to another patch release: neither goes back.
var targets = map[string]func(*wanted){
	"memory":     func(w *wanted) { w.memory++ },
	"schematic":  func(w *wanted) { w.schematic = !w.schematic },
	"Talos":      func(w *wanted) { w.talos++ },
	"Kubernetes": func(w *wanted) { w.kubernetes++ },
	"worker":     func(w *wanted) { w.second = !w.second },
	"replace":    func(w *wanted) { w.replace = true },
	"everything": func(w *wanted) { w.memory++; w.talos++; w.kubernetes++; w.second = !w.second },
}

// nodesOfMini are the machines of the cluster: their memory, and perhaps a second worker.
const nodesOfMini = `nodes = {
  cp-01     = { role = "controlplane", vm_id = 441, address = "192.168.1.221", cores = 2, memory = %d }
  worker-01 = { role = "worker", vm_id = 442, address = "192.168.1.222", cores = 4, memory = %d,
    longhorn_disk = 80 }
%s}
talos_version      = "v1.13.%d"
kubernetes_version = "1.36.%d"
`

const (
	secondOfMini = `  worker-02 = { role = "worker", vm_id = 443, address = "192.168.1.223", cores = 2,
    memory = 4096 }
`
	otherSchematic = "376567988ad370138ad8b2698212367b8edcb69b5fd68c80be1f2ec7d603b4ba"
)

// tfvars are the values of the configuration.
func (w wanted) tfvars() string {
	second := ""
	if w.second {
		second = secondOfMini
	}
	text := fmt.Sprintf(nodesOfMini, 4096+2048*(w.memory%2), 16384-4096*(w.memory%2), second, w.talos,
		3+w.kubernetes)
	if w.schematic {
		text += fmt.Sprintf("talos_schematic_id = %q\n", otherSchematic)
	}
	return text
}

// vms are the machines that Proxmox has to run then.
func (w wanted) vms() []string {
	all := []string{"441 mini-cp-01 running\n", "442 mini-worker-01 running\n"}
	if w.second {
		all = append(all, "443 mini-worker-02 running\n")
	}
	return all
}

func (k *rolloutKills) run() {
	defer func() { k.soak.t.Log(k.soak.hits.report()) }() // also of a test that has failed
	// The platform alone: more stages would only make each rollout longer.
	k.soak.complete(k.soak.start("create", "--yes", "--to", "platform"))
	names := slices.Sorted(maps.Keys(targets))
	for round := uint64(1); k.soak.kills > 0; round++ {
		k.soak.drawn.Seed(k.soak.seed, round)
		// Each comes once before any comes again.
		target := names[(k.soak.seed+round)%uint64(len(names))]
		targets[target](&k.want)
		file := filepath.Join(k.soak.out, fmt.Sprintf("%d.tfvars", round))
		must(k.soak.t, os.WriteFile(file, []byte(k.want.tfvars()), 0o600))
		args := []string{"--var-file", file}
		rollout := append(slices.Clone(args), "--yes")
		if k.want.replace {
			rollout = append(rollout, "--replace", "worker-01")
		}
		kills := 1 + k.soak.rand.IntN(6)
		if round < k.soak.round {
			kills = 0 // its configuration counts, and its kills do not
		}
		k.soak.t.Logf("CASTLE_ROLLOUT_SEED=%d CASTLE_ROLLOUT_ROUND=%d: %s, %d kills: %+v", k.soak.seed, round,
			target, kills, k.want)
		for ; kills > 0 && k.soak.kills > 0; kills-- {
			if k.killOne(rollout) {
				break
			}
		}
		began := time.Now()
		k.soak.complete(k.soak.start("rollout", rollout...))
		k.soak.t.Logf("round %d: completed in %s", round, time.Since(began).Round(time.Millisecond))
		k.want.replace = false
		k.check(args)
	}
	k.soak.complete(k.soak.start("destroy", "--var-file", filepath.Join(k.soak.out, "1.tfvars")))
}

// killOne kills one rollout. It reports whether that had ended before.
func (k *rolloutKills) killOne(args []string) (ended bool) {
	a := k.soak.start("rollout", args...)
	m := k.soak.moment("rollout", k.used)
	if !k.soak.await(a, m) {
		k.used = (k.used + time.Since(a.began)) / 2
		k.soak.complete(a)
		k.soak.t.Logf("%3d to go: rollout ended after %s, before %s", k.soak.kills,
			time.Since(a.began).Round(time.Millisecond), m.name)
		return true
	}
	doing := ""
	for _, e := range k.soak.files.journal("") {
		if e.Machine != "" {
			doing = fmt.Sprintf("%s %s %s", e.Kind, e.Machine, e.Text)
		}
	}
	k.soak.kill(a, m)
	k.soak.t.Logf("    at: %s", doing)
	k.soak.kills--
	if k.soak.rand.IntN(2) == 0 { // what survives of it may come to its end
		<-time.After(upTo(k.soak.rand, 3*time.Second)) // a random pause: there is nothing to wait for
	}
	return false
}

// check asserts that the cluster is as its configuration has it, and that castle knows.
func (k *rolloutKills) check(args []string) {
	k.soak.t.Helper()
	a := k.soak.start("rollout", append(slices.Clone(args), "--dry-run")...)
	k.soak.complete(a)
	output, err := os.ReadFile(a.output)
	must(k.soak.t, err)
	if !strings.Contains(string(output), "\nno machine changes\n") &&
		!strings.HasPrefix(string(output), "no machine changes\n") {
		k.soak.fail(a, "machines would change once more")
	}
	a = k.soak.start("create", append(slices.Clone(args), "--yes", "--to", "platform")...)
	k.soak.complete(a)
	logs, err := filepath.Glob(filepath.Join(k.soak.files.newestRun(), "*.log"))
	if err != nil || len(logs) > 0 {
		k.soak.fail(a, "a create began to do something: %v %v", logs, err)
	}
	k.soak.lab.idle()
	vms, err := listVMs(k.soak.t.Context())
	must(k.soak.t, err)
	slices.Sort(vms)
	k.soak.same("in Proxmox", k.want.vms(), vms)
	answer, err := k.soak.lab.cluster("GET", "/api/v1/nodes", nil)
	must(k.soak.t, err)
	nodes, err := nodesOf(answer)
	must(k.soak.t, err)
	var got, want []string
	for _, n := range nodes {
		got = append(got, fmt.Sprintf("%s ready %t cordoned %t", n.name, n.ready, n.cordoned))
	}
	for _, vm := range k.want.vms() {
		want = append(want, strings.Fields(vm)[1]+" ready true cordoned false")
	}
	k.soak.same("in Kubernetes", want, got)
	if _, voters, _ := newWatcher(k.soak.t, k.soak.files.state,
		map[string]string{"cp-01": "192.168.1.221"}).askTalos(k.soak.t.Context()); voters != 1 {
		k.soak.fail(nil, "%d voters of etcd serve", voters)
	}
}
