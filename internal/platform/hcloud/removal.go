package hcloud

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"maps"
	"net/http"
	"slices"
	"strings"
	"time"

	"github.com/hetznercloud/hcloud-go/v2/hcloud"
	"github.com/siderolabs/gen/xslices"
	"k8s.io/apimachinery/pkg/util/wait"

	"github.com/ephemeral-castle/castle/internal/gate"
	"github.com/ephemeral-castle/castle/internal/platform"
)

// The labels of what controllers in a cluster make: load balancers of hcloud-cloud-controller-manager
// (internal/hcops/load_balancer.go) and volumes of csi-driver (internal/driver/controller.go).
const (
	labelService   = "hcloud-ccm/service-uid"
	labelManagedBy = "managed-by"
	managedByCSI   = "csi-driver"
)

// ofController reports whether a controller in some cluster has made the resource.
func (r resource) ofController() bool {
	return r.kind.typ == typeBalancer && r.labels[labelService] != "" ||
		r.kind.typ == typeVolume && r.labels[labelManagedBy] == managedByCSI
}

// made lists what the controllers of a cluster have made: load balancers and volumes of controllers that
// work with its servers or its network, and volumes with its own uuid.
func made(all []resource, own func(ref string) bool, key string) []resource {
	return xslices.Filter(all, func(r resource) bool {
		uuid := UUIDOf(key, r.kind.typ, r.labels[labelCluster])
		return r.ofController() && (slices.ContainsFunc(r.ties, own) || key != "" && r.uuid() == uuid)
	})
}

// stays reports whether it is a volume that a destroy keeps.
func (r resource) stays() bool {
	return r.kind.typ == typeVolume && r.ofController() &&
		(r.protected || r.labels[labelReclaim] == gate.Retain)
}

// remnants lists what the cluster's controllers have made, and the resources of the state by ref.
func (c *check) remnants(ctx context.Context, known []gate.Known) ([]resource, map[string]resource, error) {
	all, err := c.project.list(ctx, kinds)
	own := map[string]resource{}
	for _, k := range known {
		if r, exists := ofState(all, k); exists {
			own[r.ref()] = r
		}
	}
	return made(all, func(ref string) bool { return own[ref].kind != nil }, c.key), own, err
}

// volumes lists those that the cluster's CSI driver has made.
func (c *check) volumes(ctx context.Context, known []gate.Known) (all []gate.Volume, err error) {
	remnants, own, err := c.remnants(ctx, known)
	running := 0 // of the control planes, less those that are off
	for _, r := range own {
		if is := r.kind.typ == typeServer && r.labels[labelRole] != "worker"; is && r.status == "off" {
			running--
		} else if is {
			running++
		}
	}
	for _, r := range remnants {
		if r.kind.typ != typeVolume {
			continue
		}
		v := gate.Volume{PersistentVolume: fmt.Sprintf("csi.hetzner.cloud/%d", r.id),
			What: r.String() + ", " + r.size,
			Keep: fmt.Sprintf("hcloud volume add-label --overwrite %d %s=Retain", r.id, labelReclaim)}
		switch {
		case r.stays():
			v.Policy = gate.Retain
		case running <= 0: // else the cluster may have changed the policy since
			v.Policy = r.labels[labelReclaim]
		}
		v.Settle = func(ctx context.Context, policy string) error {
			labels := maps.Clone(r.labels)
			labels[labelReclaim] = policy
			_, _, err := c.project.api.Volume.Update(ctx, &hcloud.Volume{ID: r.id},
				hcloud.VolumeUpdateOpts{Labels: labels})
			return refused(err)
		}
		all = append(all, v)
	}
	return all, err
}

// sweep deletes what the cluster's controllers have made, before Terraform deletes the servers and the
// network of the state. No state has these load balancers and volumes, and a subnet with members cannot be
// deleted. The servers are switched off first: a controller that runs would make them again. A volume stays
// unless it was settled: one that nobody has seen before is not deleted.
func (c *check) sweep(ctx context.Context, known []gate.Known, report func(string)) error {
	all, own, err := c.remnants(ctx, known)
	if err != nil {
		return err
	}
	var remnants []resource
	for _, r := range all {
		switch {
		case r.kind.typ == typeVolume && (r.stays() || r.labels[labelReclaim] != gate.Delete):
			report(fmt.Sprintf("keeps %s, %s", r, r.size))
		case r.protected:
			err = errors.Join(err, fmt.Errorf("%s, which a controller of the cluster has made, is protected "+
				"against deletion; if nobody needs it, %s", r, r.unprotect()))
		default:
			remnants = append(remnants, r)
		}
	}
	if err != nil || len(remnants) == 0 {
		return err
	}
	for _, ref := range slices.Sorted(maps.Keys(own)) {
		if r := own[ref]; r.status == hcloud.ServerStatusRunning {
			action, _, err := c.project.api.Server.Poweroff(ctx, &hcloud.Server{ID: r.id})
			if err := c.project.ended(ctx, action, err); err != nil {
				return fmt.Errorf("switch %s off: %w", r, err)
			}
		}
	}
	for _, r := range remnants {
		report("deletes " + r.String() + ", which a controller of the cluster has made")
		if err := c.project.remove(ctx, r); err != nil {
			return err
		}
	}
	return nil
}

// ended waits for the end of an action that a request has begun, if there is one.
func (p *project) ended(ctx context.Context, action *hcloud.Action, err error) error {
	if err == nil && action != nil {
		err = p.api.Action.WaitFor(ctx, action)
	}
	if ctx.Err() != nil {
		return context.Cause(ctx)
	}
	return err
}

// remove deletes a resource, and proves that it is gone.
func (p *project) remove(ctx context.Context, r resource) error {
	err := p.delete(ctx, r)
	if err != nil && !hcloud.IsError(err, hcloud.ErrorCodeNotFound) {
		return fmt.Errorf("delete %s: %w", r, err)
	}
	gone := func(ctx context.Context) (bool, error) {
		now, err := p.list(ctx, []*kind{r.kind})
		_, exists := with(now, r.kind, r.id)
		return !exists, err
	}
	err = wait.PollUntilContextTimeout(ctx, p.interval, p.timeout, true, gone)
	switch {
	case ctx.Err() != nil:
		return context.Cause(ctx)
	case wait.Interrupted(err):
		return fmt.Errorf("%s is still there after %s, though the API has accepted its deletion", r,
			p.timeout)
	}
	return err
}

// delete requests a deletion, and waits for its action. A volume leaves its server first.
func (p *project) delete(ctx context.Context, r resource) error {
	if r.kind.typ == typeVolume {
		now, _, err := p.api.Volume.GetByID(ctx, r.id)
		if err == nil && now != nil && now.Server != nil {
			action, _, detached := p.api.Volume.Detach(ctx, now)
			err = p.ended(ctx, action, detached)
		}
		if err != nil {
			return err
		}
	}
	if r.kind.typ == typeServer {
		result, _, err := p.api.Server.DeleteWithResult(ctx, &hcloud.Server{ID: r.id})
		return p.ended(ctx, result.Action, err)
	}
	_, err := p.call(ctx, http.MethodDelete, fmt.Sprintf("%s/%d", r.kind.path, r.id), nil)
	return err
}

// nuke deletes what has the labels of a cluster, and what its controllers have made.
type nuke struct {
	project *project
	signs   platform.Signs
	note    func(line any, text string) error
	own     map[string]resource // that the last survey found to be the cluster's, by ref
}

// Survey lists the resources that are labelled as the cluster's, in the order of their deletion.
func (n *nuke) Survey(ctx context.Context) ([]platform.Guest, error) {
	all, err := n.project.list(ctx, kinds)
	if err != nil {
		return nil, err
	}
	before := n.own
	n.own = map[string]resource{}
	for _, r := range all { // a volume that stays may have lost the server that proves it the cluster's
		if r.labels[labelCluster] == n.signs.Cluster || r.ofController() && before[r.ref()].kind != nil {
			n.own[r.ref()] = r
		}
	}
	for _, r := range made(all, n.owns, n.signs.Keys[n.signs.Cluster]) {
		n.own[r.ref()] = r
	}
	guests := []platform.Guest{}
	for _, r := range all {
		if n.owns(r.ref()) {
			g := r.listed()
			g.Refused = n.refusals(r)
			guests = append(guests, g)
		}
	}
	return guests, nil
}

func (n *nuke) owns(ref string) bool { return n.own[ref].kind != nil }

// refusals are why a resource stays that has the cluster's label.
func (n *nuke) refusals(r resource) []string {
	all := n.unproved(r)
	for _, ref := range r.ties {
		switch other := n.own[ref]; {
		case other.kind == nil:
			all = append(all, ref+", which is not the cluster's, works with it")
		case len(n.unproved(other)) > 0:
			all = append(all, ref+", which stays, works with it")
		}
	}
	return all
}

// unproved are the refusals of a resource by itself.
func (n *nuke) unproved(r resource) (all []string) {
	key := n.signs.Keys[n.signs.Cluster]
	var recorded string // the cluster that has it
	for _, m := range n.signs.Known {
		if r.kind.typ == typeServer && m.Machine.VM == int(r.id) {
			recorded = cmp.Or(recorded, m.Cluster)
		}
	}
	name, _, _ := strings.Cut(recorded, "/")
	of := r.name // the driver labels all volumes of a cluster with one uuid
	if r.ofController() {
		of = n.signs.Cluster
	}
	switch {
	case recorded != "" && name != n.signs.Cluster:
		all = append(all, "recorded as a machine of "+recorded)
	case recorded != "":
	case r.uuid() == "":
		if !r.ofController() || r.labels[labelCluster] != "" { // else what it works with proves it
			all = append(all, "has no label "+labelUUID)
		}
	case key != "" && r.uuid() != UUIDOf(key, r.kind.typ, of):
		all = append(all, "its uuid does not derive from the key of the recorded cluster")
	}
	switch {
	case r.protected:
		all = append(all, "protected: "+r.unprotect())
	case r.stays():
		all = append(all, fmt.Sprintf("kept: hcloud volume remove-label %d %s", r.id, labelReclaim))
	case r.kind.typ == typeVolume && r.ofController() && r.labels[labelReclaim] != gate.Delete:
		all = append(all, fmt.Sprintf("whether the cluster keeps its data is not known; to delete it: "+
			"hcloud volume add-label --overwrite %d %s=%s", r.id, labelReclaim, gate.Delete))
	}
	return all
}

// listed is the resource as the rest of castle knows it.
func (r resource) listed() platform.Guest {
	var tags []string
	for _, name := range slices.Sorted(maps.Keys(r.labels)) {
		if name != labelUUID {
			tags = append(tags, name+"="+r.labels[name])
		}
	}
	state := string(r.status)
	if r.kind.typ == typeVolume {
		state = r.size
	}
	return platform.Guest{ID: int(r.id), Called: r.ref(), Name: r.name, Kind: r.kind.name, Node: r.location,
		Where: r.place(), Status: string(r.status), State: state, UUID: r.uuid(), Tags: tags, Kept: r.stays()}
}

// Disks lists none. Its remarks are resources with the cluster's name and without its label.
func (n *nuke) Disks(ctx context.Context, _ func(int) string) (_ []platform.Orphan, remarks []string,
	err error) {
	all, err := n.project.list(ctx, kinds)
	for _, r := range all {
		if !n.owns(r.ref()) && (r.name == n.signs.Cluster || strings.HasPrefix(r.name, n.signs.Cluster+"-")) {
			remarks = append(remarks, r.describe()+": it is not the cluster's and stays")
		}
	}
	return nil, remarks, err
}

// Remove deletes a resource of the last survey, unless it has changed.
func (n *nuke) Remove(ctx context.Context, g platform.Guest) (platform.Remains, error) {
	was := n.own[g.Called]
	all, err := n.project.list(ctx, kinds)
	if err != nil {
		return platform.Remains{}, err
	}
	now, exists := with(all, was.kind, was.id)
	switch {
	case !exists:
		return platform.Remains{Gone: true}, nil // with its server
	case now.name != was.name || !maps.Equal(now.labels, was.labels):
		return platform.Remains{}, fmt.Errorf("%s has changed since it was listed: it is %s now", was, now)
	}
	if why := n.refusals(now); len(why) > 0 {
		return platform.Remains{}, fmt.Errorf("%s has changed since it was listed: %s", was,
			strings.Join(why, ", "))
	}
	line := func(kind string) map[string]any { // of the journal
		return map[string]any{"time": time.Now().UTC(), "kind": kind, "resource": now.String(),
			"uuid": now.uuid()}
	}
	if err = n.note(line("delete"), now.String()+": deleting"); err == nil {
		err = n.project.remove(ctx, now)
	}
	if err == nil {
		err = n.note(line("gone"), now.String()+": gone")
	}
	return platform.Remains{Gone: err == nil}, err
}

// Free deletes nothing: Disks lists none.
func (n *nuke) Free(context.Context, platform.Orphan) error { return nil }

// Remaining lists what a survey would list now.
func (n *nuke) Remaining(ctx context.Context) ([]platform.Guest, error) { return n.Survey(ctx) }

// Advice is what to do about an error of the API.
func (n *nuke) Advice(err error) string {
	switch {
	case errors.Is(err, platform.ErrRefused):
		return "set a token of the cluster's project in " + tokenVariable
	case hcloud.IsError(err, hcloud.ErrorCodeTokenReadonly):
		return "set a token with the permission Read & Write in " + tokenVariable
	case hcloud.IsError(err, hcloud.ErrorCodeLocked):
		return "an action is running on it: run the same command again when it has ended"
	}
	return "is the endpoint right (--endpoint, " + endpointVariable + ")?"
}
