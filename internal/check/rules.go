package check

import (
	"slices"
	"strings"

	"github.com/hashicorp/hcl/v2"
)

// rule is one thing that cannot be meant, or is doubtful.
type rule struct {
	name  string // as in `castle check -o json` and docs/check.md
	about string // what is wrong, in one sentence
	warns bool
	// unquoted keeps the line from being shown: it holds a secret.
	unquoted bool
	// covers are what castle's own stages say in `validation` blocks, or castle in
	// reading their gates and preflights, and the rule says with its place, names
	// and numbers: they are not said twice.
	covers []string

	within func(*cluster, reporter)           // looks at one cluster
	across func(*cluster, *cluster, reporter) // compares it with another
}

// rules is every rule, by theme.
func rules() []rule {
	return []rule{
		{name: "gateway-outside", about: "The gateway's network holds none of the machines.", within: gatewayOutside,
			covers: []string{"A node's address lies outside of the gateway's network.", "vip lies outside of the gateway's network: the control planes announce it there."}},
		{name: "node-outside", about: "A machine's address lies outside of its network.", within: nodeOutside,
			covers: []string{"A node's address lies outside of the gateway's network."}},
		{name: "node-is-gateway", about: "A machine has the gateway's address.", within: nodeIsGateway,
			covers: []string{"A node has the gateway's address."}},
		{name: "node-is-dns", about: "A machine or the VIP has a name server's address.", within: nodeIsDNS},
		{name: "address-twice", about: "Two machines have one address.", within: addressTwice,
			covers: []string{"Two nodes have the same address."}},
		{name: "address-reserved", about: "A machine, the VIP or the gateway has the network's own or its broadcast address.", within: addressReserved},
		{name: "vip-outside", about: "The VIP lies outside of the machines' network, where nobody could announce it.", within: vipOutside,
			covers: []string{"vip lies outside of the gateway's network: the control planes announce it there."}},
		{name: "vip-is-node", about: "The VIP is a machine's own address.", within: vipIsNode,
			covers: []string{"vip must not be the address of a node."}},
		{name: "vip-is-gateway", about: "The VIP is the gateway's address.", within: vipIsGateway,
			covers: []string{"vip must not be the gateway's address."}},

		{name: "pool-reversed", about: "A pool ends before it begins.", within: poolReversed},
		{name: "pool-outside", about: "A pool leaves the machines' network, where MetalLB announces it.", within: poolOutside},
		{name: "pool-holds", about: "A pool holds the VIP, a machine, the gateway or a name server.", within: poolHolds},
		{name: "pool-reserved", about: "A pool holds the network's own or its broadcast address.", within: poolReserved},
		{name: "pools-overlap", about: "Two pools share addresses.", within: poolsOverlap},
		{name: "lb-ip-outside", about: "A load balancer's address in cluster_vars lies in no pool.", warns: true, within: loadBalancerOutside},

		{name: "pods-overlap-nodes", about: "The network of Pods and that of the machines share addresses.", within: podsOverlapNodes},
		{name: "services-overlap-nodes", about: "The network of Services and that of the machines share addresses.", within: servicesOverlapNodes},
		{name: "pods-overlap-services", about: "The networks of Pods and of Services share addresses.", within: podsOverlapServices},

		{name: "controlplanes-even", about: "The number of control planes is even, or there is none.", within: controlplanesEven,
			covers: []string{"The number of control planes must be odd: with an even one, etcd stands no more failures than with one machine less.",
				"gate talos_etcd.quorum: unsuitable voters"}},
		{name: "vm-id-twice", about: "Two machines have one VM id.", within: vmIDTwice,
			covers: []string{"Two nodes have the same vm_id.", "preflight vm_ids.free: unsuitable vm_ids"}},
		{name: "vm-id-outside", about: "A VM id lies outside of vm_id_range.", within: vmIDOutside,
			covers: []string{"A node's vm_id lies outside of vm_id_range."}},
		{name: "vm-ids-reversed", about: "vm_id_range ends before it begins.", within: vmIDsReversed,
			covers: []string{"vm_id_range runs from first to last.", "A node's vm_id lies outside of vm_id_range."}},
		{name: "name-too-long", about: "A machine's name is longer than a host name may be.", within: nameTooLong},
		{name: "key-twice", about: "An object has a key twice; the second hides the first.", within: keyTwice},
		{name: "replicas-too-many", about: "Longhorn would make more replicas than there are machines with a disk for them.", warns: true, within: replicasTooMany},

		{name: "vm-id-shared", about: "A machine has the VM id of another cluster's on the same Proxmox.", across: vmIDShared},
		{name: "vm-ids-overlap", about: "Two clusters on the same Proxmox claim the same VM ids.", across: vmIDsOverlap},
		{name: "name-shared", about: "Machines of two clusters on the same Proxmox have one name.", across: nameShared},
		{name: "vip-shared", about: "Two clusters have one VIP.", across: vipShared},
		{name: "address-shared", about: "A machine, or the VIP, has an address of another cluster's.", across: addressShared},
		{name: "pools-shared", about: "The pools of two clusters share addresses.", across: poolsShared},
		{name: "pool-holds-other", about: "A pool holds the VIP or a machine of another cluster.", across: poolHoldsOther},

		{name: "gates-unasked", about: "A stage is disabled, and what needs its layer waits for nothing that takes its place.", warns: true, within: gatesUnasked},
		{name: "owned-twice", about: "Flux's repository declares what a stage makes as well.", warns: true, within: ownedTwice},
		{name: "left-to-nobody", about: "A stage is left to Flux, and Flux's repository does not install its chart.", warns: true, within: leftToNobody},
		{name: "beside-operator", about: "Flux would apply a custom resource together with the release that brings its kind.", warns: true, within: besideOperator},
		{name: "before-operator", about: "Flux would not wait with a custom resource for what brings its kind.", warns: true, within: beforeOperator},
		{name: "variable-unset", about: "Flux would substitute a variable that has no value.", warns: true, within: variableUnset},
		{name: "gitops-unreadable", about: "Flux's repository holds what Flux cannot apply, or castle cannot read.", warns: true, within: gitopsUnreadable},

		{name: "patch-unreadable", about: "A patch of the machine configuration has unknown fields, kinds or no YAML.", within: patchUnreadable},
		{name: "machine-config", about: "Talos would refuse a machine's configuration.", within: machineConfig},
		{name: "machine-config-unknown", about: "A machine's configuration cannot be rendered before a run, so it is not checked.", warns: true, within: machineConfigUnknown},
		{name: "kernel-module", about: "A kernel module exists in no Talos.", within: kernelModule},
		{name: "kernel-module-unknown", about: "A kernel module is neither in Talos' kernel nor in an extension that castle knows.", warns: true, within: kernelModuleUnknown},
		{name: "vip-on-worker", about: "A worker would hold a VIP.", within: vipOnWorker},
		{name: "machine-cert-sans", about: "machine.certSANs is set: the names of Talos' own API, often mistaken for those of the Kubernetes API.", warns: true, within: machineCertSANs},
		{name: "install-image-missing", about: "No patch names the installer, and the provider would name its own.", within: installImageMissing},
		{name: "install-image-version", about: "The installer is of another Talos than the machines boot.", within: installImageVersion},
		{name: "talos-too-old", about: "The machine configuration has documents that this Talos does not know yet.", within: talosTooOld},
		{name: "talos-unknown", about: "castle does not know this release of Talos and can judge less.", warns: true, within: talosUnknown},
		{name: "kubernetes-unsupported", about: "This release of Talos does not run this release of Kubernetes.", within: kubernetesUnsupported},
		{name: "chart-old", about: "A chart is older than the one that the stage's gates were written for.", warns: true, within: chartOld},
		{name: "provider-unnamed", about: "A resource belongs to a provider that the module's required_providers do not name.", within: providerUnnamed},
		{name: "validation", about: "A value fails a validation of the stage's own Terraform.", within: validation},

		{name: "secret-open", about: "A sensitive variable is set in a file that belongs into Git.", unquoted: true, within: secretOpen},
		{name: "secret-likely", about: "A value in a file that belongs into Git looks like a credential.", unquoted: true, within: secretLikely},
		{name: "secret-named", about: "A value in a file that belongs into Git is named like a credential.", warns: true, unquoted: true, within: secretNamed},

		{name: "configs-mode", about: "configs/ or a file in it can be read by others.", within: configsMode},
		{name: "state-mode", about: "The state directory can be read by others.", within: stateMode},
	}
}

// Rule is what a user may know of a rule.
type Rule struct {
	Name, About string
	Warns       bool
}

// Rules lists every rule, for docs/check.md.
func Rules() []Rule {
	var all []Rule
	for _, r := range rules() {
		all = append(all, Rule{Name: r.name, About: r.about, Warns: r.warns})
	}
	return all
}

// withoutCovered drops what a rule has said better.
func withoutCovered(diags hcl.Diagnostics) hcl.Diagnostics {
	var covered []string
	for _, r := range rules() {
		if slices.ContainsFunc(diags, func(d *hcl.Diagnostic) bool { return RuleOf(d) == Kind(r.name) }) {
			covered = append(covered, r.covers...)
		}
	}
	return slices.DeleteFunc(diags, func(d *hcl.Diagnostic) bool {
		rule := RuleOf(d)
		return slices.ContainsFunc(covered, func(text string) bool {
			return rule == "validation" && strings.HasPrefix(d.Detail, text) || rule == "" && strings.HasSuffix(d.Summary, text)
		})
	})
}
