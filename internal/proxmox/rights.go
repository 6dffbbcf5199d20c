package proxmox

import (
	"context"
	"fmt"
	"net/url"
	"slices"
	"strings"
)

// Wanted are the privileges that a stage needs on a path: at least one of the sets.
type Wanted struct {
	Path string
	Sets [][]string
}

// WantedFor lists the privileges that a token needs to create and destroy these machines. They cover their
// ids, the storages of disks and images, the nodes and the bridge.
func WantedFor(machines []int, nodes, disks, images []string, bridge string) []Wanted {
	var all []Wanted
	for _, id := range machines {
		all = append(all, Wanted{fmt.Sprintf("/vms/%d", id), [][]string{{
			"VM.Allocate", "VM.Audit", "VM.Config.CPU", "VM.Config.Cloudinit", "VM.Config.Disk",
			"VM.Config.HWType", "VM.Config.Memory", "VM.Config.Network", "VM.Config.Options", "VM.PowerMgmt",
		}}})
	}
	for _, s := range disks {
		need := []string{"Datastore.AllocateSpace", "Datastore.Audit"}
		all = append(all, Wanted{"/storage/" + s, [][]string{need}})
	}
	for _, s := range images { // the last one deletes the image with the cluster
		need := []string{"Datastore.AllocateTemplate", "Datastore.Audit", "Datastore.Allocate"}
		all = append(all, Wanted{"/storage/" + s, [][]string{need}})
	}
	for _, node := range nodes { // either set lets a node fetch an image from a URL
		either := [][]string{{"Sys.AccessNetwork"}, {"Sys.Audit", "Sys.Modify"}}
		all = append(all, Wanted{"/nodes/" + node, either})
	}
	if bridge != "" {
		all = append(all, Wanted{"/sdn/zones/localnetwork/" + bridge, [][]string{{"SDN.Use"}}})
	}
	return all
}

// MissingRights lists the wanted privileges that the token lacks, by path.
func MissingRights(ctx context.Context, c *Client, wanted []Wanted) ([]string, error) {
	var missing []string
	for _, w := range wanted {
		has, err := privileges(ctx, c, w.Path)
		if err != nil {
			return nil, err
		}
		complete := func(set []string) bool { return len(absent(has, set)) == 0 }
		if slices.ContainsFunc(w.Sets, complete) {
			continue
		}
		lack := strings.Join(absent(has, w.Sets[0]), ", ")
		if len(w.Sets) > 1 {
			var sets []string
			for _, set := range w.Sets {
				sets = append(sets, strings.Join(set, " and "))
			}
			lack = strings.Join(sets, " or ")
		}
		missing = append(missing, lack+" on "+w.Path)
	}
	return missing, nil
}

// ExcessRights lists privileges on the whole datacenter that no cluster needs and that make the token a key
// to everything.
func ExcessRights(ctx context.Context, c *Client) ([]string, error) {
	has, err := privileges(ctx, c, "/")
	return slices.DeleteFunc(sortedKeys(has), func(p string) bool {
		switch p {
		case "Permissions.Modify", "Realm.Allocate", "Realm.AllocateUser", "User.Modify", "Sys.Console",
			"Sys.PowerMgmt":
			return false
		}
		return true
	}), err
}

// privileges returns the token's privileges on a path such as /storage/local. A value only tells whether the
// privilege is inherited.
func privileges(ctx context.Context, c *Client, on string) (map[string]int, error) {
	var all map[string]map[string]int
	err := c.get(ctx, "access/permissions?path="+url.QueryEscape(on), &all)
	return all[on], err
}

func absent(has map[string]int, want []string) []string {
	return slices.DeleteFunc(slices.Clone(want), func(p string) bool {
		_, ok := has[p]
		return ok
	})
}

// allowed reports whether the token has a privilege on a path.
func allowed(ctx context.Context, c *Client, on, privilege string) (bool, error) {
	has, err := privileges(ctx, c, on)
	_, ok := has[privilege]
	return ok && err == nil, err
}

// seesDisks reports whether a storage lists all disks of a guest that is gone. A privilege on the guest
// itself may have gone with it.
func seesDisks(ctx context.Context, c *Client, storage string, guest int) (bool, error) {
	has, err := privileges(ctx, c, "/storage/"+storage)
	if err != nil || len(absent(has, []string{"Datastore.Allocate"})) == 0 {
		return err == nil, err
	}
	if len(absent(has, []string{"Datastore.Audit"})) > 0 {
		return false, nil
	}
	return allowed(ctx, c, fmt.Sprintf("/vms/%d", guest), "VM.Config.Disk")
}
