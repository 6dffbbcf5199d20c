package proxmox

import (
	"cmp"
	"errors"
	"fmt"
	"maps"
	"regexp"
	"slices"
	"strings"
	"time"

	"github.com/zclconf/go-cty/cty"

	"github.com/ephemeral-castle/castle/internal/gate"
	"github.com/ephemeral-castle/castle/internal/platform"
	"github.com/ephemeral-castle/castle/internal/platform/proxmox/host"
	"github.com/ephemeral-castle/castle/internal/platform/proxmox/session"
	"github.com/ephemeral-castle/castle/internal/platform/proxmox/values"
)

// defaultResource has the virtual machines of castle's own platform stage as its instances.
const defaultResource = "proxmox_virtual_environment_vm.node"

// PreflightTypes lists the preflights that ask Proxmox.
func PreflightTypes() []gate.PreflightType { return []gate.PreflightType{vmIDs(), storages()} }

// connected adds the arguments that every preflight here takes to reach the datacenter.
func connected(attributes map[string]gate.Attribute) map[string]gate.Attribute {
	maps.Copy(attributes, map[string]gate.Attribute{
		"endpoint": {Type: cty.String, Required: true, Valid: validEndpoint,
			Help: `The API's address, such as "https://proxmox.example:8006".`},
		"api_token": {Type: cty.String, Required: true, Valid: validToken,
			Help: `The API token, "user@realm!name=secret".`},
		"insecure": {Type: cty.Bool, Help: "Accept any certificate."},
		"ca_file": {Type: cty.String,
			Help: "A certificate to trust besides the system's: PEM text or a file's path."},
	})
	return attributes
}

// vmIDs refuses to create machines where a foreign guest exists. A guest outside the state is castle's own
// only if its uuid is: the one that a plan had before the machine existed, or the one that derives from the
// cluster's key. Two people may create clusters of the same name at the same ids, so name, tags and node
// prove nothing. They tell which guest might be castle's own: nobody knows, and castle leaves it alone.
func vmIDs() gate.PreflightType {
	required := func(t cty.Type, valid func(cty.Value) error, help string) gate.Attribute {
		return gate.Attribute{Type: t, Required: true, Valid: valid, Help: help}
	}
	used := cty.Map(cty.List(cty.String))
	return gate.PreflightType{
		Name: PreflightVMIDs,
		Summary: "No virtual machine that castle does not know stands on the ids that a stage uses, and " +
			"the nodes have what its machines use",
		Attributes: connected(map[string]gate.Attribute{
			"vm_ids": required(cty.Map(cty.Number), values.ValidIDs,
				"The id of each virtual machine, by the key of its resource instance."),
			"tags": required(cty.List(cty.String), values.ValidTags,
				"The tags that every virtual machine of this cluster carries."),
			"names": {Type: cty.Map(cty.String),
				Help: "The name of each virtual machine, by key; the key itself where it is not given."},
			"node_name": {Type: cty.String,
				Help: "The node that the virtual machines belong on; any, if not given."},
			"node_names": {Type: cty.Map(cty.String),
				Help: "The node of each virtual machine, by key, where it is not node_name."},
			"pool": {Type: cty.String,
				Help: "The pool of the virtual machines; castle reports a token that may change others."},
			"storages": {Type: used, Help: "The storages of each virtual machine's disks, by key."},
			"bridges":  {Type: used, Help: "The bridges of each virtual machine's network cards, by key."},
			"pci":      {Type: used, Help: "The mappings of each virtual machine's PCI devices, by key."},
			"usb":      {Type: used, Help: "The mappings of each virtual machine's USB devices, by key."},
			"images": {Type: cty.Map(cty.String), Help: "The volume that each virtual machine's disk is " +
				"copied from, by key; empty where another stage downloads it."},
			"templates": {Type: cty.Map(cty.String), Help: "The template that each virtual machine is " +
				"cloned from, \"node/id\", by key; empty for one that is none."},
			"ha": {Type: cty.Map(cty.Bool),
				Help: "Whether each virtual machine is highly available, by key."},
			"leased": {Type: cty.Map(cty.Bool),
				Help: "Whether the guest agent of each virtual machine tells its address, by key."},
			"resource": {Type: cty.String, Valid: validResource,
				Help: "The resource of the machines' instances, \"" + defaultResource + "\" if not given."},
			"uuids_from_key": {Type: cty.Bool, Help: "Each machine has the uuid " +
				"`uuidv5(\"oid\", \"<secrets.serviceaccount_public_key_pem>/<name>\")`."},
		}),
		HasMachineIDs: true,
		Check:         checkVMIDs,
		New:           newVMIDs,
	}
}

func validEndpoint(v cty.Value) error {
	_, err := session.Host(v.AsString())
	return err
}

var tokenForm = regexp.MustCompile(`^\S+@\S+!\S+=\S+$`)

// CheckToken checks the form of an API token. The error does not repeat it: it is a secret.
func CheckToken(token string) error {
	if !tokenForm.MatchString(token) {
		return errors.New(`the API token does not look like "user@realm!name=secret"`)
	}
	return nil
}

func validToken(v cty.Value) error { return CheckToken(v.AsString()) }

var resourceForm = regexp.MustCompile(`^(module\.[\w-]+(\[[^\]]+\])?\.)*[a-z]\w*\.[\w-]+$`)

func validResource(v cty.Value) error {
	if !resourceForm.MatchString(v.AsString()) {
		return fmt.Errorf("%q is not a resource address such as %q", v.AsString(), defaultResource)
	}
	return nil
}

// checkVMIDs checks names and node_names against vm_ids.
func checkVMIDs(v gate.Values) error {
	var wrong []error
	for _, attribute := range []string{"names", "node_names"} {
		if !v.Has("vm_ids") || !v.Has(attribute) {
			continue
		}
		for _, key := range sortedKeys(v[attribute].AsValueMap()) {
			if _, ok := v["vm_ids"].AsValueMap()[key]; !ok {
				wrong = append(wrong, fmt.Errorf("%s: %q is not a key of vm_ids", attribute, key))
			}
		}
	}
	return errors.Join(wrong...)
}

// PreflightVMIDs is the name of the preflight of a stage that makes machines.
const PreflightVMIDs = "vm_ids"

// AccountOf returns the datacenter that a preflight with these values asks, and in ascending order the ids of
// the machines that it checks, if it checks any.
func AccountOf(v gate.Values) (platform.Account, []int, error) {
	ids := map[string]int{}
	if err := v.Decode("vm_ids", &ids); err != nil {
		return platform.Account{}, nil, err
	}
	return platform.Account{
		Endpoint: v.String("endpoint"), Token: v.String("api_token"), CA: v.String("ca_file"),
		Insecure: v.Bool("insecure"),
	}, slices.Sorted(maps.Values(ids)), nil
}

// ClientOf makes a client of the datacenter that a preflight with these values asks.
func ClientOf(v gate.Values) (*Client, error) {
	options, _, err := AccountOf(v)
	if err != nil {
		return nil, err
	}
	return NewClient(options)
}

// SameEndpoint reports whether two addresses are those of the same API.
func SameEndpoint(a, b string) bool {
	first, err := session.Host(a)
	second, other := session.Host(b)
	return err == nil && other == nil && strings.EqualFold(first, second)
}

func newVMIDs(name string, target gate.Target, v gate.Values) (gate.Preflight, error) {
	client, err := ClientOf(v)
	check := &vmCheck{
		client: client, resource: cmp.Or(v.String("resource"), defaultResource), node: v.String("node_name"),
		pool: v.String("pool"), derives: v.Bool("uuids_from_key"), key: target.MachineKey,
		interval: time.Second, timeout: 30 * time.Minute,
	}
	var wrong error
	check.uses, wrong = host.UsesOf(v)
	err = errors.Join(err, wrong, v.Decode("vm_ids", &check.ids), v.Decode("tags", &check.tags),
		v.Decode("names", &check.names), v.Decode("node_names", &check.nodes))
	if err != nil {
		return gate.Preflight{}, fmt.Errorf("%s: %w", name, err)
	}
	return gate.Preflight{Name: name, Inspect: check.inspect, Look: check.look, Advice: check.advice}, nil
}
