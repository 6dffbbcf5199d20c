package proxmox

import (
	"context"
	"fmt"
	"net/url"
	"slices"
	"strings"
)

// rights are a token's privileges on a path. A value only tells whether the privilege is inherited.
type rights map[string]int

// rightsOn returns the token's rights on a path such as /storage/local.
func (c *Client) rightsOn(ctx context.Context, path string) (rights, error) {
	all, err := get[map[string]rights](ctx, c, "access/permissions?"+url.Values{"path": {path}}.Encode())
	return all[path], err
}

func (r rights) missing(want ...string) []string {
	return slices.DeleteFunc(slices.Clone(want), func(privilege string) bool {
		_, ok := r[privilege]
		return ok
	})
}

func (r rights) include(privilege string) bool { return len(r.missing(privilege)) == 0 }

// MissingRights lists the privileges that the token lacks to create and destroy these machines. They cover
// their ids, the storages of disks and images, the nodes and the bridge.
func MissingRights(ctx context.Context, c *Client, machines []int, nodes, disks, images []string,
	bridge string) (lacks []string, err error) {
	type need struct {
		path    string
		all, or []string
	}
	var needs []need
	for _, id := range machines {
		needs = append(needs, need{path: fmt.Sprintf("/vms/%d", id), all: []string{
			"VM.Allocate", "VM.Audit", "VM.Config.CPU", "VM.Config.Cloudinit", "VM.Config.Disk",
			"VM.Config.HWType", "VM.Config.Memory", "VM.Config.Network", "VM.Config.Options", "VM.PowerMgmt",
		}})
	}
	for _, s := range disks {
		all := []string{"Datastore.AllocateSpace", "Datastore.Audit"}
		needs = append(needs, need{path: "/storage/" + s, all: all})
	}
	for _, s := range images { // the last one deletes the image with the cluster
		all := []string{"Datastore.AllocateTemplate", "Datastore.Audit", "Datastore.Allocate"}
		needs = append(needs, need{path: "/storage/" + s, all: all})
	}
	for _, node := range nodes { // either lets a node fetch an image from a URL
		needs = append(needs,
			need{"/nodes/" + node, []string{"Sys.AccessNetwork"}, []string{"Sys.Audit", "Sys.Modify"}})
	}
	if bridge != "" {
		needs = append(needs, need{path: "/sdn/zones/localnetwork/" + bridge, all: []string{"SDN.Use"}})
	}
	for _, n := range needs {
		has, err := c.rightsOn(ctx, n.path)
		if err != nil {
			return nil, err
		}
		missing := has.missing(n.all...)
		if len(missing) == 0 || n.or != nil && len(has.missing(n.or...)) == 0 {
			continue
		}
		text := strings.Join(missing, ", ")
		if n.or != nil {
			text += " or " + strings.Join(n.or, " and ")
		}
		lacks = append(lacks, text+" on "+n.path)
	}
	return lacks, nil
}

// ExcessRights lists privileges on the whole datacenter that no cluster needs and that make the token a key
// to everything.
func ExcessRights(ctx context.Context, c *Client) ([]string, error) {
	has, err := c.rightsOn(ctx, "/")
	powerful := []string{"Permissions.Modify", "Realm.Allocate", "Realm.AllocateUser", "Sys.Console",
		"Sys.PowerMgmt", "User.Modify"}
	return slices.DeleteFunc(powerful, func(p string) bool { return !has.include(p) }), err
}

// seesDisks reports whether a storage lists all disks of a guest that is gone. A privilege on the guest
// itself may have gone with it.
func (c *Client) seesDisks(ctx context.Context, storage string, guest int) (bool, error) {
	has, err := c.rightsOn(ctx, "/storage/"+storage)
	if err != nil || has.include("Datastore.Allocate") || !has.include("Datastore.Audit") {
		return has.include("Datastore.Allocate"), err
	}
	has, err = c.rightsOn(ctx, fmt.Sprintf("/vms/%d", guest))
	return has.include("VM.Config.Disk"), err
}
