package hcloud

import (
	"cmp"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"

	guid "github.com/google/uuid"

	"github.com/ephemeral-castle/castle/internal/effect"
	"github.com/ephemeral-castle/castle/internal/gate"
	"github.com/ephemeral-castle/castle/internal/platform"
	"github.com/ephemeral-castle/castle/internal/terraform"
	"github.com/ephemeral-castle/castle/internal/terraform/planned"
)

// parts are types whose objects end with another one's.
var parts = []string{"hcloud_network_subnet", "hcloud_network_route", "hcloud_server_network",
	"hcloud_load_balancer_network", "hcloud_load_balancer_service", "hcloud_load_balancer_target",
	"hcloud_firewall_attachment", "hcloud_volume_attachment"}

// Owns is true for parts of objects, too.
func (Platform) Owns(typ string) bool { return kindOf(typ) != nil || slices.Contains(parts, typ) }

// idOf is the id that a resource in a state has; 0 without one.
func idOf(attributes map[string]any) int64 {
	text, _ := attributes["id"].(string)
	id, _ := strconv.ParseInt(text, 10, 64) //nolint:errcheck // then it is 0
	return id
}

func textOf(attributes map[string]any, name string) string {
	text, _ := attributes[name].(string)
	return text
}

// ObjectsOf lists those that have an id. The API never uses an id again.
func (Platform) ObjectsOf(known []gate.Known) (all []platform.Object) {
	for _, k := range known {
		kind, id := kindOf(k.Type), idOf(k.Attributes)
		if kind == nil || id == 0 {
			continue
		}
		labels, _ := k.Attributes["labels"].(map[string]any)
		uuid, _ := labels[labelUUID].(string)
		o := platform.Object{Kind: kind.name, Node: textOf(k.Attributes, "location"),
			UUID: strings.ToLower(uuid), Name: textOf(k.Attributes, "name")}
		if k.Type == typeServer {
			o.VM = int(id)
		} else {
			o.Volume = strconv.FormatInt(id, 10)
		}
		all = append(all, o)
	}
	return all
}

func (Platform) MachineID(typ string, attributes map[string]any) (id int, isMachine bool) {
	return int(idOf(attributes)), typ == typeServer
}

// number is the id of an object; 0 if it has none.
func number(o platform.Object) int64 {
	id, _ := strconv.ParseInt(cmp.Or(o.Volume, strconv.Itoa(o.VM)), 10, 64) //nolint:errcheck // then it is 0
	return id
}

// find returns the resource of an object, if it exists.
func find(all []resource, o platform.Object) (resource, bool) {
	return first(all, func(r resource) bool { return r.kind.name == o.Kind && r.id == number(o) })
}

// kindsOf are the kinds of objects.
func kindsOf(all []platform.Object) []*kind {
	return slices.DeleteFunc(slices.Clone(kinds), func(k *kind) bool {
		return !slices.ContainsFunc(all, func(o platform.Object) bool { return o.Kind == k.name })
	})
}

// UUIDOf returns the uuid of a resource that a module derives from the cluster's key, by Terraform's uuidv5.
func UUIDOf(key, typ, name string) string {
	return guid.NewSHA1(guid.NameSpaceOID, []byte(key+"/"+typ+"/"+name)).String()
}

// Identities are those of servers. Names are unique in a project: the API refuses one that somebody has.
func (Platform) Identities() map[string]terraform.Identity {
	return map[string]terraform.Identity{
		typeServer: {ID: "{location}/{name}", UUID: "{labels." + labelUUID + "}"}}
}

// rows says what a change of each argument of a server does to it while it runs (hcloud_server in the
// provider's documentation): what needs a stopped server stops it, and leaves it off. An argument without a
// row replaces the server.
var rows = effect.Table(map[effect.Kind]string{
	effect.None: `allow_deprecated_images backups delete_protection ignore_remote_firewall_ids keep_disk
		labels name rebuild_protection shutdown_before_deletion timeouts`,
	effect.Restarts:   `iso placement_group_id public_net rescue server_type`,
	effect.Interrupts: `firewall_ids network`,
	effect.Replaces:   `datacenter id image location ssh_keys user_data`,
})

func (Platform) Effects(_ map[string]any, replaces bool, differences []planned.Difference) (
	all []effect.Effect) {
	for _, d := range differences {
		root, _, _ := strings.Cut(strings.ReplaceAll(d.Path, "[", "."), ".")
		is, known := rows[root]
		if replaces || !known {
			is = effect.Replaces
		}
		all = append(all, effect.Effect{Kind: is, Text: d.Text()})
	}
	return all
}

func (Platform) Describe(attributes map[string]any) (machine string, disks []string) {
	return fmt.Sprintf("server %s %q in %s", textOf(attributes, "id"), textOf(attributes, "name"),
		textOf(attributes, "location")), nil
}

// wanted are the resources that a preflight checks, by address.
func wanted(v gate.Values) (map[string]want, error) {
	names, others, parts := map[string]string{}, map[string]string{}, map[string][]string{}
	if err := errors.Join(v.Decode("servers", &names), v.Decode("others", &others),
		v.Decode("parts", &parts)); err != nil {
		return nil, err
	}
	all := map[string]want{}
	for key, name := range names {
		address := fmt.Sprintf("%s[%q]", v.String("resource"), key)
		all[address] = want{address: address, key: key, kind: kindOf(typeServer), name: name,
			fix: "give " + key + " another name"}
	}
	for address, name := range others {
		typ, _, _ := strings.Cut(address, ".")
		k := kindOf(typ)
		if k == nil {
			return nil, fmt.Errorf("others: %s is no resource with a name of its own", address)
		}
		all[address] = want{address: address, kind: k, name: name, parts: map[string]string{},
			fix: "give the cluster another name"}
	}
	for address, of := range parts {
		if len(of) != 2 || all[of[0]].parts == nil {
			return nil, fmt.Errorf("parts: %s is not a part of a resource in others", address)
		}
		all[of[0]].parts[address] = of[1]
	}
	return all, nil
}

// want is a resource that a stage makes.
type want struct {
	address, key string // the key is a server's
	kind         *kind
	name, fix    string            // the fix where another one has the name
	parts        map[string]string // what else is made of it: by address, a subnet or a port
}

func (Platform) LacksMachines(v gate.Values, known []gate.Known) bool {
	all, err := wanted(v)
	maps.DeleteFunc(all, func(_ string, w want) bool { return w.key == "" })
	lacks := err != nil || len(all) == 0
	for _, k := range known {
		delete(all, k.Address)
	}
	return lacks || len(all) > 0
}
