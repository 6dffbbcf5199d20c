//go:build integration

package main

import (
	"fmt"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"
)

// TestRestoreKills kills castle again and again while it backs up etcd and while it restores a cluster that
// has lost its control plane. The same command completes each; what was there before a backup is there after
// it.
//
//	CASTLE_RESTORE_KILLS   how many kills there are; the default is 2
//	CASTLE_RESTORE_SEED    replays the schedule
func TestRestoreKills(t *testing.T) {
	rehearseKills(t, "mini", "RESTORE", "2", func(k *soak) {
		(&restoreKills{soak: k, used: map[string]time.Duration{"backup": time.Second,
			"restore": 25 * time.Second}}).run()
	})
}

// restoreKills is such a test, inside its rehearsal.
type restoreKills struct {
	soak *soak
	used map[string]time.Duration // what each command without a kill last took
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
