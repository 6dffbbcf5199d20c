package check

import (
	"bufio"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"

	"github.com/hashicorp/hcl/v2"
	"github.com/zclconf/go-cty/cty"

	"github.com/ephemeral-castle/castle/internal/config"
	"github.com/ephemeral-castle/castle/internal/secret"
	"github.com/ephemeral-castle/castle/internal/talos"
	"github.com/ephemeral-castle/castle/internal/tfeval"
)

// blame is where something of a machine's configuration comes from: the patch
// of the user's that has the words, or else the module.
func (c *cluster) blame(r rendered, words ...string) hcl.Range {
	for _, w := range words {
		if at, found := c.inPatch(w); found {
			return at
		}
	}
	return r.at
}

// inPatch finds the line of the user's patches that has a word.
func (c *cluster) inPatch(word string) (hcl.Range, bool) {
	patches := c.variable(patchVariable)
	for i, v := range tfeval.Elements(patches.Value) {
		if !strings.Contains(tfeval.Text(v), word) {
			continue
		}
		at := patches.At(strconv.Itoa(i))
		if f := c.config.Files[at.Filename]; f != nil {
			if line, found := lineWith(f.Bytes, patches.Whole(strconv.Itoa(i)), word); found {
				return line, true
			}
		}
		return at, true
	}
	return hcl.Range{}, false
}

// lineWith is the line of a file, within a range, that has a word.
func lineWith(file []byte, within hcl.Range, word string) (hcl.Range, bool) {
	if !within.CanSliceBytes(file) {
		return hcl.Range{}, false
	}
	lines := hcl.NewRangeScannerFragment(file[:within.End.Byte], within.Filename, within.Start, bufio.ScanLines)
	for lines.Scan() {
		if strings.Contains(string(lines.Bytes()), word) {
			return lines.Range(), true
		}
	}
	return hcl.Range{}, false
}

// patched reports whether every patch of the user's can be read by itself.
func (c *cluster) patched() bool {
	return !slices.ContainsFunc(tfeval.Elements(c.variable(patchVariable).Value), func(v cty.Value) bool { return talos.ReadPatch(tfeval.Text(v)) != nil })
}

func patchUnreadable(c *cluster, report reporter) {
	patches := c.variable(patchVariable)
	for i, v := range tfeval.Elements(patches.Value) {
		if tfeval.Text(v) == "" {
			continue
		}
		if err := talos.ReadPatch(tfeval.Text(v)); err != nil {
			report(patches.At(strconv.Itoa(i)), fmt.Sprintf("%s[%d]: not readable as a patch", patchVariable, i),
				"Talos says: %s. Write it as in the reference of the machine configuration of %s.", oneLine(secret.HideLikely(err.Error())), c.talosVersion())
		}
	}
}

func (c *cluster) talosVersion() string {
	if v := tfeval.Text(c.variable("talos_version").Value); v != "" {
		return "Talos " + v
	}
	return "Talos"
}

// machineConfig says once what is wrong with several machines.
func machineConfig(c *cluster, report reporter) {
	if late, _ := c.tooNew(); len(late) > 0 {
		return // told by a rule of its own
	}
	var order []string
	machines, at := map[string][]string{}, map[string]hcl.Range{}
	say := func(r rendered, problem string) {
		if machines[problem] == nil {
			order, at[problem] = append(order, problem), c.blame(r, lastPart(problem)...)
		}
		machines[problem] = append(machines[problem], r.machine)
	}
	for _, r := range c.rendered {
		var unknown *tfeval.UnknownError
		switch {
		case r.err != nil && !errors.As(r.err, &unknown) && c.patched():
			say(r, r.err.Error())
		case r.config != nil:
			for _, p := range r.config.Problems() {
				if len(c.config.Name+"-"+r.machine) <= longest || !strings.Contains(p, "invalid hostname") {
					say(r, p)
				}
			}
		}
	}
	for _, problem := range order {
		report(at[problem], "machine configuration: refused by Talos", "%s: %s. Look at %s and at the patches of the stage.",
			plural("node", machines[problem]), oneLine(secret.HideLikely(problem)), patchVariable)
	}
}

// lastPart is the field in brackets that Talos names at the end of a problem, such as (.machine.ca).
func lastPart(problem string) []string {
	_, rest, ok := strings.Cut(problem, "(.")
	if !ok {
		switch {
		case strings.Contains(problem, "virtual (shared) IP"):
			return []string{"vip:"}
		case strings.Contains(problem, "JSON6902"):
			return []string{"op:"}
		}
		return nil
	}
	field, _, _ := strings.Cut(rest, ")")
	return []string{field[strings.LastIndexByte(field, '.')+1:] + ":"}
}

func machineConfigUnknown(c *cluster, report reporter) {
	said := map[string]bool{}
	for _, r := range c.rendered {
		var unknown *tfeval.UnknownError
		if errors.As(r.err, &unknown) && !said[unknown.What] {
			said[unknown.What] = true
			report(r.at, "machine configuration: not checked", "castle would have to know %s beforehand. Terraform and Talos judge it when it is applied.", unknown.What)
		}
	}
}

// absent are modules that guides still name and no kernel of Talos has, with what does their work.
func absent() map[string]string {
	return map[string]string{
		"iscsi_generic": "iscsi_tcp does its work",
		"iscsi":         "the module is called iscsi_tcp",
		"libiscsi_tcp":  "iscsi_tcp brings it",
		"open-iscsi":    "that is the extension siderolabs/iscsi-tools, and the module is called iscsi_tcp",
		"open_iscsi":    "that is the extension siderolabs/iscsi-tools, and the module is called iscsi_tcp",
		"longhorn":      "Longhorn needs nbd, iscsi_tcp and configfs",
	}
}

// present are modules of Talos' kernel and of its extensions that clusters load by name.
func present() []string {
	return strings.Fields(`8021q amdgpu ahci bcache binfmt_misc bonding br_netfilter ceph cifs configfs dm_cache dm_crypt dm_mirror dm_multipath
		dm_raid dm_snapshot dm_thin_pool drbd drbd_transport_tcp dummy fuse gasket apex i915 i6300esb ib_umad ib_uverbs ip_gre ip_tables ip6_tables ip_vs ip_vs_rr
		ip_vs_sh ip_vs_wrr ip6table_filter ip6table_nat iptable_filter iptable_mangle iptable_nat iptable_raw ipmi_devintf ipmi_si iscsi_tcp it87 kvm kvm_amd
		kvm_intel macvlan mlx5_core mlx5_ib nbd netconsole nf_conntrack nf_tables nfs nfsd nfsv4 nvidia nvidia_drm nvidia_modeset nvidia_uvm nvme_fabrics nvme_rdma
		nvme_tcp nvmet nvmet_tcp openvswitch overlay raid456 rbd rdma_rxe rdma_ucm scsi_transport_iscsi sunrpc target_core_mod tcm_loop thunderbolt tls tun udf
		uio uio_hv_generic uio_pci_generic vduse vfio vfio_iommu_type1 vfio_pci vhost vhost_net vhost_vdpa vhost_vsock virtio_balloon virtio_net vport_gre vrf vxlan
		wireguard xe xt_set zfs zram`)
}

// modulesOf returns each module once, with a machine that loads it.
func (c *cluster) modulesOf() map[string]rendered {
	all := map[string]rendered{}
	for _, r := range slices.Backward(c.rendered) {
		if r.config == nil {
			continue
		}
		for _, name := range r.config.KernelModules() {
			all[name] = r
		}
	}
	return all
}

func kernelModule(c *cluster, report reporter) {
	modules := c.modulesOf()
	for _, name := range names(modules) {
		if instead, is := absent()[name]; is {
			report(c.blame(modules[name], name), "kernel module "+name+": not there", "No kernel of Talos has it: %s. Remove it.", instead)
		}
	}
}

func kernelModuleUnknown(c *cluster, report reporter) {
	modules := c.modulesOf()
	for _, name := range names(modules) {
		known := strings.ReplaceAll(name, "-", "_")
		if _, is := absent()[name]; is || slices.Contains(present(), known) {
			continue
		}
		hint := config.DidYouMean(known, present())
		if hint == "" {
			hint = ". If an extension of the schematic brings it, all is well."
		}
		report(c.blame(modules[name], name), "kernel module "+name+": not known", "castle knows it neither of Talos' kernel nor of an extension%s", hint)
	}
}

func vipOnWorker(c *cluster, report reporter) {
	for _, r := range c.rendered {
		if r.config == nil || r.role != "worker" {
			continue
		}
		for _, vip := range r.config.VirtualAddresses() {
			report(c.blame(r, "Layer2VIPConfig", "HCloudVIPConfig"), "node "+r.machine+": a VIP on a worker",
				"The patch gives %s to every node, and only control planes may hold a VIP: it needs etcd. The variable vip gives it to them; remove the document.", vip)
		}
	}
}

func machineCertSANs(c *cluster, report reporter) {
	for _, r := range c.rendered {
		if r.config == nil || len(r.config.MachineCertSANs()) == 0 {
			continue
		}
		missing := slices.DeleteFunc(slices.Clone(r.config.MachineCertSANs()), func(name string) bool { return slices.Contains(r.config.APIServerCertSANs(), name) })
		if len(missing) == 0 {
			continue
		}
		report(c.blame(r, "certSANs"), "machine.certSANs: names of Talos' own API",
			"%s would be in the certificates of apid and trustd and not in that of the Kubernetes API; set on a running cluster, this has cut workers off. "+
				"If the Kubernetes API is meant, write cluster.apiServer.certSANs.", strings.Join(missing, ", "))
		return
	}
}

func installImageMissing(c *cluster, report reporter) {
	for _, r := range c.rendered {
		if r.config != nil && r.config.InstallImage() == "" {
			report(r.at, "machine.install.image: no patch sets it",
				"The provider would name the installer of its own Talos release, without the extensions of the schematic. Set machine.install.image in config_patches.")
			return
		}
	}
}

func installImageVersion(c *cluster, report reporter) {
	version := tfeval.Text(c.variable("talos_version").Value)
	for _, r := range c.rendered {
		if r.config == nil || version == "" {
			continue
		}
		image := r.config.InstallImage()
		if _, tag, ok := strings.Cut(image[strings.LastIndexByte(image, '/')+1:], ":"); ok && !strings.HasPrefix(tag, version) {
			report(c.blame(r, image), "machine.install.image: another Talos than talos_version",
				"The machines boot %s (%s) and would install %s. Remove machine.install.image from the patch: the stage sets it from talos_version and talos_schematic_id.",
				version, where(c.at("talos_version")), image)
			return
		}
	}
}
