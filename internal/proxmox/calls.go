package proxmox

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"net/url"
	"strconv"
	"strings"
	"time"
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
}

// Guests lists the guests that the token may see. One that is not listed may
// exist all the same: ask Taken.
func (c *Client) Guests(ctx context.Context) ([]Guest, error) {
	var all []Guest
	err := c.do(ctx, http.MethodGet, "cluster/resources?type=vm", nil, &all)
	return all, err
}

// Taken reports whether any guest has this id, seen by the token or not,
// containers included.
func (c *Client) Taken(ctx context.Context, id int) (bool, error) {
	err := c.do(ctx, http.MethodGet, "cluster/nextid?vmid="+strconv.Itoa(id), nil, nil)
	if IsTaken(err) {
		return true, nil
	}
	return false, err
}

// Version returns the release of the node that answers: "9.1.5".
func (c *Client) Version(ctx context.Context) (string, error) {
	var v struct {
		Version string `json:"version"`
	}
	err := c.do(ctx, http.MethodGet, "version", nil, &v)
	return v.Version, err
}

// Permissions returns the token's effective privileges by path.
func (c *Client) Permissions(ctx context.Context) (map[string]map[string]int, error) {
	var all map[string]map[string]int
	err := c.do(ctx, http.MethodGet, "access/permissions", nil, &all)
	return all, err
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

func guestPath(node string, id int, rest string) string {
	return fmt.Sprintf("nodes/%s/qemu/%d%s", url.PathEscape(node), id, rest)
}

// Config reads a virtual machine's configuration, as it will be after pending
// changes.
func (c *Client) Config(ctx context.Context, node string, id int) (Config, error) {
	var config Config
	err := c.do(ctx, http.MethodGet, guestPath(node, id, "/config"), nil, &config)
	return config, err
}

// Status returns running or stopped.
func (c *Client) Status(ctx context.Context, node string, id int) (string, error) {
	var s struct {
		Status string `json:"status"`
	}
	err := c.do(ctx, http.MethodGet, guestPath(node, id, "/status/current"), nil, &s)
	return s.Status, err
}

// Stop pulls the plug of a virtual machine and waits for the task.
func (c *Client) Stop(ctx context.Context, node string, id int) error {
	var upid string
	if err := c.do(ctx, http.MethodPost, guestPath(node, id, "/status/stop"), url.Values{}, &upid); err != nil {
		return err
	}
	return c.Wait(ctx, node, upid)
}

// Delete removes a stopped virtual machine, its own disks and what refers to
// it, and waits for the task. Volumes that merely carry its id are left alone.
func (c *Client) Delete(ctx context.Context, node string, id int) error {
	var upid string
	if err := c.do(ctx, http.MethodDelete, guestPath(node, id, "?purge=1&destroy-unreferenced-disks=0"), nil, &upid); err != nil {
		return err
	}
	return c.Wait(ctx, node, upid)
}

// Busy reports whether a task that the token may see is working on a guest.
func (c *Client) Busy(ctx context.Context, node string, id int) (bool, error) {
	var tasks []struct {
		ID string `json:"id"`
	}
	path := fmt.Sprintf("nodes/%s/tasks?source=active&vmid=%d", url.PathEscape(node), id)
	err := c.do(ctx, http.MethodGet, path, nil, &tasks)
	return len(tasks) > 0, err
}

// poll is how often a task is asked about.
const poll = time.Second

// Wait returns when a task is over, with the task's own error if it failed.
func (c *Client) Wait(ctx context.Context, node, upid string) error {
	path := fmt.Sprintf("nodes/%s/tasks/%s/status", url.PathEscape(node), url.PathEscape(upid))
	for {
		var task struct{ Status, ExitStatus string }
		if err := c.do(ctx, http.MethodGet, path, nil, &task); err != nil {
			return err
		}
		if task.Status == "stopped" {
			if task.ExitStatus == "OK" || strings.HasPrefix(task.ExitStatus, "WARNINGS:") {
				return nil
			}
			return fmt.Errorf("proxmox: task %s: %w", upid, errors.New(task.ExitStatus))
		}
		if err := sleep(ctx, poll); err != nil {
			return fmt.Errorf("proxmox: task %s: %w", upid, err)
		}
	}
}

func sleep(ctx context.Context, d time.Duration) error {
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-timer.C:
		return nil
	case <-ctx.Done():
		return context.Cause(ctx)
	}
}
