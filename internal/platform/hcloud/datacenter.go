package hcloud

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"time"

	"github.com/hetznercloud/hcloud-go/v2/hcloud"
	"k8s.io/apimachinery/pkg/util/wait"

	"github.com/ephemeral-castle/castle/internal/event"
	"github.com/ephemeral-castle/castle/internal/gate"
	"github.com/ephemeral-castle/castle/internal/platform"
	"github.com/ephemeral-castle/castle/internal/terraform"
)

// The methods of project answer as platform.Datacenter says.
var _ platform.Datacenter = (*project)(nil)

func (p *project) Name() string { return Platform{}.Name() }

// TokenExpiry is never: tokens of Hetzner Cloud are valid until they are deleted.
func (p *project) TokenExpiry(context.Context) (time.Time, string, error) {
	return time.Time{}, "", nil
}

// Gone waits while an action is running on a server that still exists: it may be its deletion.
func (p *project) Gone(ctx context.Context, all []platform.Object, report func(string)) ([]event.OwnedObject,
	error) {
	reported := map[string]bool{}
	var objects []event.OwnedObject
	settled := func(ctx context.Context) (done bool, _ error) {
		found, err := p.list(ctx, kindsOf(all))
		objects, done = proved(all, found, err), true
		for _, o := range all {
			r, exists := find(found, o)
			if !exists || !r.locked {
				continue
			}
			done = false
			if !reported[r.ref()] {
				reported[r.ref()] = true
				report(r.String() + ": an action is running on it; waiting for its end")
			}
		}
		return done, nil
	}
	err := wait.PollUntilContextTimeout(ctx, p.interval, p.timeout, true, settled)
	if err != nil && ctx.Err() != nil {
		return objects, context.Cause(ctx)
	}
	return objects, nil
}

// Now is Gone without waiting.
func (p *project) Now(ctx context.Context, all []platform.Object) []event.OwnedObject {
	found, err := p.list(ctx, kindsOf(all))
	return proved(all, found, err)
}

// proved compares objects with the project's. Without an answer, none is gone.
func proved(all []platform.Object, found []resource, unread error) (objects []event.OwnedObject) {
	for _, o := range all {
		e := event.OwnedObject{Kind: o.Kind, ID: cmp.Or(o.Name, o.ID()), Gone: true}
		if o.Node != "" {
			e.Where = "location " + o.Node
		}
		r, exists := find(found, o)
		switch {
		case unread != nil:
			e.Gone, e.Reason = false, "not checked: "+unread.Error()
		case exists:
			e.Gone, e.Reason, e.Fix = false, "still there", r.remedy()
		}
		objects = append(objects, e)
	}
	return objects
}

// Facts reads how the servers among known are now.
func (p *project) Facts(ctx context.Context, known []gate.Known) ([]platform.Fact, error) {
	known = slices.DeleteFunc(slices.Clone(known), func(k gate.Known) bool {
		return k.Type != typeServer || idOf(k.Attributes) == 0
	})
	if len(known) == 0 {
		return nil, nil
	}
	all, err := p.list(ctx, servers())
	if err != nil {
		return nil, err
	}
	var facts []platform.Fact
	for _, k := range known {
		key, _ := terraform.KeyOf(k.Address)
		f := platform.Fact{Key: cmp.Or(key, textOf(k.Attributes, "name")), ID: int(idOf(k.Attributes)),
			Called: refs("server", idOf(k.Attributes))[0], Status: "absent"}
		if r, exists := ofState(all, k); exists {
			f.Node, f.Where, f.UUID, f.Status = r.location, r.place(), r.uuid(), string(r.status)
			if recorded := k.MachineID.UUID; recorded != "" && recorded != f.UUID {
				f.Differ("has lost its label %s = %s", labelUUID, recorded)
			}
		} else {
			f.Differ("does not exist any more")
		}
		if f.Status == "off" { // the provider has no argument for it
			f.Status, f.ByRollout = "stopped", true
		}
		facts = append(facts, f)
	}
	return facts, nil
}

// shutdownTime bounds a guest's own shutdown. Talos first ends the pods that a drain leaves.
const shutdownTime = 5 * time.Minute

// Restart shuts a server down and starts it. Its id proves it, because no other server ever gets it.
func (p *project) Restart(ctx context.Context, m platform.Object, say func(string)) error {
	server := &hcloud.Server{ID: int64(m.VM)}
	step := func(what string, request func(context.Context, *hcloud.Server) (*hcloud.Action, *hcloud.Response,
		error)) error {
		say(fmt.Sprintf("server %d %s", m.VM, what))
		action, _, err := request(ctx, server)
		return p.ended(ctx, action, err)
	}
	isOff := func(ctx context.Context) (bool, error) {
		now, _, err := p.api.Server.GetByID(ctx, server.ID)
		if err == nil && now == nil {
			err = errors.New("it does not exist any more")
		}
		return err == nil && now.Status == hcloud.ServerStatusOff, err
	}
	off, err := isOff(ctx)
	if err == nil && !off {
		if err = step("shuts down", p.api.Server.Shutdown); err == nil {
			err = wait.PollUntilContextTimeout(ctx, p.interval, shutdownTime, true, isOff)
		}
		if wait.Interrupted(err) && ctx.Err() == nil {
			err = step("does not shut down; it is switched off", p.api.Server.Poweroff)
		}
	}
	if err == nil {
		err = step("starts", p.api.Server.Poweron)
	}
	if err != nil && ctx.Err() == nil {
		err = fmt.Errorf("server %d: %w", m.VM, err)
	}
	return err
}

// Complete returns the objects as they are: each has an entry in the state, and no server moves.
func (p *project) Complete(_ context.Context, all []platform.Object) []platform.Object { return all }

// Blocked lists the objects that are protected against deletion.
func (p *project) Blocked(ctx context.Context, all []platform.Object) (blocked []event.OwnedObject,
	err error) {
	found, err := p.list(ctx, kindsOf(all))
	for _, o := range all {
		if r, exists := find(found, o); exists && r.protected {
			blocked = append(blocked, event.OwnedObject{Kind: o.Kind, ID: cmp.Or(o.Name, o.ID()),
				Reason: "protected against deletion", Fix: r.unprotect()})
		}
	}
	return blocked, err
}

// FileUser returns nobody: no stage makes files in a project.
func (*project) FileUser(context.Context, string, string, []platform.Object) (string, error) {
	return "", nil
}

// Unrecorded lists the resources with the cluster's label that are none of the known ones. While servers of
// the cluster exist, volumes with it are those of the CSI driver.
func (p *project) Unrecorded(ctx context.Context, cluster string, _ gate.Values, known []gate.Known) (
	machines []platform.Guest, unseen []int, err error) {
	all, err := p.list(ctx, kinds)
	alive := slices.ContainsFunc(known, func(k gate.Known) bool {
		r, exists := ofState(all, k)
		return exists && r.kind.typ == typeServer
	})
	for _, r := range all {
		isIt := func(k gate.Known) bool {
			id := idOf(k.Attributes) // 0 while a run is creating it
			return kindOf(k.Type) == r.kind && (id == r.id || id == 0 && r.kind.typ != typeServer) ||
				k.MachineID.ID == strconv.FormatInt(r.id, 10) ||
				k.MachineID.UUID != "" && k.MachineID.UUID == r.uuid()
		}
		ofOthers := r.labels[labelCluster] != cluster || alive && r.ofController()
		if !ofOthers && !slices.ContainsFunc(known, isIt) {
			machines = append(machines, r.listed())
		}
	}
	return machines, nil, err
}
