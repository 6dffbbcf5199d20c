package hcloud

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"net/url"
	"slices"
	"strconv"
	"strings"
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
	// A server's, of the library's stage: controlplane or worker.
	labelRole = "castle_role"
)

// DefaultEndpoint is the public API's address.
const DefaultEndpoint = "https://api.hetzner.cloud/v1"

// project is what a token gives access to.
type project struct {
	api *hcloud.Client
	// Interval lies between two looks at a resource, Timeout bounds the wait for one.
	interval, timeout time.Duration
}

// retries repeat requests that the API has refused for the moment, for half a minute: each second allows one.
var retries = hcloud.RetryOpts{MaxRetries: 5, BackoffFunc: hcloud.ExponentialBackoff(2, time.Second)}

// open makes a client. It makes no request. It follows no redirect, which would take the token along.
func open(a platform.Account) (*project, error) {
	endpoint, err := url.Parse(cmp.Or(a.Endpoint, DefaultEndpoint))
	if err != nil || endpoint.Host == "" || endpoint.Scheme != "https" && !isLoopback(endpoint.Hostname()) {
		return nil, fmt.Errorf("%q is not the address of an API, such as %s", a.Endpoint, DefaultEndpoint)
	}
	direct := &http.Client{Timeout: time.Minute,
		CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse }}
	return &project{interval: time.Second, timeout: 10 * time.Minute, api: hcloud.NewClient(
		hcloud.WithEndpoint(strings.TrimRight(endpoint.String(), "/")), hcloud.WithToken(a.Token),
		hcloud.WithHTTPClient(direct), hcloud.WithApplication("castle", ""),
		hcloud.WithPollOpts(hcloud.PollOpts{BackoffFunc: hcloud.ConstantBackoff(time.Second)}),
		hcloud.WithRetryOpts(retries))}, nil
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
func (r resource) ref() string {
	return fmt.Sprintf("%s %d", strings.ReplaceAll(r.kind.command(), "-", " "), r.id)
}

// refs are those of resources of a kind; 0 is none.
func refs(kind string, ids ...int64) []string {
	ids = xslices.Filter(ids, func(id int64) bool { return id != 0 })
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
	path string // of the API: servers
	only string // a filter of the API's lists
}

// command is the kind's command of the program hcloud.
func (k *kind) command() string { return strings.ReplaceAll(strings.TrimSuffix(k.path, "s"), "_", "-") }

// The types of Terraform's resources that castle treats in a way of their own.
const typeServer, typeVolume, typeBalancer = "hcloud_server", "hcloud_volume", "hcloud_load_balancer"

// kinds are those that castle's stages make, machines first, and those that may outlive them.
var kinds = []*kind{
	{typeServer, platform.Machine, "servers", ""},
	{typeBalancer, "load balancer", "load_balancers", ""},
	{typeVolume, "volume", "volumes", ""},
	{"hcloud_primary_ip", "primary IP", "primary_ips", ""},
	{"hcloud_firewall", "firewall", "firewalls", ""},
	{"hcloud_placement_group", "placement group", "placement_groups", ""},
	{"hcloud_network", "network", "networks", ""},
	{"hcloud_snapshot", "image", "images", "type=snapshot&"},
}

// kindOf returns the kind of a type of Terraform's resources; nil if it has none.
func kindOf(typ string) *kind {
	if i := slices.IndexFunc(kinds, func(k *kind) bool { return k.typ == typ }); i >= 0 {
		return kinds[i]
	}
	return nil
}

// answer has the fields of the API's answers about resources of all kinds that castle reads.
type answer struct {
	ID                int64
	Name, Description string
	Status            string
	Labels            map[string]string
	Protection        struct{ Delete bool }
	Locked            bool
	Location          struct{ Name string }
	ServerType        struct{ Name string } `json:"server_type"`
	Size              int
	Server            int64
	Assignee          int64 `json:"assignee_id"`
	Servers           []int64
	LoadBalancers     []int64 `json:"load_balancers"`
	PrivateNet        []part  `json:"private_net"`
	AppliedTo         []part  `json:"applied_to"`
	Targets, Services []part
	Subnets           []part
}

// part is an element of a list in such an answer.
type part struct {
	Server  struct{ ID int64 }
	Network int64
	Port    int    `json:"listen_port"`
	Range   string `json:"ip_range"`
}

func (a answer) of(k *kind) resource {
	r := resource{kind: k, id: a.ID, name: cmp.Or(a.Name, a.Description), labels: a.Labels,
		protected: a.Protection.Delete, location: a.Location.Name, locked: a.Locked}
	for _, s := range append(a.Services, a.Subnets...) {
		r.parts = append(r.parts, cmp.Or(s.Range, strconv.Itoa(s.Port)))
	}
	switch k.typ {
	case typeServer: // the others name it
		r.status, r.size = hcloud.ServerStatus(a.Status), a.ServerType.Name
		return r
	case typeVolume:
		r.size = fmt.Sprintf("%d GB", a.Size)
		if name := a.Labels["pvc-name"]; name != "" {
			r.size += fmt.Sprintf(", of the claim %q", a.Labels["pvc-namespace"]+"/"+name)
		}
	}
	members := append(a.Servers, a.Server, a.Assignee)
	for _, t := range append(a.Targets, a.AppliedTo...) {
		members = append(members, t.Server.ID)
	}
	networks := xslices.Map(a.PrivateNet, func(n part) int64 { return n.Network })
	r.ties = slices.Concat(refs("server", members...), refs("load balancer", a.LoadBalancers...),
		refs("network", networks...))
	return r
}

// call makes a request of the API without a body.
func (p *project) call(ctx context.Context, method, path string, answer any) (*hcloud.Response, error) {
	req, err := p.api.NewRequest(ctx, method, "/"+path, nil)
	if err != nil {
		return nil, err
	}
	return p.api.Do(req, answer)
}

// list reads all resources of some kinds. Every page is read, so what it lacks does not exist.
func (p *project) list(ctx context.Context, some []*kind) (all []resource, err error) {
	for _, k := range some {
		for page := 1; page > 0; {
			var body map[string]json.RawMessage
			var found []answer
			resp, err := p.call(ctx, http.MethodGet, fmt.Sprintf("%s?%sper_page=50&page=%d", k.path, k.only,
				page), &body)
			if err == nil {
				err = json.Unmarshal(body[k.path], &found)
			}
			isNone := func(a answer) bool { return a.ID == 0 }
			if err == nil && (found == nil || slices.ContainsFunc(found, isNone)) {
				err = errors.New("the answer lacks the list, or an id")
			}
			if err != nil {
				return nil, fmt.Errorf("list the project's %ss: %w", k.name, refused(err))
			}
			all = append(all, xslices.Map(found, func(a answer) resource { return a.of(k) })...)
			last := page
			if page = 0; resp.Meta.Pagination != nil {
				page = resp.Meta.Pagination.NextPage
			}
			if page != 0 && page <= last {
				return nil, fmt.Errorf("list the project's %ss: page %d follows page %d", k.name, page, last)
			}
		}
	}
	return all, nil
}

func servers() []*kind { return kinds[:1] }

// first returns the first resource that is so, if there is one.
func first(all []resource, is func(resource) bool) (r resource, exists bool) {
	if i := slices.IndexFunc(all, is); i >= 0 {
		return all[i], true
	}
	return r, false
}

// with finds the resource of a kind with an id.
func with(all []resource, k *kind, id int64) (resource, bool) {
	return first(all, func(r resource) bool { return r.kind == k && r.id == id })
}
