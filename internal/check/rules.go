package check

import (
	"slices"
	"strings"

	"github.com/hashicorp/hcl/v2"

	"github.com/ephemeral-castle/castle/internal/config"
)

// Kind is the name of a rule, as docs/check.md and `castle check -o json` have it.
type Kind string

// The rules that others cover.
const (
	nodeOutside Kind = "node-outside"
	vipOutside  Kind = "vip-outside"
	vmIDOutside Kind = "vm-id-outside"
	lbOutside   Kind = "lb-ip-outside"
	// All machines are control planes: a misspelled role, perhaps.
	noSchedulable Kind = "no-schedulable-node"
	validation    Kind = "validation" // a validation that is none of the rules below
)

// Rule defines how castle reports the findings of a kind.
type Rule struct {
	Kind     Kind
	Warns    bool
	unquoted bool // the line holds a secret and is not printed
	// covers are rules that are not reported beside this one: they follow from it.
	covers []Kind
	// argument is one that config finds unsuitable for the same reason.
	argument config.Argument

	// A rule with reads is a validation of the stage's module, identified by the values that its condition
	// relates; | is between those of several platforms. The summary describes the problem of the object.
	reads, summary, fix string
}

// Rules is every rule: those with more to them than a name, errors and warnings.
func Rules() []Rule {
	all := []Rule{
		{Kind: "gateway-outside", covers: []Kind{nodeOutside, vipOutside}},
		{Kind: nodeOutside, covers: []Kind{"node-ip-outside"},
			reads:   "network.gateway network.prefix nodes.address|network.subnet nodes.address",
			summary: "outside of the network", fix: "Give the node an address of the network."},
		{Kind: "node-is-gateway", reads: "network.gateway nodes.address",
			summary: "the gateway's address", fix: "Give the node an address of its own."},
		{Kind: "address-twice", reads: "nodes nodes.address",
			summary: "the address of node %s", fix: "Give each node an address of its own."},
		{Kind: vipOutside, reads: "network.gateway network.prefix vip",
			summary: "outside of the network", fix: "Choose a free address of the gateway's network."},
		{Kind: "vip-is-node", reads: "nodes.address vip",
			summary: "the address of node %s", fix: "Choose a free address of the network."},
		{Kind: "vip-is-gateway", reads: "network.gateway vip",
			summary: "the gateway's address", fix: "Choose a free address of the network."},
		{Kind: "controlplanes-even", reads: "nodes nodes.role",
			argument: config.Argument{Type: "talos_etcd", Name: "voters"}, covers: []Kind{noSchedulable},
			summary: "an even number of control planes", fix: `Give 1, 3 or 5 nodes role = "controlplane".`},
		{Kind: "vm-id-twice", reads: "nodes nodes.vm_id",
			argument: config.Argument{Type: "vm_ids", Name: "vm_ids"},
			summary:  "the VM id of node %s", fix: "Give each node an id of its own."},
		{Kind: vmIDOutside, reads: "nodes.vm_id vm_id_range.first vm_id_range.last",
			summary: "VM id outside of vm_id_range", fix: "Change the id or the range."},
		{Kind: "vm-ids-reversed", reads: "vm_id_range.first vm_id_range.last", covers: []Kind{vmIDOutside},
			summary: "ends before it begins", fix: "Exchange first and last."},
		{Kind: "pool-reversed", covers: []Kind{lbOutside}},
		{Kind: "pool-outside", covers: []Kind{lbOutside}},
		{Kind: "pool-holds", covers: []Kind{lbOutside}},
		{Kind: lbOutside, Warns: true},
		{Kind: noSchedulable},
		{Kind: "secret-open", unquoted: true},
		{Kind: "secret-likely", unquoted: true},
		{Kind: "secret-named", Warns: true, unquoted: true},
	}
	for kind := range strings.FieldsSeq(`validation address-reserved node-is-dns node-is-proxmox
		pool-reserved pools-overlap load-balancer-twice undeclared declared-twice cycle argument-unknown
		provider-constraint cluster-folder
		pods-overlap-nodes services-overlap-nodes pods-overlap-services pods-too-small network-too-large
		services-without-pods name-too-long key-twice
		vm-id-shared vm-ids-overlap name-shared vip-shared endpoint-shared address-shared pools-shared
		pool-holds-other
		patch-unreadable machine-config kernel-module vip-on-worker install-image-missing
		install-image-version cloud-controller-missing
		cni-missing cni-twice kubeprism-off talos-too-old kubernetes-unsupported provider-unnamed
		provider-conflict provider-host tofu-file
		provider-lock configs-mode
		state-mode longhorn-extensions schematic-twice data-elsewhere`) {
		all = append(all, Rule{Kind: Kind(kind)})
	}
	for kind := range strings.FieldsSeq(
		`replicas-too-many gates-unasked owned-twice left-to-nobody
		beside-operator before-operator variable-unset gitops-unreadable machine-config-unknown
		kernel-module-unknown machine-cert-sans talos-unknown chart-old pods-without-services
		nodes-without-family nodes-tainted node-ip-outside cni-none cilium-bug source-missing sops-key-missing
		sops-undecrypted suspended clone-branch gitops-ignored extension-unknown git-unencrypted
		artifact-unread slow-first health-check-never controller-missing`) {
		all = append(all, Rule{Kind: Kind(kind), Warns: true})
	}
	return all
}

// checks are the functions that apply the rules about one cluster.
func checks() []func(*cluster, reporter) {
	return []func(*cluster, reporter){
		checkValidations, checkDeclarations, checkProviders, checkOpenTofu, checkProviderVersions,
		checkAddresses, checkSubnets, checkPools, checkLoadBalancers,
		checkNodes, checkScheduling, checkPatches, checkMachineConfigs, checkKernelModules, checkMachines,
		checkTalosVersion, checkExtensions, checkKubernetesVersion, checkChartVersions, checkCiliumVersion,
		checkSecrets, checkModes, checkDisabledGates, checkFlux, checkGitURL, checkData,
	}
}

func ruleOf(kind Kind) Rule {
	all := Rules()
	return all[slices.IndexFunc(all, func(r Rule) bool { return r.Kind == kind })]
}

// validationRule is the rule for a validation that relates values, or the general one.
func validationRule(reads []string) Rule {
	for _, r := range Rules() {
		if len(reads) > 0 && slices.Contains(strings.Split(r.reads, "|"), strings.Join(reads, " ")) {
			return r
		}
	}
	return ruleOf(validation)
}

// withoutCovered drops findings that follow from another one.
func (c *cluster) withoutCovered(diags hcl.Diagnostics) hcl.Diagnostics {
	covered, arguments := map[Kind]bool{}, map[config.Argument]bool{}
	for _, d := range diags {
		if kind := RuleOf(d); kind != "" {
			arguments[ruleOf(kind).argument] = true
			for _, other := range ruleOf(kind).covers {
				covered[other] = true
			}
		}
	}
	return slices.DeleteFunc(diags, func(d *hcl.Diagnostic) bool {
		argument, is := d.Extra.(config.Argument)
		invalid := c.invalid[argument.Variable]
		argument.Variable = ""
		return covered[RuleOf(d)] || is && (arguments[argument] || invalid)
	})
}
