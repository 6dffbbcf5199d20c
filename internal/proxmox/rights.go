package proxmox

import (
	"context"
	"fmt"
	"maps"
	"net/http"
	"net/url"
	"slices"
	"strings"
	"time"
)

// User is the token's name without its secret: user@realm!name.
func (c *Client) User() string {
	name, _, _ := strings.Cut(c.token, "=")
	return name
}

// Wanted are the privileges that a stage needs on a path: those in All, and at
// least one set of Either.
type Wanted struct {
	Path   string
	All    []string
	Either [][]string
}

// WantedFor lists what a token needs to build and raze these machines: their ids,
// the storages of disks and of images, by node, and the bridge.
func WantedFor(machines []int, nodes, disks, images []string, bridge string) []Wanted {
	var all []Wanted
	for _, id := range machines {
		all = append(all, Wanted{Path: fmt.Sprintf("/vms/%d", id), All: []string{
			"VM.Allocate", "VM.Audit", "VM.Config.CPU", "VM.Config.Cloudinit", "VM.Config.Disk", "VM.Config.HWType", "VM.Config.Memory",
			"VM.Config.Network", "VM.Config.Options", "VM.PowerMgmt",
		}})
	}
	for _, storage := range disks {
		all = append(all, Wanted{Path: "/storage/" + storage, All: []string{"Datastore.AllocateSpace", "Datastore.Audit"}})
	}
	for _, storage := range images {
		// The last deletes the image with the cluster.
		all = append(all, Wanted{Path: "/storage/" + storage, All: []string{"Datastore.AllocateTemplate", "Datastore.Audit", "Datastore.Allocate"}})
	}
	for _, node := range nodes { // a node fetches an image from a URL for who may do either
		all = append(all, Wanted{Path: "/nodes/" + node, Either: [][]string{{"Sys.AccessNetwork"}, {"Sys.Audit", "Sys.Modify"}}})
	}
	if bridge != "" {
		all = append(all, Wanted{Path: "/sdn/zones/localnetwork/" + bridge, All: []string{"SDN.Use"}})
	}
	return all
}

// Missing lists what the token lacks of what is wanted, by path; "" where nothing.
func (c *Client) Missing(ctx context.Context, wanted []Wanted) ([]string, error) {
	var missing []string
	for _, w := range wanted {
		has, err := c.privileges(ctx, w.Path)
		if err != nil {
			return nil, err
		}
		lack := absent(has, w.All)
		if len(w.Either) > 0 && !slices.ContainsFunc(w.Either, func(set []string) bool { return len(absent(has, set)) == 0 }) {
			var ways []string
			for _, set := range w.Either {
				ways = append(ways, strings.Join(set, " and "))
			}
			lack = append(lack, strings.Join(ways, " or "))
		}
		if len(lack) > 0 {
			missing = append(missing, strings.Join(lack, ", ")+" on "+w.Path)
		}
	}
	return missing, nil
}

func absent(has map[string]int, want []string) []string {
	var lack []string
	for _, p := range want {
		if _, ok := has[p]; !ok {
			lack = append(lack, p)
		}
	}
	return lack
}

func (c *Client) privileges(ctx context.Context, on string) (map[string]int, error) {
	var all map[string]map[string]int
	err := c.get(ctx, "access/permissions?path="+url.QueryEscape(on), &all)
	return all[on], err
}

// Excess lists privileges on everything that no cluster needs and that make the
// token a key to the whole datacenter.
func (c *Client) Excess(ctx context.Context) ([]string, error) {
	has, err := c.privileges(ctx, "/")
	var excess []string
	for _, p := range slices.Sorted(maps.Keys(has)) {
		switch p {
		case "Permissions.Modify", "Realm.Allocate", "Realm.AllocateUser", "User.Modify", "Sys.Console", "Sys.PowerMgmt":
			excess = append(excess, p)
		}
	}
	return excess, err
}

// Fetchable asks a node whether it can fetch a URL; nothing is fetched.
func (c *Client) Fetchable(ctx context.Context, node, address string) error {
	return c.get(ctx, fmt.Sprintf("nodes/%s/query-url-metadata?url=%s", url.PathEscape(node), url.QueryEscape(address)), nil)
}

// Clock is what the datacenter says how late it is, with a second's accuracy; zero
// if it says nothing.
func (c *Client) Clock(ctx context.Context) (time.Time, error) {
	request, err := http.NewRequestWithContext(ctx, http.MethodGet, c.base+"version", nil)
	if err != nil {
		return time.Time{}, err
	}
	request.Header.Set("Authorization", "PVEAPIToken="+c.token)
	response, err := c.http.Do(request)
	if err != nil {
		return time.Time{}, err
	}
	defer response.Body.Close() //nolint:errcheck // it is not read
	at, err := http.ParseTime(response.Header.Get("Date"))
	if err != nil {
		return time.Time{}, nil // no reason to doubt anything
	}
	return at, nil
}
