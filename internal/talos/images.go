package talos

import (
	"strings"

	"github.com/siderolabs/gen/xslices"
)

// KnownExtensions are extensions of the image factory that clusters often have. A name near one is a mistake.
func KnownExtensions() []string {
	const names = `amd-ucode amdgpu binfmt-misc btrfs cloudflared crun drbd fuse3 gasket-driver glibc
		gvisor i915 intel-ice-firmware intel-ucode iscsi-tools kata-containers lldpd mdadm mei
		nebula netbird newt nfsd nfsrahead nonfree-kmod-nvidia-lts
		nonfree-kmod-nvidia-production nut-client nvidia-container-toolkit-lts
		nvidia-container-toolkit-production nvidia-open-gpu-kernel-modules-lts
		nvidia-open-gpu-kernel-modules-production nvme-cli qemu-guest-agent realtek-firmware
		spin stargz-snapshotter tailscale thunderbolt trident-iscsi-tools uinput
		usb-modem-drivers util-linux-tools v4l-uvc-drivers vmtoolsd-guest-agent wasmedge xe
		xen-guest-agent youki zerotier zfs`
	return xslices.Map(strings.Fields(names), func(name string) string { return "siderolabs/" + name })
}

// AbsentModules are kernel modules that guides still name and no Talos has, with the remedy.
func AbsentModules() map[string]string {
	const iscsi = "that is the extension siderolabs/iscsi-tools, and the module is called iscsi_tcp"
	return map[string]string{
		"iscsi_generic": "iscsi_tcp does its work",
		"iscsi":         "the module is called iscsi_tcp",
		"libiscsi_tcp":  "iscsi_tcp brings it",
		"open-iscsi":    iscsi,
		"open_iscsi":    iscsi,
		"longhorn":      "Longhorn needs nbd, iscsi_tcp and configfs",
	}
}

// KnownModules are modules of Talos' kernel and of its extensions that clusters load by name.
func KnownModules() []string {
	return strings.Fields(`8021q amdgpu ahci bcache binfmt_misc bonding br_netfilter ceph cifs configfs
		dm_cache dm_crypt dm_mirror dm_multipath dm_raid dm_snapshot dm_thin_pool drbd drbd_transport_tcp
		dummy fuse gasket apex i915 i6300esb ib_umad ib_uverbs ip_gre ip_tables ip6_tables ip_vs ip_vs_rr
		ip_vs_sh ip_vs_wrr ip6table_filter ip6table_nat iptable_filter iptable_mangle iptable_nat
		iptable_raw ipmi_devintf ipmi_si iscsi_tcp it87 kvm kvm_amd kvm_intel macvlan mlx5_core mlx5_ib nbd
		netconsole nf_conntrack nf_tables nfs nfsd nfsv4 nvidia nvidia_drm nvidia_modeset nvidia_uvm
		nvme_fabrics nvme_rdma nvme_tcp nvmet nvmet_tcp openvswitch overlay raid456 rbd rdma_rxe rdma_ucm
		scsi_transport_iscsi sunrpc target_core_mod tcm_loop thunderbolt tls tun udf uio uio_hv_generic
		uio_pci_generic vduse vfio vfio_iommu_type1 vfio_pci vhost vhost_net vhost_vdpa vhost_vsock
		virtio_balloon virtio_net vport_gre vrf vxlan wireguard xe xt_set zfs zram`)
}
