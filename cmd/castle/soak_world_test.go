//go:build integration

package main

import (
	"crypto/sha256"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"github.com/ephemeral-castle/castle/internal/event"
)

func (l *soakLab) volumes() map[string]map[string]any {
	all := map[string]map[string]any{}
	for _, storage := range l.rows(node + "storage") {
		for _, row := range l.rows(fmt.Sprintf("%sstorage/%s/content", node, storage["storage"])) {
			all[row["volid"].(string)] = row
		}
	}
	return all
}

// inventory is everything that is not somebody else's, a line each.
func (k *soak) inventory() (lines []string) {
	k.lab.idle()
	for _, vm := range k.lab.rows(node + "qemu") {
		if id := fmt.Sprint(vm["vmid"]); !slices.Contains(soakMachines, id) {
			lines = append(lines, fmt.Sprintf("VM %s %s %s", id, vm["name"], vm["status"]))
		}
	}
	for name := range k.lab.volumes() {
		if k.others["volume "+name] == "" {
			lines = append(lines, "volume "+name)
		}
	}
	var secrets struct{ Secrets []struct{ SecretKey string } }
	must(k.t, json.Unmarshal(k.lab.infisical("GET", soakFolder, "", nil), &secrets))
	for _, s := range secrets.Secrets {
		lines = append(lines, "Infisical "+s.SecretKey)
	}
	for _, kind := range []string{"namespaces", "secrets", "configmaps"} {
		lines = append(lines, k.lab.objects(kind)...)
	}
	slices.Sort(lines)
	return slices.Compact(lines)
}

// objects lists what the cluster has of a kind; of Helm's releases their state.
func (l *soakLab) objects(kind string) (lines []string) {
	answer, err := l.cluster("GET", "/api/v1/"+kind, nil)
	if errors.Is(err, os.ErrNotExist) {
		return nil // no kubeconfig: no cluster
	}
	must(l.t, err)
	var list struct {
		Items []struct {
			Metadata struct {
				Namespace, Name string
				Labels          map[string]string
			}
		}
	}
	must(l.t, json.Unmarshal(answer, &list))
	for _, item := range list.Items {
		m := item.Metadata
		switch {
		case m.Name == "prod" || m.Namespace == "prod" || strings.Contains(m.Name, "release.v1.theirs"):
		case m.Labels["owner"] == "helm" && m.Labels["status"] == "superseded":
		case m.Labels["owner"] == "helm":
			lines = append(lines, fmt.Sprintf("release %s/%s %s", m.Namespace, m.Labels["name"],
				m.Labels["status"]))
		default:
			lines = append(lines, fmt.Sprintf("%s %s/%s", kind, m.Namespace, m.Name))
		}
	}
	return lines
}

// machinesMade counts the requests to Proxmox to create each machine.
func (l *soakLab) machinesMade() map[string]int {
	made := map[string]int{}
	for _, task := range l.rows(node + "tasks") {
		if task["type"] == "qmcreate" {
			made[task["id"].(string)]++
		}
	}
	return made
}

// raised asserts that a create has created each resource once, and that a second
// create changes nothing.
func (k *soak) raised() {
	k.t.Helper()
	k.same("in the datacenter", k.reference, k.inventory())
	for id, n := range k.lab.machinesMade() {
		if made := n - k.made[id]; !slices.Contains(soakMachines, id) && made != 1 {
			k.fail(nil, "VM %s was made %d times", id, made)
		}
	}
	k.plant()
	k.untouched()
	k.checkKeys()
	a := k.start("create")
	k.complete(a)
	if logs, err := filepath.Glob(filepath.Join(k.files.newestRun(), "*.log")); err != nil || len(logs) > 0 {
		k.fail(a, "a second create began to do something: %v %v", logs, err)
	}
	states, err := filepath.Glob(filepath.Join(k.files.state, "stages/*/terraform.tfstate"))
	must(k.t, err)
	for range 2 {
		k.unchanged(filepath.Base(filepath.Dir(states[k.rand.IntN(len(states))])))
	}
}

// unchanged asserts that a stage's own plan finds nothing to change.
func (k *soak) unchanged(stage string) {
	k.complete(k.start("terraform", stage, "--", "plan", "-detailed-exitcode"))
}

// checkGone asserts that nothing is left but what was somebody else's, and that of
// what stood there is a receipt.
func (k *soak) checkGone(stood bool) {
	k.t.Helper()
	k.inCluster, k.keys = nil, ""
	k.same("in the datacenter", k.bare, k.inventory())
	k.untouched()
	left, err := filepath.Glob(filepath.Join(k.files.state, "stages", "*"))
	must(k.t, err)
	if len(left) > 0 {
		k.fail(nil, "the state directory still has %v", left)
	}
	if !stood {
		return
	}
	content, err := os.ReadFile(filepath.Join(k.files.newestRun(), "receipt.json"))
	if k.machine != nil && errors.Is(err, os.ErrNotExist) {
		return // the machine that wrote it is lost, and nothing was left for the next one
	}
	must(k.t, err)
	var receipt event.Receipt
	must(k.t, json.Unmarshal(content, &receipt))
	if !receipt.Proved {
		k.fail(nil, "the receipt proves nothing: %s", content)
	}
}

func (k *soak) same(what string, want, got []string) {
	k.t.Helper()
	var differ []string
	for _, line := range want {
		if !slices.Contains(got, line) {
			differ = append(differ, "- "+line)
		}
	}
	for _, line := range got {
		if !slices.Contains(want, line) {
			differ = append(differ, "+ "+line)
		}
	}
	if len(differ) > 0 {
		k.fail(nil, "%s:\n%s", what, strings.Join(differ, "\n"))
	}
}

// checkKeys asserts that the keys, once their stage was ready, stay what they are.
func (k *soak) checkKeys() {
	k.t.Helper()
	dir := filepath.Join(k.files.state, "stages", "keys")
	content, err := os.ReadFile(filepath.Join(dir, "terraform.tfstate"))
	if err != nil {
		return
	}
	var state struct{ Outputs json.RawMessage }
	if json.Unmarshal(content, &state) != nil {
		return
	}
	if k.machine != nil { // keys that nothing has used may be lost with their machine
		used, err := filepath.Glob(filepath.Join(k.files.state, "stages/machines/[it]*"))
		must(k.t, err)
		if len(used) == 0 {
			return
		}
	}
	now := fmt.Sprintf("%x", sha256.Sum256(state.Outputs))
	if k.keys != "" && k.keys != now {
		k.fail(nil, "the keys are others than before")
	}
	if _, err := os.Stat(filepath.Join(dir, "fingerprint.json")); err == nil {
		k.keys = now
	}
}
