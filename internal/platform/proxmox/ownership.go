package proxmox

import (
	"cmp"
	"context"
	"fmt"
	"regexp"
	"slices"
	"strconv"
	"strings"

	"github.com/ephemeral-castle/castle/internal/platform"
	"github.com/ephemeral-castle/castle/internal/platform/proxmox/host"
	"github.com/ephemeral-castle/castle/internal/platform/proxmox/values"
)

// castleTag is on every virtual machine of castle's platform stages, beside the cluster's name. A pool of
// that name may replace the machine's name as a proof.
const castleTag = "castle"

// Ownership decides which guests of a range castle may delete. Three things have to agree: the range,
// castle's tag, and either a name that begins with the tag of a cluster or the pool "castle". A record or a
// key that contradicts them has priority.
type Ownership platform.Signs

// Refusals are the reasons why a guest must not be deleted; none, if it may be. Foreign answers only the
// first of them, ownership: the others have to be changed in Proxmox.
func (o Ownership) Refusals(g Guest) []string {
	switch {
	case !o.Range.Contains(g.ID):
		return []string{"outside the range " + o.Range.String()}
	case g.Hidden:
		return []string{"exists, but this API token may not see it (VM.Audit)"}
	case !g.isVM():
		return []string{"a container (" + g.Kind + "), not a virtual machine"}
	case g.Unreadable != "":
		return []string{g.Unreadable}
	}
	var why []string
	owners, contradicted := o.recorded(g)
	foreign := cmp.Or(o.foreign(g), o.underived(g))
	if len(owners) > 0 {
		foreign = o.foreign(g) // a record is more than a key
	} else if contradicted != "" {
		foreign = contradicted
	}
	if foreign != "" && !slices.Contains(o.Foreign, g.ID) {
		why = append(why, foreign)
	}
	for _, owner := range owners {
		if name, _, _ := strings.Cut(owner, "/"); o.Cluster != "" && name != o.Cluster ||
			o.Cluster == "" && len(g.missing([]string{name})) > 0 {
			why = append(why, "recorded as a machine of "+owner)
		}
	}
	lock, volume := g.Config["lock"], g.Config.Linked()
	for _, refusal := range []struct {
		applies bool
		text    string
	}{
		{values.On(g.Config["protection"]), "protected"},
		{values.On(g.Config["template"]), "a template"},
		{lock != "", "locked (" + lock + ")"},
		{g.HA, "managed by high availability"},
		{g.Replicated, "replicated"},
		{volume != "", "part of a linked clone (" + volume + ")"},
	} {
		if refusal.applies {
			why = append(why, refusal.text)
		}
	}
	return why
}

// recorded returns the clusters that record the guest as their machine, and why another record denies that.
func (o Ownership) recorded(g Guest) (owners []string, contradicted string) {
	for _, k := range o.Known {
		switch same, proved := g.matches(k.Machine); {
		case k.Machine.VM != g.ID || !proved:
		case same:
			owners = append(owners, k.Cluster)
		default:
			contradicted = fmt.Sprintf("the state of %s knows this id as another machine", k.Cluster)
		}
	}
	return owners, contradicted
}

// underived returns that the key of a cluster that the guest is tagged with did not make its uuid.
func (o Ownership) underived(g Guest) string {
	for _, tag := range g.Tags() {
		if isCastle(tag) && slices.ContainsFunc(g.Tags(), g.namedAfterOther) {
			continue // of the other cluster
		}
		if key := o.Keys[tag]; key != "" && g.Config.UUID() != values.UUIDOf(key, g.Name) {
			return "its uuid does not derive from the key that is recorded of " + tag
		}
	}
	return ""
}

// foreign returns the marks that the guest lacks to be castle's own.
func (o Ownership) foreign(g Guest) string {
	want := []string{castleTag}
	if o.Cluster != "" {
		want = append(want, o.Cluster)
	}
	if missing := g.missing(want); len(missing) > 0 {
		return "not tagged " + strings.Join(missing, ", ")
	}
	own := false
	switch other := slices.ContainsFunc(g.Tags(), g.namedAfterOther); {
	case isCastle(o.Cluster):
		own = g.isNamedAfter(castleTag) && !other
	case o.Cluster == "":
		own = other || g.Pool == castleTag
	default:
		own = g.isNamedAfter(o.Cluster) || g.Pool == castleTag
	}
	if own {
		return ""
	}
	return fmt.Sprintf("neither named after a cluster that it is tagged with nor in the pool %q", castleTag)
}

// isCastle reports whether a cluster is called castle. Every cluster's machines have its tag and may be in
// its pool, so that only their names tell them apart.
func isCastle(cluster string) bool { return strings.EqualFold(cluster, castleTag) }

func (g Guest) isNamedAfter(cluster string) bool {
	return strings.HasPrefix(strings.ToLower(g.Name), strings.ToLower(cluster)+"-")
}

func (g Guest) namedAfterOther(tag string) bool { return !isCastle(tag) && g.isNamedAfter(tag) }

var ownDisk = regexp.MustCompile(`[:/]vm-(\d+)-(?:disk-\d+|cloudinit)(?:\.\w+)?$`)

// Orphans lists the unused disks of a range, and the unreadable nodes and storages. stays returns why a
// guest will keep its id; "" if it goes or does not exist.
func (c *Client) Orphans(ctx context.Context, r platform.Range, stays func(id int) string) (
	orphans []platform.Orphan, unread []string, err error) {
	found, unread, err := disksOf(ctx, c, r)
	if err != nil || len(found) == 0 {
		return nil, unread, err
	}
	has, err := c.rightsOn(ctx, "/vms")
	if err != nil {
		return nil, unread, err
	}
	doubt := "" // why the answer is not certain
	if !has.include("VM.Audit") {
		doubt = "this API token may not see every machine (VM.Audit on /vms), and one may use it"
	}
	guests, err := c.Guests(ctx)
	if err != nil {
		return nil, unread, err
	}
	for i, g := range guests { // any may use a disk that carries another id
		if guests[i], err = c.configured(ctx, g); err != nil && KindOf(err) != Missing {
			doubt = fmt.Sprintf("%s cannot be read, and may use it", g)
		}
	}
	for _, o := range found {
		if !slices.ContainsFunc(guests, func(g Guest) bool { return g.Config.Uses(o.Volume) }) {
			o.Refused = cmp.Or(stays(o.ID), doubt)
			orphans = append(orphans, o)
		}
	}
	return orphans, unread, nil
}

// disksOf lists the disks with ids of a range on all storages of all nodes.
func disksOf(ctx context.Context, c *Client, r platform.Range) (found []platform.Orphan, unread []string,
	err error) {
	nodes, err := c.Nodes(ctx)
	if err != nil {
		return nil, nil, err
	}
	c.eachDiskStorage(ctx, nodes, func(node string, s host.Storage) error {
		volumes, err := c.Volumes(ctx, node, s.ID, "images", 0)
		for _, volume := range sortedKeys(volumes) {
			name := ownDisk.FindStringSubmatch(volume)
			if name == nil {
				continue
			}
			if id, err := strconv.Atoi(name[1]); err == nil && r.Contains(id) {
				found = append(found, platform.Orphan{
					Volume: volume, Node: node, Storage: s.ID, Size: volumes[volume], ID: id,
					Shared: s.Shared == 1,
				})
			}
		}
		return err
	}, func(kind, id string, failure error) {
		if failure != errOffline && failure != errInactive {
			err = cmp.Or(err, failure)
		}
		unread = append(unread, fmt.Sprintf("%s %s: %v; its disks are not known", kind, id, failure))
	})
	return found, unread, err
}
