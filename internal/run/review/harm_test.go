package review

import (
	"testing"

	"github.com/ephemeral-castle/castle/internal/effect"
)

// Each machine is named with its disks and with the data that ends with them.
func TestARefusalNamesDisksAndDataOfTheMachines(t *testing.T) {
	err := &HarmError{rollout: "castle rollout blue", Machines: []Affected{
		{Name: "worker-01", Place: "VM 422 on node pve",
			Disks: []string{"scsi0 (32 GiB on local-lvm)", "scsi1 (80 GiB on local-lvm)"},
			Effects: []effect.Effect{
				{Kind: effect.LosesData, Text: "detaches the disk scsi1 (80 GiB on local-lvm)"},
				{Kind: effect.LosesData, Text: "detaches the disk scsi2 (10 GiB on local-lvm)"}},
			Volumes: []string{"media (default/media)", "photos"}},
		{Name: "worker-02", Place: "VM 423 on node pve",
			Effects: []effect.Effect{{Kind: effect.Interrupts, Text: "network_device.vlan_id 0 → 20"}}},
	}}
	want := `it would harm machines of a cluster that runs; nothing was changed:
  worker-01 (VM 422 on node pve) would lose data: ` +
		`detaches the disk scsi1 (80 GiB on local-lvm), detaches the disk scsi2 (10 GiB on local-lvm)
    its disks: scsi0 (32 GiB on local-lvm), scsi1 (80 GiB on local-lvm)
    the only intact replica of Longhorn's volumes: media (default/media), photos
  worker-02 (VM 423 on node pve) would be interrupted: network_device.vlan_id 0 → 20
  set the former values again, or change one machine after the other: ` +
		`castle rollout blue --replace worker-01`
	if got := err.Error(); got != want {
		t.Errorf("got  %s\nwant %s", got, want)
	}
}
