//go:build integration

package main

import (
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"
)

// Somebody else's: a machine in castle's range of ids and one beside it, a file,
// and a secret in castle's folder and in another.
const (
	soakProject = "8f3c1d52-6a0e-4b7f-9d21-5e4c7a90b6d3"
	soakFolder  = "/ephemeral-castle/keep/proxmox"
	soakForeign = "PROD_DATABASE_URL"
)

var (
	soakMachines = []string{"443", "445"}
	soakFolders  = []string{soakFolder, "/somebody-else"}
)

// settle creates foreign resources and returns them.
func (l *soakLab) settle() map[string]string {
	for _, id := range soakMachines {
		l.proxmox("POST", node+"qemu", map[string]any{"vmid": id, "name": "prod-database", "memory": 2048,
			"scsi0": "local-lvm:8", "net0": "virtio,bridge=vmbr0"})
		l.idle()
		l.proxmox("POST", node+"qemu/"+id+"/status/start", nil)
	}
	l.proxmox("POST", node+"storage/local/download-url",
		map[string]any{"content": "import", "filename": "prod-database.qcow2",
			"url": "https://example.com/prod-database.qcow2"})
	l.idle()
	for _, folder := range soakFolders {
		l.infisical("GET", folder, "", nil) // nothing can be put into a folder that nobody has asked for
		l.infisical("POST", folder, "/"+soakForeign, map[string]any{
			"workspaceId": soakProject, "environment": "prod", "secretPath": folder,
			"secretValue": "postgres://prod", "type": "shared",
		})
	}
	return l.theirs()
}

// idle waits until Proxmox has nothing to do.
func (l *soakLab) idle() {
	l.t.Helper()
	idle := func() bool { return len(l.rows(node+"tasks?source=active")) == 0 }
	if !eventually(soakPatience, 10*time.Millisecond, idle) {
		l.t.Fatal("Proxmox tasks do not end")
	}
}

// theirs returns the foreign resources by name, byte for byte.
func (l *soakLab) theirs() map[string]string {
	things := map[string]string{}
	for _, id := range soakMachines {
		things["VM "+id] = string(l.proxmox("GET", node+"qemu/"+id+"/config", nil))
		var now struct{ Status string }
		must(l.t, json.Unmarshal(l.proxmox("GET", node+"qemu/"+id+"/status/current", nil), &now))
		things["power of VM "+id] = now.Status
	}
	for name, row := range l.volumes() {
		if strings.Contains(name, "prod-database") || slices.Contains(soakMachines, fmt.Sprint(row["vmid"])) {
			things["volume "+name] = fmt.Sprint(row)
		}
	}
	for _, folder := range soakFolders {
		things["secret in "+folder] = string(l.infisical("GET", folder, "/"+soakForeign, nil))
	}
	return things
}

// soakObjects are somebody else's in the cluster, by the path of their kind.
var soakObjects = map[string]string{
	"/api/v1/namespaces": `{"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": ` +
		`"prod"}}`,
	"/api/v1/namespaces/prod/secrets": `{"apiVersion": "v1", "kind": "Secret", "metadata": {"name": ` +
		`"database"}, "stringData": {"password": "theirs"}}`,
	"/api/v1/namespaces/default/secrets": `{"apiVersion": "v1", "kind": "Secret",
		"type": "helm.sh/release.v1",
		"metadata": {"name": "sh.helm.release.v1.theirs.v1",
		"labels": {"owner": "helm", "name": "theirs", "status": "pending-install", "version": "1"}},
		"stringData": {"release": "theirs"}}`,
}

// plant lets somebody else move into the cluster, as soon as there is one.
func (k *soak) plant() {
	if len(k.inCluster) > 0 {
		return
	}
	if _, err := k.lab.cluster("GET", "/readyz", nil); err != nil {
		return
	}
	for _, kind := range slices.Sorted(maps.Keys(soakObjects)) {
		var object struct{ Metadata struct{ Name string } }
		must(k.t, json.Unmarshal([]byte(soakObjects[kind]), &object))
		if _, err := k.lab.cluster("POST", kind, json.RawMessage(soakObjects[kind])); err != nil &&
			!strings.Contains(err.Error(), "AlreadyExists") {
			return // it is only coming up
		}
	}
	k.inCluster = k.theirObjects()
}

func (k *soak) theirObjects() map[string]string {
	things := map[string]string{}
	for kind, text := range soakObjects {
		var object struct{ Metadata struct{ Name string } }
		must(k.t, json.Unmarshal([]byte(text), &object))
		path := kind + "/" + object.Metadata.Name
		answer, err := k.lab.cluster("GET", path, nil)
		must(k.t, err)
		things[path] = string(answer)
	}
	return things
}

func (k *soak) untouched() {
	k.t.Helper()
	k.same("somebody else's", lines(k.others), lines(k.lab.theirs()))
	if len(k.inCluster) > 0 {
		k.same("somebody else's in the cluster", lines(k.inCluster), lines(k.theirObjects()))
	}
}

func lines(things map[string]string) (all []string) {
	for _, name := range slices.Sorted(maps.Keys(things)) {
		all = append(all, name+": "+things[name])
	}
	return all
}
