//go:build integration

package main

import (
	"cmp"
	"fmt"
	"math/rand/v2"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"
)

// These variables configure TestRestoreKills. The names on the right reach the inside.
//
//	CASTLE_RESTORE_KILLS   how many kills there are; the default is 2
//	CASTLE_RESTORE_SEED    replays the schedule
var restoreSettings = map[string]string{"CASTLE_RESTORE_KILLS": "TF_VAR_castle_test_restore_kills",
	"CASTLE_RESTORE_SEED": "TF_VAR_castle_test_restore_seed"}

// TestRestoreKills kills castle again and again while it backs up etcd and while it restores a cluster that
// has lost its control plane. The same command completes each; what was there before a backup is there after
// it.
func TestRestoreKills(t *testing.T) {
	if here := os.Getenv(inLab); here != "" {
		t.Chdir(here)
		newRestoreKills(t).run()
		return
	}
	defaults := map[string]string{"CASTLE_RESTORE_KILLS": "2",
		"CASTLE_RESTORE_SEED": strconv.FormatInt(time.Now().Unix(), 10)}
	var settings []string
	for name, inside := range restoreSettings {
		settings = append(settings, inside+"="+cmp.Or(os.Getenv(name), defaults[name]))
	}
	// A restart takes two seconds: long enough that a kill may fall into it.
	args := []string{"-C", "../..", "mini", "--speed", "20"}
	if os.Getenv("CASTLE_SOAK_KEEP") != "" {
		args = append(args, "--keep")
	}
	rehearse(t, settings, args...)
}

// restoreKills is such a test, inside its rehearsal.
type restoreKills struct {
	soak *soak
	used map[string]time.Duration // what each command without a kill last took
}

func newRestoreKills(t *testing.T) *restoreKills {
	setting := func(name string) uint64 {
		n, err := strconv.ParseUint(os.Getenv(restoreSettings[name]), 10, 64)
		if err != nil {
			t.Fatalf("%s: %v", name, err)
		}
		return n
	}
	drawn := rand.NewPCG(setting("CASTLE_RESTORE_SEED"), 0)
	state := filepath.Join(os.Getenv("CASTLE_STATE_DIR"), "mini", "proxmox")
	files, random := &soakFiles{t: t, state: state}, rand.New(drawn)
	return &restoreKills{soak: &soak{t: t, seed: setting("CASTLE_RESTORE_SEED"), rand: random, drawn: drawn,
		kills: int(setting("CASTLE_RESTORE_KILLS")), out: t.TempDir(), repository: "../..", cluster: "mini",
		lab: &soakLab{t: t, state: state}, files: files, hits: soakHits{},
		harm: &soakHarm{t: t, rand: random, files: files}},
		used: map[string]time.Duration{"backup": time.Second, "restore": 25 * time.Second}}
}

func (k *restoreKills) run() {
	t := k.soak.t
	defer func() { t.Log(k.soak.hits.report()) }() // also of a test that has failed
	k.soak.complete(k.soak.start("create", "--yes", "--to", "platform"))
	var there []string
	for round := 1; k.soak.kills > 0; round++ {
		t.Logf("CASTLE_RESTORE_SEED=%d: round %d, %d kills to go", k.soak.seed, round, k.soak.kills)
		there = append(there, k.object(fmt.Sprintf("before-%d", round)))
		k.disturb("backup", 2, "--keep", "2")
		k.object(fmt.Sprintf("after-%d", round))
		k.lose("441")
		k.disturb("restore", 5, "--backup", "newest", "--yes")
		k.check(there)
	}
	k.soak.complete(k.soak.start("destroy"))
}

// object makes an object of Kubernetes, and returns its name.
func (k *restoreKills) object(name string) string {
	_, err := k.soak.lab.cluster("POST", "/api/v1/namespaces/default/configmaps", map[string]any{
		"apiVersion": "v1", "kind": "ConfigMap", "metadata": map[string]any{"name": name}})
	must(k.soak.t, err)
	return name
}

// lose stops a VM and deletes it with its disks, as somebody does who has lost the host.
func (k *restoreKills) lose(id string) {
	for _, request := range [][2]string{{"POST", "/status/stop"}, {"DELETE", "?purge=1"}} {
		k.soak.lab.idle()
		k.soak.lab.proxmox(request[0], node+"qemu/"+id+request[1], nil)
	}
	k.soak.lab.idle()
}

// disturb kills a command up to so many times, and lets the same command complete it.
func (k *restoreKills) disturb(command string, most int, args ...string) {
	for kills := k.soak.rand.IntN(most + 1); kills > 0 && k.soak.kills > 0; kills-- {
		a, rest := k.soak.start(command, args...), k.used[command]
		m := k.soak.moment(command, rest)
		if !k.soak.await(a, m) {
			k.used[command] = (rest + time.Since(a.began)) / 2
			k.soak.complete(a)
			return
		}
		k.soak.kill(a, m)
		k.soak.kills--
		if k.soak.rand.IntN(2) == 0 { // what survives of it may come to its end
			<-time.After(upTo(k.soak.rand, 3*time.Second)) // a random pause: there is nothing to wait for
		}
	}
	k.soak.complete(k.soak.start(command, args...))
}

// check asserts that the cluster is whole, with what the backup has and nothing newer.
func (k *restoreKills) check(there []string) {
	k.soak.t.Helper()
	answer, err := k.soak.lab.cluster("GET", "/api/v1/namespaces/default/configmaps", nil)
	must(k.soak.t, err)
	var got []string
	newer := strings.ReplaceAll(there[len(there)-1], "before", "after")
	for _, name := range append(slices.Clone(there), newer) {
		if strings.Contains(string(answer), `"name":"`+name+`"`) {
			got = append(got, name)
		}
	}
	k.soak.same("of the objects", there, got)
	a := k.soak.start("create", "--yes", "--to", "platform")
	k.soak.complete(a)
	logs, err := filepath.Glob(filepath.Join(k.soak.files.newestRun(), "*.log"))
	if err != nil || len(logs) > 0 {
		k.soak.fail(a, "a create began to do something: %v %v", logs, err)
	}
	vms, err := listVMs(k.soak.t.Context())
	must(k.soak.t, err)
	slices.Sort(vms)
	k.soak.same("in Proxmox", wanted{}.vms(), vms)
	a = k.soak.start("backup", "--if-older-than", "1h")
	k.soak.complete(a)
	left, err := filepath.Glob(filepath.Join(k.soak.files.state, ".backup*"))
	if err != nil || len(left) > 0 {
		k.soak.fail(a, "killed backups have left their files: %v %v", left, err)
	}
}
