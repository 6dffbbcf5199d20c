package proxmox

import (
	"context"
	"encoding/json"
	"fmt"
	"maps"
	"net/url"
	"regexp"
	"slices"
	"strconv"
	"strings"
)

// Guest is one line of the cluster's list of virtual machines and containers.
type Guest struct {
	ID     int    `json:"vmid"`
	Kind   string `json:"type"` // qemu or lxc
	Node   string `json:"node"`
	Name   string `json:"name"`
	Status string `json:"status"` // running, stopped, unknown
	Tags   string `json:"tags"`
	Lock   string `json:"lock"`
	Pool   string `json:"pool"`
	// HAState is set for a guest that the high-availability stack manages.
	HAState string  `json:"hastate"`
	Uptime  float64 `json:"uptime"` // in seconds, of one that runs
}

// Admitted asks whether the datacenter takes the token at all.
func (c *Client) Admitted(ctx context.Context) error { return c.get(ctx, "version", nil) }

// Guests lists the guests that the token may see. One that is not listed may
// exist all the same: ask Taken.
func (c *Client) Guests(ctx context.Context) ([]Guest, error) {
	var all []Guest
	err := c.get(ctx, "cluster/resources?type=vm", &all)
	return all, err
}

// Taken reports whether any guest has this id, seen by the token or not,
// containers included.
func (c *Client) Taken(ctx context.Context, id int) (bool, error) {
	err := c.get(ctx, "cluster/nextid?vmid="+strconv.Itoa(id), nil)
	if IsTaken(err) {
		return true, nil
	}
	return false, err
}

// Config is a virtual machine's configuration. Options that are numbers in the
// API are strings here.
type Config map[string]string

// UnmarshalJSON accepts strings and numbers.
func (c *Config) UnmarshalJSON(data []byte) error {
	var raw map[string]any
	decoder := json.NewDecoder(strings.NewReader(string(data)))
	decoder.UseNumber()
	if err := decoder.Decode(&raw); err != nil {
		return err
	}
	*c = Config{}
	for key, value := range raw {
		(*c)[key] = fmt.Sprint(value)
	}
	return nil
}

// Tags are the machine's tags, in Proxmox' order.
func (c Config) Tags() []string { return splitTags(c["tags"]) }

func splitTags(tags string) []string {
	return strings.FieldsFunc(tags, func(r rune) bool { return r == ';' || r == ',' || r == ' ' })
}

// MACs are the addresses of the machine's network cards, in upper case.
func (c Config) MACs() []string {
	var all []string
	for i := range 32 {
		first, _, _ := strings.Cut(c["net"+strconv.Itoa(i)], ",")
		if _, mac, ok := strings.Cut(first, "="); ok {
			all = append(all, strings.ToUpper(mac))
		}
	}
	return all
}

var driveOption = regexp.MustCompile(`^(ide|sata|scsi|virtio|efidisk|tpmstate|unused)\d+$`)

// UUID is the machine's own, which it keeps for its whole life: Proxmox makes one
// up for every machine and every clone. Empty if the configuration has none.
func (c Config) UUID() string {
	for property := range strings.SplitSeq(c["smbios1"], ",") {
		if uuid, ok := strings.CutPrefix(property, "uuid="); ok {
			return strings.ToLower(uuid)
		}
	}
	return ""
}

// Volumes are the volumes that the machine's drives name, attached or not, in
// the order of their options' names. Empty drives are left out.
func (c Config) Volumes() []string {
	var all []string
	for _, key := range slices.Sorted(maps.Keys(c)) {
		volume, _, _ := strings.Cut(strings.TrimPrefix(c[key], "file="), ",")
		if driveOption.MatchString(key) && strings.Contains(volume, ":") {
			all = append(all, volume)
		}
	}
	return all
}

// Config reads a virtual machine's configuration, as it will be after pending
// changes.
func (c *Client) Config(ctx context.Context, node string, id int) (Config, error) {
	var config Config
	err := c.get(ctx, fmt.Sprintf("nodes/%s/qemu/%d/config", url.PathEscape(node), id), &config)
	return config, err
}

// Busy reports whether a task that the token may see is working on a guest.
func (c *Client) Busy(ctx context.Context, node string, id int) (bool, error) {
	var tasks []struct {
		ID string `json:"id"`
	}
	path := fmt.Sprintf("nodes/%s/tasks?source=active&vmid=%d", url.PathEscape(node), id)
	err := c.get(ctx, path, &tasks)
	return len(tasks) > 0, err
}
