package check

import (
	"slices"
	"strconv"
	"strings"

	"github.com/ephemeral-castle/castle/internal/syntax"
	"github.com/ephemeral-castle/castle/internal/tfeval"
)

// extensionsVariable lists the extensions of which the image factory makes a schematic.
const extensionsVariable = "talos_extensions"

// longhornExtensions are those without which Longhorn attaches no volume on Talos.
var longhornExtensions = []string{"siderolabs/iscsi-tools", "siderolabs/util-linux-tools"}

// knownExtensions are extensions of the image factory that clusters often have. A name that is near one of
// them is probably misspelled.
func knownExtensions() []string {
	const names = `amd-ucode amdgpu binfmt-misc btrfs cloudflared crun drbd fuse3 gasket-driver glibc
		gvisor i915 intel-ice-firmware intel-ucode iscsi-tools kata-containers lldpd mdadm mei
		nebula netbird newt nfsd nfsrahead nonfree-kmod-nvidia-lts
		nonfree-kmod-nvidia-production nut-client nvidia-container-toolkit-lts
		nvidia-container-toolkit-production nvidia-open-gpu-kernel-modules-lts
		nvidia-open-gpu-kernel-modules-production nvme-cli qemu-guest-agent realtek-firmware
		spin stargz-snapshotter tailscale thunderbolt trident-iscsi-tools uinput
		usb-modem-drivers util-linux-tools v4l-uvc-drivers vmtoolsd-guest-agent wasmedge xe
		xen-guest-agent youki zerotier zfs`
	known := strings.Fields(names)
	for i, name := range known {
		known[i] = "siderolabs/" + name
	}
	return known
}

// checkExtensions reports names that the image factory would refuse only when it makes an image, and what
// Longhorn needs.
func checkExtensions(c *cluster, report reporter) {
	written := c.variable(extensionsVariable)
	var names []string
	for i, v := range tfeval.Elements(written.Value) {
		name := tfeval.Text(v)
		names = append(names, name)
		near := syntax.Nearest(name, knownExtensions())
		if near != "" && near != name && !slices.Contains(knownExtensions(), name) {
			report("extension-unknown", written.At(strconv.Itoa(i)), "extension "+name+": not known",
				"castle knows no such extension; did you mean %q?", near)
		}
	}
	schematic := c.variable("talos_schematic_id")
	if d := c.declares["talos_schematic_id"]; d != nil && len(names) > 0 {
		fallback, _ := d.Variables["talos_schematic_id"].Default()
		if own := tfeval.Text(schematic.Value); own != "" && own != tfeval.Text(fallback) {
			report("schematic-twice", schematic.At(), "talos_schematic_id: there is talos_extensions, too",
				"A schematic says which extensions there are, and talos_extensions makes another one (%s). "+
					"Remove one of them.", syntax.Place(written.At()))
		}
	}
	missing := slices.DeleteFunc(slices.Clone(longhornExtensions), func(name string) bool {
		return slices.Contains(names, name)
	})
	longhorn := c.declares["longhorn_chart_version"]
	if longhorn != nil && len(names) > 0 && len(missing) > 0 {
		report("longhorn-extensions", written.At(), extensionsVariable+": Longhorn needs more",
			"Stage %q attaches volumes with %s, which is not in the list. Add it.", longhorn.Name,
			strings.Join(missing, " and "))
	}
}
