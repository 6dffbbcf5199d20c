package stages_test

import (
	"net"
	"os"
	"path"
	"slices"
	"strings"
	"testing"

	"github.com/siderolabs/talos/pkg/machinery/api/resource/definitions/block"
	"github.com/siderolabs/talos/pkg/machinery/api/resource/definitions/network"
	"github.com/siderolabs/talos/pkg/machinery/cel"
	"github.com/siderolabs/talos/pkg/machinery/cel/celenv"
	"github.com/zclconf/go-cty/cty"

	"github.com/ephemeral-castle/castle/internal/cluster"
	"github.com/ephemeral-castle/castle/internal/config"
	"github.com/ephemeral-castle/castle/internal/tfeval"
	"github.com/ephemeral-castle/castle/stages"
	"github.com/ephemeral-castle/castle/templates"
)

// load loads a cluster of this repository, all of which make test rehearses.
func load(t *testing.T, name string) *config.Cluster {
	t.Helper()
	loaded, diags := config.Load(config.Options{
		Repository: "..", Cluster: name, Gates: cluster.GateTypes(), Preflights: cluster.PreflightTypes(),
		Exists: cluster.ExistsTypes(), Survivors: cluster.SurvivorTypes(),
		Library: stages.Library, Templates: templates.Files,
	})
	if diags.HasErrors() {
		t.Fatal(diags)
	}
	return loaded
}

// beyond are variables that no rehearsal sets, and why.
var beyond = map[string]string{
	"gitops/sync/oci_digest": "the artifact of clusters/addresses changes with each of its files; the " +
		"script of TestLabAddresses pins what Flux has read",
}

// rehearsed reports whether all variables of a stage are to be set: those of the platform, of the storage,
// and of what Flux follows.
func rehearsed(stage string) bool {
	return strings.HasPrefix(stage, "platform/") || strings.HasPrefix(stage, "storage/") ||
		strings.HasPrefix(stage, "gitops/")
}

// A variable that no rehearsal sets, or an attribute of one, may never have worked.
func TestEveryVariableIsRehearsed(t *testing.T) {
	folders, err := os.ReadDir("../clusters")
	if err != nil {
		t.Fatal(err)
	}
	set, declared := map[string]bool{}, map[string]bool{}
	for _, folder := range folders {
		for _, stage := range load(t, folder.Name()).Stages {
			if !rehearsed(stage.Source) {
				continue
			}
			for name, variable := range stage.Variables {
				w, at := stage.Written(name), path.Join(stage.Source, name)
				if path.Base(w.At().Filename) == "stage.hcl" { // castle wires it
					continue
				}
				for _, attribute := range attributes(at, variable.Type) {
					declared[attribute] = true
				}
				if strings.Contains(w.At().Filename, "clusters/") {
					given(at, w.Value, set)
				}
			}
		}
	}
	for attribute := range declared {
		whole, _, _ := strings.Cut(attribute, ".")
		if !set[attribute] && !set[whole+"*"] && beyond[attribute] == "" {
			t.Errorf("%s: no rehearsed cluster sets it; clusters/everything or clusters/sources should",
				attribute)
		}
	}
	for _, stage := range all(t) {
		covered := func(attribute string) bool { return strings.HasPrefix(attribute, stage+"/") }
		some := slices.ContainsFunc(slices.Collect(keys(declared)), covered)
		if rehearsed(stage) && !some {
			t.Errorf("no rehearsed cluster has %s", stage)
		}
	}
}

func keys(m map[string]bool) func(func(string) bool) {
	return func(yield func(string) bool) {
		for key := range m {
			if !yield(key) {
				return
			}
		}
	}
}

// attributes lists the paths of a variable's values, without those of a map's keys and a list's elements.
func attributes(at string, ty cty.Type) (all []string) {
	switch {
	case ty.IsCollectionType():
		return attributes(at, ty.ElementType())
	case !ty.IsObjectType():
		return []string{at}
	}
	for name, of := range ty.AttributeTypes() {
		all = append(all, attributes(at+"."+name, of)...)
	}
	return all
}

// given notes the paths that a value has.
func given(at string, v cty.Value, set map[string]bool) {
	switch ty := v.Type(); {
	case v.IsNull():
	case !v.IsKnown(): // an output of another stage
		set[at], set[at+"*"] = true, true
	case !ty.IsObjectType() && !ty.IsCollectionType() && !ty.IsTupleType():
		set[at] = true
	default:
		for it := v.ElementIterator(); it.Next(); {
			key, element := it.Element()
			if ty.IsObjectType() {
				given(at+"."+key.AsString(), element, set)
			} else {
				given(at, element, set)
			}
		}
		set[at] = true
	}
}

// The selectors find one card and one disk of a machine that has several, as Proxmox presents them and as
// Talos' own evaluation finds them.
func TestTalosFindsTheCardsAndLonghornsDisk(t *testing.T) {
	loaded := load(t, "everything")
	machines := tfeval.Map(tfeval.Outputs(loaded.Stages, nil)["platform"]["machines"])
	if len(machines) != 2 {
		t.Fatalf("the output machines is not known: %v", machines)
	}
	text := func(name string) string { return tfeval.Text(tfeval.Attribute(machines["worker-01"], name)) }
	mac, err := net.ParseMAC("bc:24:11:2a:3b:4c")
	if err != nil {
		t.Fatal(err)
	}
	for _, bus := range []string{"0000:06", "0000:00"} { // q35, pc
		card := func(slot, driver string) *network.LinkStatusSpec {
			return &network.LinkStatusSpec{BusPath: bus + slot, Driver: driver, PermanentAddr: mac}
		}
		cards := []*network.LinkStatusSpec{card(":12.0", "virtio_net"), card(":13.0", "virtio_net"),
			card(":14.0", "virtio_net"), card(":12.0", "igb"), {Driver: "bonding"}}
		uplink, err := cel.ParseBooleanExpression(text("uplink"), celenv.LinkLocator())
		if err != nil {
			t.Fatal(err)
		}
		for i, link := range cards {
			is, err := uplink.EvalBool(celenv.LinkLocator(), map[string]any{"link": link})
			if err != nil || is != (i == 0) {
				t.Errorf("card %d at %s: %v, %v", i, link.GetBusPath(), is, err)
			}
		}
	}
	links := tfeval.Elements(tfeval.Attribute(machines["worker-01"], "links"))
	if len(links) != 1 {
		t.Fatalf("the cards with routes are %v", links)
	}
	second, err := cel.ParseBooleanExpression(tfeval.Text(tfeval.Attribute(links[0], "selector")),
		celenv.LinkLocator())
	if err != nil {
		t.Fatal(err)
	}
	for i, slot := range []string{":12.0", ":13.0", ":14.0"} {
		link := &network.LinkStatusSpec{BusPath: "0000:06" + slot, Driver: "virtio_net"}
		is, err := second.EvalBool(celenv.LinkLocator(), map[string]any{"link": link})
		if err != nil || is != (i == 1) {
			t.Errorf("net1 is at %s: %v, %v", slot, is, err)
		}
	}
	longhorn, err := cel.ParseBooleanExpression("!system_disk && ("+text("longhorn_disk")+")",
		celenv.DiskLocator())
	if err != nil {
		t.Fatal(err)
	}
	for _, name := range []string{"drive-scsi0", "drive-scsi1", "drive-scsi10", "drive-scsi2", "drive-ide2"} {
		disk := &block.DiskSpec{Cdrom: name == "drive-ide2", Symlinks: []string{
			"/dev/disk/by-diskseq/9", "/dev/disk/by-id/scsi-0QEMU_QEMU_HARDDISK_" + name}}
		is, err := longhorn.EvalBool(celenv.DiskLocator(), map[string]any{"disk": disk,
			"system_disk": name == "drive-scsi0"})
		if err != nil || is != (name == "drive-scsi1") {
			t.Errorf("%s: %v, %v", name, is, err)
		}
	}
}
