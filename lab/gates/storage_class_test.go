package gates_test

import (
	"testing"

	"github.com/zclconf/go-cty/cty"
)

func TestStorageClassWaitsForEveryKubelet(t *testing.T) {
	p := control(t)
	g := p.gate(t, "storage_class", args{"name": text("longhorn"), "default": cty.True})
	closed(t, g, "storageclass longhorn does not exist yet")
	p.create(t, "", `
apiVersion: storage.k8s.io/v1
kind: StorageClass
metadata: {name: longhorn, annotations: {storageclass.kubernetes.io/is-default-class: "true"}}
provisioner: driver.longhorn.io
`)
	closed(t, g, "csidriver driver.longhorn.io does not exist yet")
	p.create(t, "", `{apiVersion: storage.k8s.io/v1, kind: CSIDriver, metadata: {name: `+
		`driver.longhorn.io}, spec: {attachRequired: true}}`)
	closed(t, g, "no node takes pods yet")
	p.create(t, "", `
{apiVersion: v1, kind: Node, metadata: {name: storage-cp}, spec: {
  taints: [{key: node-role.kubernetes.io/control-plane, effect: NoSchedule}]}}
---
{apiVersion: v1, kind: Node, metadata: {name: storage-w1, labels: {disk: ssd}}}
---
{apiVersion: v1, kind: Node, metadata: {name: storage-w2}}
---
{apiVersion: storage.k8s.io/v1, kind: CSINode, metadata: {name: storage-w1}, spec: {
  drivers: [{name: driver.longhorn.io, nodeID: storage-w1, topologyKeys: []}]}}
---
{apiVersion: storage.k8s.io/v1, kind: CSINode, metadata: {name: storage-w2}, spec: {drivers: []}}
`)
	closed(t, g, "csidriver driver.longhorn.io: not registered on 1 of 2 nodes: storage-w2")
	open(t, p.gate(t, "storage_class", args{"name": text("longhorn"), "selector": text("disk=ssd")}))
	p.change(t, "", `{apiVersion: storage.k8s.io/v1, kind: CSINode, metadata: {name: storage-w2}, spec: `+
		`{drivers: [{name: driver.longhorn.io, nodeID: storage-w2}]}}`)
	open(t, g)
	p.create(t, "", `
apiVersion: storage.k8s.io/v1
kind: StorageClass
metadata: {name: local, annotations: {storageclass.kubernetes.io/is-default-class: "true"}}
provisioner: local.example.org
`)
	closed(t, g, "storageclass longhorn: is not the only default class: local, longhorn")
}
