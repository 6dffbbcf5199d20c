package kube

import (
	"maps"
	"strings"
	"testing"

	"github.com/zclconf/go-cty/cty"
)

func TestStorageClass(t *testing.T) {
	const classes, drivers = "/apis/storage.k8s.io/v1/storageclasses/", "/apis/storage.k8s.io/v1/csidrivers/"
	class := func(name string, annotations ...string) fixture {
		return fixture{classes + name, "{kind: StorageClass, metadata: {annotations: {" +
			strings.Join(annotations, ",") + "}}, provisioner: driver.longhorn.io}"}
	}
	const isDefault, isNoDefault = `storageclass.kubernetes.io/is-default-class: "true"`,
		`storageclass.kubernetes.io/is-default-class: "false"`
	longhorn, driver := class("longhorn"), fixture{drivers + "driver.longhorn.io", "{kind: CSIDriver}"}
	node := func(name, spec string) fixture {
		return fixture{"/api/v1/nodes/" + name, "{kind: Node, metadata: {labels: {name: " + name +
			"}}, spec: {" +
			spec + "}}"}
	}
	tainted := func(name, key, effect string) fixture {
		return node(name, "taints: [{key: "+key+", effect: "+effect+"}]")
	}
	registered := func(name string, drivers ...string) fixture {
		var list []string
		for _, d := range drivers {
			list = append(list, "{name: "+d+", nodeID: "+name+"}")
		}
		return fixture{"/apis/storage.k8s.io/v1/csinodes/" + name, "{kind: CSINode, spec: {drivers: [" +
			strings.Join(list, ",") + "]}}"}
	}
	one, there := node("w-01", ""), registered("w-01", "other.example", "driver.longhorn.io")
	asks := func(more ...map[string]cty.Value) map[string]cty.Value {
		arguments := map[string]cty.Value{"name": str("longhorn")}
		for _, m := range more {
			maps.Copy(arguments, m)
		}
		return arguments
	}
	theDefault := asks(map[string]cty.Value{"default": cty.True})
	selected := asks(map[string]cty.Value{"selector": str("name=w-02")})
	runTrials(t, "storage_class", []trial{
		{name: "registered everywhere", arguments: asks(), objects: []fixture{longhorn, driver, one, there}},
		{name: "no class", arguments: asks(), objects: []fixture{class("other"), driver, one, there},
			want: "storageclass longhorn does not exist yet"},
		{name: "no driver", arguments: asks(), objects: []fixture{longhorn, one, there},
			want: "csidriver driver.longhorn.io does not exist yet"},
		{
			name: "not registered on one", arguments: asks(),
			objects: []fixture{longhorn, driver, one, there, node("w-02", ""), registered("w-02")},
			want:    "csidriver driver.longhorn.io: not registered on 1 of 2 nodes: w-02",
		},
		{
			name: "a node whose kubelet has registered nothing at all", arguments: asks(),
			objects: []fixture{longhorn, driver, one},
			want:    "csidriver driver.longhorn.io: not registered on 1 of 1 nodes: w-01",
		},
		{
			name: "nodes set apart do not matter", arguments: asks(),
			objects: []fixture{longhorn, driver, one, there,
				tainted("cp-01", "node-role.kubernetes.io/control-plane", "NoSchedule"),
				tainted("w-02", "example.org/gpu", "NoExecute"),
				tainted("w-03", "node.kubernetes.io/unschedulable", "NoSchedule")},
		},
		{
			name: "one that is not ready now does", arguments: asks(),
			objects: []fixture{longhorn, driver, one,
				there, tainted("w-02", "node.kubernetes.io/not-ready", "NoExecute")},
			want: "csidriver driver.longhorn.io: not registered on 1 of 2 nodes: w-02",
		},
		{
			name: "one that is only avoided does", arguments: asks(),
			objects: []fixture{longhorn, driver, one,
				there, tainted("w-02", "example.org/busy", "PreferNoSchedule")},
			want: "csidriver driver.longhorn.io: not registered on 1 of 2 nodes: w-02",
		},
		{name: "no node", arguments: asks(), objects: []fixture{longhorn, driver},
			want: "no node takes pods yet"},
		{
			name: "no node but those set apart", arguments: asks(), objects: []fixture{longhorn, driver,
				tainted("cp-01", "node-role.kubernetes.io/control-plane", "NoSchedule")},
			want: "no node takes pods yet",
		},
		{
			name: "selected nodes, tainted or not", arguments: selected,
			objects: []fixture{longhorn, driver, one, tainted("w-02", "example.org/storage", "NoSchedule"),
				registered("w-02", "driver.longhorn.io")},
		},
		{name: "none selected", arguments: selected, objects: []fixture{longhorn, driver, one, there},
			want: "no node with name=w-02 exists yet"},
		{
			name: "another driver's", arguments: asks(map[string]cty.Value{"driver": str("csi.example")}),
			objects: []fixture{longhorn, driver, one, there},
			want:    "storageclass longhorn: its provisioner is driver.longhorn.io, not csi.example",
		},
		{name: "the default", arguments: theDefault,
			objects: []fixture{class("longhorn", isDefault), class("other", isNoDefault), driver, one,
				there}},
		{name: "not the default", arguments: theDefault, objects: []fixture{class("longhorn", isNoDefault),
			driver, one, there}, want: "storageclass longhorn: is not the default class"},
		{
			name: "one of two defaults", arguments: theDefault,
			objects: []fixture{class("longhorn", isDefault), class("local", isDefault), driver, one, there},
			want:    "storageclass longhorn: is not the only default class: local, longhorn",
		},
		{
			name: "one of two, one the old way", arguments: theDefault,
			objects: []fixture{class("longhorn", isDefault), class("local",
				`storageclass.beta.kubernetes.io/is-default-class: "true"`), driver, one, there},
			want: "storageclass longhorn: is not the only default class: local, longhorn",
		},
	})
}
