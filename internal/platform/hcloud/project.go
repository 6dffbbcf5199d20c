package hcloud

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"net/http"
	"net/url"
	"slices"
	"strconv"
	"strings"
	"sync/atomic"
	"time"

	"github.com/hetznercloud/hcloud-go/v2/hcloud"
	"github.com/siderolabs/gen/xslices"

	"github.com/ephemeral-castle/castle/internal/platform"
)

// The labels of every resource that castle's stages make. The uuid proves a resource castle's own, the
// cluster only tells people whose it is.
const (
	labelCluster = "castle_cluster"
	labelUUID    = "castle_uuid"
	// A volume's, Delete or Retain: whether a destroy deletes it.
	labelReclaim = "castle_reclaim"
)

// DefaultEndpoint is the public API's address.
const DefaultEndpoint = "https://api.hetzner.cloud/v1"

// project is what a token gives access to.
type project struct {
	api *hcloud.Client
	// Interval lies between two looks at a resource, Timeout bounds the wait for one.
	interval, timeout time.Duration
}

// open makes a client. It makes no request. The library repeats requests that the API has refused for the
// moment; it follows no redirect, which would take the token along.
func open(a platform.Account) (*project, error) {
	endpoint, err := url.Parse(cmp.Or(a.Endpoint, DefaultEndpoint))
	if err != nil || endpoint.Host == "" || endpoint.Scheme != "https" && !isLoopback(endpoint.Hostname()) {
		return nil, fmt.Errorf("%q is not the address of an API, such as %s", a.Endpoint, DefaultEndpoint)
	}
	limited := &limit{next: http.DefaultTransport}
	direct := &http.Client{Timeout: time.Minute, Transport: limited,
		CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse }}
	return &project{interval: time.Second, timeout: 10 * time.Minute, api: hcloud.NewClient(
		hcloud.WithEndpoint(strings.TrimRight(endpoint.String(), "/")), hcloud.WithToken(a.Token),
		hcloud.WithHTTPClient(direct), hcloud.WithApplication("castle", ""),
		hcloud.WithPollOpts(hcloud.PollOpts{BackoffFunc: hcloud.ConstantBackoff(time.Second)}),
		hcloud.WithRetryOpts(hcloud.RetryOpts{MaxRetries: 3, BackoffFunc: limited.pause}),
	)}, nil
}

// limit remembers the rate limit of a project, which all its tokens share: each second allows one request,
// and from RateLimit-Reset on a whole burst is allowed.
type limit struct {
	next  http.RoundTripper
	reset atomic.Int64 // in seconds since 1970; 0 while requests are answered
}

func (l *limit) RoundTrip(r *http.Request) (*http.Response, error) {
	resp, err := l.next.RoundTrip(r)
	if err == nil {
		reset, wrong := strconv.ParseInt(resp.Header.Get("RateLimit-Reset"), 10, 64)
		if wrong != nil || resp.StatusCode != http.StatusTooManyRequests {
			reset = 0
		}
		l.reset.Store(reset)
	}
	return resp, err
}

// longestPause bounds a pause: a whole burst, which may take an hour, is more than castle needs.
const longestPause = 20 * time.Second

func (l *limit) pause(int) time.Duration {
	return min(max(time.Until(time.Unix(l.reset.Load(), 0)), time.Second), longestPause)
}

func isLoopback(host string) bool { return host == "localhost" || strings.HasPrefix(host, "127.") }

// Admitted returns platform.ErrRefused if the API does not know the token.
func (p *project) Admitted(ctx context.Context) error {
	_, _, err := p.api.Location.List(ctx, hcloud.LocationListOpts{})
	return refused(err)
}

func refused(err error) error {
	switch {
	case hcloud.IsError(err, hcloud.ErrorCodeUnauthorized):
		return platform.ErrRefused
	case hcloud.IsError(err, hcloud.ErrorCodeRateLimitExceeded, hcloud.ErrorCodeTimeout,
		hcloud.ErrorCodeBadGateway, hcloud.ErrorCodeConflict, "unavailable"):
		return &busyError{err}
	}
	return err
}

// busyError is an error after which another try may succeed.
type busyError struct{ error }

func (e *busyError) Unwrap() error { return e.error }

// Transient is for the retries of a run.
func (e *busyError) Transient() bool { return true }

// mayWrite returns whether the token may change the project. It sends a request for a group without a name
// and a type, which the API never fulfills.
func (p *project) mayWrite(ctx context.Context) (bool, error) {
	_, _, err := p.api.PlacementGroup.Create(ctx, hcloud.PlacementGroupCreateOpts{Name: " ", Type: "none"})
	switch {
	case hcloud.IsError(err, hcloud.ErrorCodeTokenReadonly):
		return false, nil
	case hcloud.IsError(err, hcloud.ErrorCodeInvalidInput):
		return true, nil
	case err == nil:
		err = errors.New("the API has made a placement group without a type")
	}
	return false, refused(err)
}

// resource is one of a project's, of any kind.
type resource struct {
	kind      *kind
	id        int64
	name      string
	labels    map[string]string
	protected bool
	location  string // of a server or a volume
	status    hcloud.ServerStatus
	locked    bool     // an action is running on it
	size      string   // of a server its type, of a volume its size and its claim
	parts     []string // of a network its subnets, of a load balancer the ports of its services
	ties      []string // by ref: the servers and networks that it works with, the members of a network
}

func (r resource) uuid() string { return strings.ToLower(r.labels[labelUUID]) }

// ref is server 42.
func (r resource) ref() string { return refs(strings.ReplaceAll(r.kind.command(), "-", " "), r.id)[0] }

func refs(kind string, ids ...int64) []string {
	return xslices.Map(ids, func(id int64) string { return fmt.Sprintf("%s %d", kind, id) })
}

// String is server 42 "green-cp-01".
func (r resource) String() string { return fmt.Sprintf("%s %q", r.ref(), r.name) }

// place is in fsn1; empty for what is in no location.
func (r resource) place() string {
	if r.location == "" {
		return ""
	}
	return "in " + r.location
}

// describe adds what tells people whose it is.
func (r resource) describe() string {
	text := r.String()
	if r.status != "" {
		text += fmt.Sprintf(" %s, %s", r.place(), r.status)
	}
	if cluster := r.labels[labelCluster]; cluster != "" {
		return text + ", of the cluster " + cluster
	}
	return text + ", without a label of castle"
}

// remedy removes it by hand.
func (r resource) remedy() string { return fmt.Sprintf("hcloud %s delete %d", r.kind.command(), r.id) }

// unprotect ends the protection against deletion by hand.
func (r resource) unprotect() string {
	return fmt.Sprintf("hcloud %s disable-protection %d delete", r.kind.command(), r.id)
}

// kind is a kind of resources that exist on their own.
type kind struct {
	typ  string // of Terraform's resources
	name string // server
	list func(context.Context, *hcloud.Client) ([]resource, error)
}

// command is the kind's command of the program hcloud.
func (k *kind) command() string {
	if k.typ == "hcloud_snapshot" {
		return "image"
	}
	return strings.ReplaceAll(strings.TrimPrefix(k.typ, "hcloud_"), "_", "-")
}

// kinds are those that castle's stages make, machines first, and those that may outlive them.
var kinds = []*kind{
	{"hcloud_server", platform.Machine, func(ctx context.Context, c *hcloud.Client) ([]resource, error) {
		all, err := c.Server.All(ctx)
		return xslices.Map(all, func(v *hcloud.Server) resource {
			r := resource{id: v.ID, name: v.Name, labels: v.Labels, protected: v.Protection.Delete,
				status: v.Status, locked: v.Locked}
			if v.Location != nil {
				r.location = v.Location.Name
			}
			if v.ServerType != nil {
				r.size = v.ServerType.Name
			}
			return r
		}), err
	}},
	{"hcloud_load_balancer", "load balancer", func(ctx context.Context, c *hcloud.Client) ([]resource,
		error) {
		all, err := c.LoadBalancer.All(ctx)
		return xslices.Map(all, func(v *hcloud.LoadBalancer) resource {
			r := resource{id: v.ID, name: v.Name, labels: v.Labels, protected: v.Protection.Delete,
				parts: xslices.Map(v.Services, func(s hcloud.LoadBalancerService) string {
					return strconv.Itoa(s.ListenPort)
				})}
			for _, t := range v.Targets {
				if t.Server != nil && t.Server.Server != nil {
					r.ties = append(r.ties, refs("server", t.Server.Server.ID)...)
				}
			}
			for _, n := range v.PrivateNet {
				r.ties = append(r.ties, refs("network", n.Network.ID)...)
			}
			return r
		}), err
	}},
	{typeVolume, "volume", func(ctx context.Context, c *hcloud.Client) ([]resource, error) {
		all, err := c.Volume.All(ctx)
		return xslices.Map(all, func(v *hcloud.Volume) resource {
			r := resource{id: v.ID, name: v.Name, labels: v.Labels, protected: v.Protection.Delete,
				size: fmt.Sprintf("%d GB", v.Size)}
			if v.Location != nil {
				r.location = v.Location.Name
			}
			if name := v.Labels["pvc-name"]; name != "" {
				r.size += fmt.Sprintf(", of the claim %q", v.Labels["pvc-namespace"]+"/"+name)
			}
			if v.Server != nil {
				r.ties = refs("server", v.Server.ID)
			}
			return r
		}), err
	}},
	{"hcloud_primary_ip", "primary IP", func(ctx context.Context, c *hcloud.Client) ([]resource, error) {
		all, err := c.PrimaryIP.All(ctx)
		return xslices.Map(all, func(v *hcloud.PrimaryIP) resource {
			r := resource{id: v.ID, name: v.Name, labels: v.Labels, protected: v.Protection.Delete}
			if v.AssigneeID != 0 {
				r.ties = refs("server", v.AssigneeID)
			}
			return r
		}), err
	}},
	{"hcloud_firewall", "firewall", func(ctx context.Context, c *hcloud.Client) ([]resource, error) {
		all, err := c.Firewall.All(ctx)
		return xslices.Map(all, func(v *hcloud.Firewall) resource {
			r := resource{id: v.ID, name: v.Name, labels: v.Labels}
			for _, to := range v.AppliedTo {
				if to.Server != nil {
					r.ties = append(r.ties, refs("server", to.Server.ID)...)
				}
			}
			return r
		}), err
	}},
	{"hcloud_placement_group", "placement group", func(ctx context.Context, c *hcloud.Client) ([]resource,
		error) {
		all, err := c.PlacementGroup.All(ctx)
		return xslices.Map(all, func(v *hcloud.PlacementGroup) resource {
			return resource{id: v.ID, name: v.Name, labels: v.Labels, ties: refs("server", v.Servers...)}
		}), err
	}},
	{"hcloud_network", "network", func(ctx context.Context, c *hcloud.Client) ([]resource, error) {
		all, err := c.Network.All(ctx)
		return xslices.Map(all, func(v *hcloud.Network) resource {
			r := resource{id: v.ID, name: v.Name, labels: v.Labels, protected: v.Protection.Delete,
				parts: xslices.Map(v.Subnets,
					func(s hcloud.NetworkSubnet) string { return s.IPRange.String() })}
			for _, member := range v.Servers {
				r.ties = append(r.ties, refs("server", member.ID)...)
			}
			for _, member := range v.LoadBalancers {
				r.ties = append(r.ties, refs("load balancer", member.ID)...)
			}
			return r
		}), err
	}},
	{"hcloud_snapshot", "image", func(ctx context.Context, c *hcloud.Client) ([]resource, error) {
		all, err := c.Image.AllWithOpts(ctx,
			hcloud.ImageListOpts{Type: []hcloud.ImageType{hcloud.ImageTypeSnapshot}})
		return xslices.Map(all, func(v *hcloud.Image) resource {
			return resource{id: v.ID, name: cmp.Or(v.Name, v.Description), labels: v.Labels,
				protected: v.Protection.Delete}
		}), err
	}},
}

// typeServer is the type of Terraform's resources that are machines.
const typeServer, typeVolume = "hcloud_server", "hcloud_volume"

// kindOf returns the kind of a type of Terraform's resources; nil if it has none.
func kindOf(typ string) *kind {
	i := slices.IndexFunc(kinds, func(k *kind) bool { return k.typ == typ })
	if i < 0 {
		return nil
	}
	return kinds[i]
}

// list reads all resources of some kinds. Every page is read, so what it lacks does not exist.
func (p *project) list(ctx context.Context, some []*kind) ([]resource, error) {
	var all []resource
	for _, k := range some {
		found, err := k.list(ctx, p.api)
		if err != nil {
			return nil, fmt.Errorf("list the project's %ss: %w", k.name,
				refused(err))
		}
		for i := range found {
			found[i].kind = k
		}
		all = append(all, found...)
	}
	return all, nil
}

func servers() []*kind { return kinds[:1] }

// with finds the resource of a kind with an id.
func with(all []resource, k *kind, id int64) (resource, bool) {
	i := slices.IndexFunc(all, func(r resource) bool { return r.kind == k && r.id == id })
	if i < 0 {
		return resource{}, false
	}
	return all[i], true
}

// named finds the resource of a kind with a name, which is unique in a project.
func named(all []resource, k *kind, name string) (resource, bool) {
	i := slices.IndexFunc(all, func(r resource) bool { return r.kind == k && r.name == name })
	if i < 0 {
		return resource{}, false
	}
	return all[i], true
}
