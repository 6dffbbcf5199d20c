package castle

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"slices"
	"strings"

	"github.com/ephemeral-castle/castle/internal/atomicfile"
	"github.com/ephemeral-castle/castle/internal/event"
	"github.com/ephemeral-castle/castle/internal/gate"
	"github.com/ephemeral-castle/castle/internal/process"
	"github.com/ephemeral-castle/castle/internal/proxmox"
)

// prove asks what of a stage is still there: the datacenter for what its
// resources stood for, the recorded preflights, and the state. Nothing is forgotten
// before all of it is gone, and what cannot be asked is not.
func (r *destruction) prove(ctx context.Context, d *Doomed) error {
	dir := r.dir.Stage(d.Record.Name)
	st, err := dir.State()
	if err != nil {
		return err
	}
	d.state = st
	traces, err := ownedBy(dir)
	if err != nil {
		return err
	}
	things, err := r.traced(ctx, d, proxmox.Merge(traces, proxmox.OwnedBy(known(st))...))
	if err != nil {
		return err
	}
	err = r.inspectRecorded(ctx, d, func(_ string, f gate.Inspection) {
		if slices.ContainsFunc(things, func(t event.OwnedObject) bool { return t.Kind == proxmox.Machine && !t.Gone }) {
			return // it says the same
		}
		if things = append(things, f.Proof...); len(f.Proof) > 0 {
			return
		}
		for _, what := range f.Present {
			things = append(things, event.OwnedObject{Kind: "machine", ID: what, Reason: "still there", Fix: "remove it in Proxmox"})
		}
	})
	if ctx.Err() != nil {
		return context.Cause(ctx)
	}
	if err != nil && all(things, func(t event.OwnedObject) bool { return t.Gone }) {
		things = append(things, event.OwnedObject{Kind: "machines", ID: "of stage " + d.Record.Name, Reason: "not proved: " + err.Error()})
	}
	if !d.Collapses {
		for _, res := range known(st) {
			things = append(things, event.OwnedObject{Kind: "resource", ID: res.Address, Reason: "Terraform has it in its state"})
		}
	}
	return r.keep(d.Record.Name, things)
}

func all[T any](list []T, is func(T) bool) bool {
	return !slices.ContainsFunc(list, func(x T) bool { return !is(x) })
}

// traced asks the datacenter for what the stage's resources stood for.
func (r *destruction) traced(ctx context.Context, d *Doomed, traces []proxmox.Owned) (things []event.OwnedObject, err error) {
	if len(traces) == 0 {
		return nil, nil
	}
	client, err := r.datacenter(d)
	if err != nil {
		return []event.OwnedObject{{Kind: "stage", ID: d.Record.Name, Reason: "what it had in Proxmox is not proved gone: " + err.Error()}}, nil
	}
	err = r.step(d.Record.Name, d.Record.Layer, "proof", func() error {
		things, err = proxmox.Search{Client: client}.Gone(ctx, traces, r.notice)
		return err
	})
	return things, err
}

// keep notes what was found of a stage for the receipt. What is left is an error.
func (r *destruction) keep(stage string, things []event.OwnedObject) error {
	r.noting.Lock()
	defer r.noting.Unlock()
	var left []event.OwnedObject
	for _, t := range things {
		t.Stage, t.Reason = stage, r.masker.Hide(t.Reason)
		r.note(t)
		if !t.Gone {
			left = append(left, t)
		}
	}
	if len(left) > 0 {
		return &LeftoverError{Things: left}
	}
	return r.retain()
}

// forgotten notes that a stage is gone with its state, and with the cluster the
// files that led to it.
func (r *destruction) forgotten(d *Doomed, how string) error {
	name := d.Record.Name
	err := r.removed(name, "state", how, r.dir.Stage(name).StatePath())
	if d.Record.EndsCluster {
		kubeconfigs, talosconfigs := r.exports()
		err = errors.Join(err, r.removed(name, "kubeconfig", "", kubeconfigs...), r.removed(name, "talosconfig", "", talosconfigs...))
	}
	r.noting.Lock()
	defer r.noting.Unlock()
	r.gone[name] = true
	return err
}

// removed notes which of these files are gone.
func (r *destruction) removed(stage, kind, how string, paths ...string) error {
	var things []event.OwnedObject
	for _, path := range paths {
		t := event.OwnedObject{Kind: kind, ID: path, Gone: true, Reason: how}
		if _, err := os.Lstat(path); !errors.Is(err, fs.ErrNotExist) {
			t.Gone, t.Reason, t.Fix = false, "still there", "rm "+process.Quote(path)
		}
		things = append(things, t)
	}
	return r.keep(stage, things)
}

// receipt writes what the run has proved, and tells it in a line. err is how the
// walk ended.
func (r *destruction) receipt(doomed []*Doomed, err error) error {
	if len(r.things) == 0 && len(doomed) == 0 {
		return errors.Join(err, r.dir.RemoveLeftovers()) // there was nothing to prove
	}
	rec := &event.Receipt{Run: r.id, Cluster: r.Name(), Objects: r.things, Kept: []event.KeptStage{}, Unverified: r.unasked}
	rec.Proved = err == nil && all(rec.Objects, func(t event.OwnedObject) bool { return t.Gone })
	if rec.Objects == nil {
		rec.Objects = []event.OwnedObject{}
	}
	if rec.Unverified == nil {
		rec.Unverified = []string{}
	}
	for _, d := range r.all {
		name, why := d.Record.Name, "not selected"
		going := slices.ContainsFunc(doomed, func(x *Doomed) bool { return x.Record.Name == name })
		switch {
		case going && r.gone[name]:
			continue
		case going:
			why = "not proved gone"
		case d.Record.Persistent:
			why = "persistent"
		}
		rec.Kept = append(rec.Kept, event.KeptStage{Stage: name, Reason: why})
	}
	data, err := json.MarshalIndent(rec, "", "  ")
	if err != nil {
		return err
	}
	path := r.files.ReceiptPath()
	if err := atomicfile.Write(path, append(data, '\n')); err != nil {
		return err
	}
	if rec.Proved {
		if err := errors.Join(r.dir.RemoveLeftovers(), r.dir.Proof().Clear()); err != nil {
			return err
		}
	}
	r.emit(event.Event{Kind: event.Receipted, Text: summary(rec) + "; receipt in " + path, Receipt: rec})
	return nil
}

// summary is a receipt in one line.
func summary(rec *event.Receipt) string {
	var gone, left []event.OwnedObject
	for _, t := range rec.Objects {
		if t.Gone {
			gone = append(gone, t)
		} else {
			left = append(left, t)
		}
	}
	var parts []string
	switch {
	case rec.Proved:
		parts = append(parts, "Gone: "+tally(gone)+": proved")
	case len(left) > 0:
		parts = append(parts, "Not proved gone: "+tally(left))
		fallthrough
	default:
		if len(gone) > 0 {
			parts = append(parts, "gone: "+tally(gone))
		}
	}
	if n := len(rec.Unverified); n == 1 {
		parts = append(parts, "on Terraform's word alone: 1 resource")
	} else if n > 1 {
		parts = append(parts, fmt.Sprintf("on Terraform's word alone: %d resources", n))
	}
	stays := map[string][]string{}
	for _, s := range rec.Kept {
		stays[s.Reason] = append(stays[s.Reason], s.Stage)
	}
	for _, s := range rec.Kept {
		if names := stays[s.Reason]; names != nil {
			parts = append(parts, "staying ("+s.Reason+"): "+strings.Join(names, ", "))
			delete(stays, s.Reason)
		}
	}
	return strings.Join(parts, "; ")
}

// tally counts things by kind, in the order in which the kinds appear.
func tally(things []event.OwnedObject) string {
	count, kinds := map[string]int{}, []string{}
	for _, t := range things {
		if count[t.Kind]++; count[t.Kind] == 1 {
			kinds = append(kinds, t.Kind)
		}
	}
	for i, kind := range kinds {
		switch n := count[kind]; {
		case kind == "kubeconfig" || kind == "talosconfig":
		case n == 1:
			kinds[i] = "1 " + kind
		default:
			kinds[i] = fmt.Sprintf("%d %ss", n, kind)
		}
	}
	return strings.Join(kinds, ", ")
}
