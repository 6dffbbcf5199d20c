package hcloud

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"maps"
	"regexp"
	"slices"
	"strconv"
	"strings"

	"github.com/hetznercloud/hcloud-go/v2/hcloud"
	"github.com/zclconf/go-cty/cty"

	"github.com/ephemeral-castle/castle/internal/gate"
	"github.com/ephemeral-castle/castle/internal/platform"
)

// Preflight is the name of the preflight of a stage that makes servers.
const Preflight = "hcloud_resources"

// resources refuses to create what another one has the name of. The API refuses a name that is taken, and
// deletes by ids that it never uses again, so the provider takes nothing of somebody else's. The preflight
// says so before anything is made, and finds what an interrupted run has made: a resource outside the state
// is castle's own only if its uuid is the one that derives from the cluster's key, or the one that a plan had
// before the server existed.
func resources() gate.PreflightType {
	texts := func(required bool, help string) gate.Attribute {
		return gate.Attribute{Type: cty.Map(cty.String), Required: required, Help: help}
	}
	return gate.PreflightType{
		Name: Preflight,
		Summary: "No resource that castle does not know has a name that a stage uses, and the server types " +
			"are available",
		Attributes: map[string]gate.Attribute{
			"endpoint": {Type: cty.String, Required: true,
				Help: `The API's address, "` + DefaultEndpoint + `".`},
			"api_token": {Type: cty.String, Required: true, Help: "The API token, which may read and write.",
				Valid: func(v cty.Value) error { return (Platform{}).CheckToken(v.AsString()) }},
			"servers":  texts(true, "The name of each server, by the key of its resource instance."),
			"resource": {Type: cty.String, Required: true, Help: `The resource of the servers' instances.`},
			"others":   texts(false, "The names of other resources, by their addresses."),
			"parts": {Type: cty.Map(cty.List(cty.String)), Help: "By address, subnets of networks and " +
				"services of load balancers: the address in others, and the range or the port."},
			"types": texts(false, `The type and the location of each server, by key: "cx33@fsn1".`),
			"balancers": texts(false,
				`The type and the location of each load balancer, by address: "lb11@fsn1".`),
		},
		HasMachineIDs: true,
		New:           newPreflight,
	}
}

var tokenForm = regexp.MustCompile(`^[A-Za-z0-9]{64}$`)

// CheckToken does not repeat the token in its error: it is a secret.
func (Platform) CheckToken(token string) error {
	if !tokenForm.MatchString(token) {
		return errors.New("the API token does not have 64 letters and digits, as those of Hetzner Cloud have")
	}
	return nil
}

func accountOf(v gate.Values) platform.Account {
	return platform.Account{Endpoint: v.String("endpoint"), Token: v.String("api_token")}
}

func newPreflight(name string, target gate.Target, v gate.Values) (gate.Preflight, error) {
	p, err := open(accountOf(v))
	c := &check{project: p, key: target.MachineKey, types: map[string]string{}}
	var wrong error
	c.wanted, wrong = wanted(v)
	if err = errors.Join(err, wrong, v.Decode("types", &c.types)); err != nil {
		return gate.Preflight{}, fmt.Errorf("%s: %w", name, err)
	}
	return gate.Preflight{Name: name, Inspect: c.inspect, Look: c.look, Revoke: c.sweep,
		Volumes: c.volumes}, nil
}

// check is a preflight with its arguments.
type check struct {
	project *project
	wanted  map[string]want // by address
	types   map[string]string
	key     string
}

// holder returns the resource that has the name of a wanted one, which is unique among those of its kind, and
// whether its uuid proves it castle's own.
func (c *check) holder(all []resource, w want, k gate.Known) (r resource, exists, own bool) {
	r, exists = first(all, func(r resource) bool { return r.kind == w.kind && r.name == w.name })
	return r, exists, exists && slices.Contains(c.uuidsOf(w, k.MachineID), r.uuid())
}

// uuidsOf returns the uuids that prove a resource castle's own: the recorded one, and the derived one.
func (c *check) uuidsOf(w want, recorded gate.MachineID) (all []string) {
	if recorded.UUID != "" {
		all = append(all, recorded.UUID)
	}
	if c.key != "" {
		all = append(all, UUIDOf(c.key, w.kind.typ, w.name))
	}
	return all
}

func (c *check) inspect(ctx context.Context, known []gate.Known, _ func(string)) (found gate.Inspection,
	err error) {
	writes, err := c.project.mayWrite(ctx)
	if err != nil {
		return found, err
	}
	if !writes {
		found.Unusable = append(found.Unusable, gate.Foreign{What: "the API token may only read",
			Fixes: []string{"make one with the permission Read & Write: Security > API tokens"}})
	}
	all, err := c.project.list(ctx, kinds)
	if err != nil {
		return found, err
	}
	inState := map[string]gate.Known{}
	for _, k := range known {
		inState[k.Address] = k
		if r, exists := ofState(all, k); exists {
			found.Present = append(found.Present, r.String())
			if k.Type == typeServer && r.uuid() != "" {
				found.MachineIDs = append(found.MachineIDs,
					gate.MachineID{Address: k.Address, ID: r.name, UUID: r.uuid(), Node: r.location})
			}
		}
	}
	missing := map[string]bool{}
	for _, address := range slices.Sorted(maps.Keys(c.wanted)) {
		w, k := c.wanted[address], inState[address]
		if r, exists := ofState(all, k); exists {
			found.Ours = append(found.Ours, partsOf(w, r, inState)...)
			continue
		}
		switch r, taken, own := c.holder(all, w, k); {
		case !taken:
			missing[w.key] = w.key != ""
		case own:
			found.Ours = append(append(found.Ours, c.own(w, r)), partsOf(w, r, inState)...)
			found.Present = append(found.Present, r.String())
		default:
			found.Foreign = append(found.Foreign, c.foreign(w, k, r))
		}
	}
	unavailable, err := c.unavailable(ctx, missing)
	found.Unusable = append(found.Unusable, unavailable...)
	return found, err
}

// ofState returns the resource with the id that a state has.
func ofState(all []resource, k gate.Known) (resource, bool) {
	kind, id := kindOf(k.Type), idOf(k.Attributes)
	if kind == nil || id == 0 {
		return resource{}, false
	}
	return with(all, kind, id)
}

// own is a resource that is castle's by its uuid, but not in the state.
func (c *check) own(w want, r resource) gate.Own {
	is := gate.Import{Address: w.address, ID: strconv.FormatInt(r.id, 10), What: r.String()}
	return gate.Own{Import: is, NewID: true, Running: r.status == hcloud.ServerStatusRunning,
		AsForeign: gate.Foreign{What: r.describe(), Fixes: []string{w.fix},
			Why: "its uuid is that of " + w.address + ", but no run that was killed was making it"}}
}

// partsOf are the parts of the stage's own resource that exist and are not in the state. The provider treats
// other parts that exist as made.
func partsOf(w want, r resource, inState map[string]gate.Known) (all []gate.Own) {
	for _, address := range slices.Sorted(maps.Keys(w.parts)) {
		part := w.parts[address]
		if inState[address].Type != "" || !slices.Contains(r.parts, part) {
			continue
		}
		what, id := fmt.Sprintf("%s of %s", part, r), fmt.Sprintf("%d__%s", r.id, part)
		if r.kind.typ == "hcloud_network" {
			id = fmt.Sprintf("%d-%s", r.id, part)
		}
		all = append(all, gate.Own{NewID: true, Import: gate.Import{Address: address, ID: id, What: what},
			AsForeign: gate.Foreign{What: what, Fixes: []string{w.fix},
				Why: "it is that of " + address + ", but no run that was killed was making it"}})
	}
	return all
}

// foreign is a resource with the name of a wanted one, and not its uuid.
func (c *check) foreign(w want, k gate.Known, r resource) gate.Foreign {
	f := gate.Foreign{What: r.describe(), Fixes: []string{w.fix, "remove it in Hetzner Cloud, or rename it"}}
	uuids := c.uuidsOf(w, k.MachineID)
	switch {
	case idOf(k.Attributes) != 0:
		f.Why, f.ConflictsWith = "the state knows another one under this name, which is gone", w.address
	case len(uuids) == 0 && r.labels[labelCluster] != "":
		f.Why = "no uuid is known here that proves it castle's own"
		f.Unverified, f.Marked = true, true
		f.Fixes = append(f.Fixes, "bring back the state of the stage that made the cluster's keys: the uuid "+
			"derives from them")
	case r.uuid() != "":
		f.Why, f.Marked = "its uuid is "+r.uuid()+"; it may belong to the same cluster of another state", true
	default:
		f.Why = fmt.Sprintf("it has no label %s", labelUUID)
	}
	return f
}

// unavailable lists the types that have no room in their locations, of servers that are to be made.
func (c *check) unavailable(ctx context.Context, missing map[string]bool) (all []gate.Foreign, err error) {
	if len(c.types) == 0 || !slices.Contains(slices.Collect(maps.Values(missing)), true) {
		return nil, nil
	}
	types, err := c.project.api.ServerType.All(ctx)
	if err != nil {
		return nil, fmt.Errorf("list the server types: %w", refused(err))
	}
	for _, key := range slices.Sorted(maps.Keys(c.types)) {
		name, location, _ := strings.Cut(c.types[key], "@")
		wrong := "does not exist"
		for _, t := range types {
			at := slices.IndexFunc(t.Locations,
				func(l hcloud.ServerTypeLocation) bool { return l.Location.Name == location })
			switch {
			case t.Name != name:
			case at < 0:
				wrong = "does not exist in " + cmp.Or(location, "no location")
			case !t.Locations[at].Available:
				wrong = "is not available in " + location + " now"
			default:
				wrong = ""
			}
		}
		if missing[key] && wrong != "" {
			fix := "give " + key + " another server_type or location"
			all = append(all, gate.Foreign{Fixes: []string{fix},
				What: fmt.Sprintf("server type %s, which %s has, %s", name, key, wrong)})
		}
	}
	return all, nil
}

// look reads the one resource that Terraform creates or deletes.
func (c *check) look(ctx context.Context, known gate.Known) (gate.Reading, error) {
	w, is := c.wanted[known.Address]
	if !is {
		return gate.Reading{}, nil
	}
	all, err := c.project.list(ctx, []*kind{w.kind})
	if err != nil {
		return gate.Reading{}, err
	}
	r, exists, own := c.holder(all, w, known)
	if _, recorded := ofState(all, known); recorded || own && idOf(known.Attributes) == 0 {
		return gate.Reading{Own: true}, nil
	}
	if !exists || idOf(known.Attributes) != 0 {
		return gate.Reading{}, nil
	}
	return gate.Reading{Foreign: new(c.foreign(w, known, r))}, nil
}
