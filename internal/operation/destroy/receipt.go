package destroy

import (
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"slices"
	"strings"
	"sync"

	"github.com/ephemeral-castle/castle/internal/atomicfile"
	"github.com/ephemeral-castle/castle/internal/cluster"
	"github.com/ephemeral-castle/castle/internal/event"
	"github.com/ephemeral-castle/castle/internal/process"
	"github.com/ephemeral-castle/castle/internal/run"
)

// receipt collects the objects of a destroy and whether they are gone. castle writes it before it untracks
// anything: a stage without its state cannot be verified again, and a killed run would lose its results.
type receipt struct {
	run *run.Run

	mu         sync.Mutex
	objects    []event.OwnedObject
	unverified []string        // Terraform says it deleted them, and castle cannot check
	gone       map[string]bool // stages
}

func every[T any](list []T, is func(T) bool) bool {
	return !slices.ContainsFunc(list, func(x T) bool { return !is(x) })
}

// note records the objects of a stage. A remaining object is an error.
func (r *receipt) note(stage string, objects []event.OwnedObject) error {
	r.mu.Lock()
	defer r.mu.Unlock()
	var left []event.OwnedObject
	for _, t := range objects {
		t.Stage, t.Reason = stage, r.run.Cluster.Masker.Hide(t.Reason)
		r.noteObject(t)
		if !t.Gone {
			left = append(left, t)
		}
	}
	if len(left) > 0 {
		return &run.LeftoverError{Objects: left}
	}
	return r.save()
}

// noteRemoved records that a stage is gone with its state, and for the platform that
// the exported files are gone.
func (r *receipt) noteRemoved(d *Stage, how string) error {
	name := d.Record.Name
	err := r.removed(name, "state", how, r.run.Cluster.Dir.Stage(name).StatePath())
	if d.Record.EndsCluster {
		kubeconfigs, talosconfigs := r.run.Cluster.Exports()
		err = errors.Join(err, r.removed(name, "kubeconfig", "", kubeconfigs...),
			r.removed(name, "talosconfig", "", talosconfigs...))
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	r.gone[name] = true
	return err
}

// removed records which of these files are gone.
func (r *receipt) removed(stage, kind, how string, paths ...string) error {
	var objects []event.OwnedObject
	for _, path := range paths {
		t := event.OwnedObject{Kind: kind, ID: path, Gone: true, Reason: how}
		if _, err := os.Lstat(path); !errors.Is(err, fs.ErrNotExist) {
			t.Gone, t.Reason, t.Fix = false, "still there", "rm "+process.Quote(path)
		}
		objects = append(objects, t)
	}
	return r.note(stage, objects)
}

// write writes the receipt and reports it in a line. err is how the walk ended.
func (r *receipt) write(all, destroyed []*Stage, err error) error {
	if len(r.objects) == 0 && len(destroyed) == 0 {
		return errors.Join(err, r.run.Cluster.Dir.RemoveLeftovers()) // there was nothing to prove
	}
	rec := &event.Receipt{
		Run:        r.run.ID,
		Cluster:    r.run.Cluster.Name(),
		Objects:    r.objects,
		Kept:       []event.KeptStage{},
		Unverified: r.unverified,
	}
	rec.Proved = err == nil && every(rec.Objects, func(t event.OwnedObject) bool { return t.Gone })
	if rec.Objects == nil {
		rec.Objects = []event.OwnedObject{}
	}
	if rec.Unverified == nil {
		rec.Unverified = []string{}
	}
	for _, d := range all {
		name, why := d.Record.Name, "not selected"
		going := slices.ContainsFunc(destroyed, func(x *Stage) bool { return x.Record.Name == name })
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
	path := r.run.Files.ReceiptPath()
	if err := atomicfile.Write(path, append(data, '\n')); err != nil {
		return err
	}
	if rec.Proved {
		if err := errors.Join(r.run.Cluster.Dir.RemoveLeftovers(),
			r.run.Cluster.Dir.Proof().Clear()); err != nil {
			return err
		}
	}
	r.run.Emit(event.Event{Kind: event.Receipted, Text: summary(rec) + "; receipt in " + path, Receipt: rec})
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

// tally counts objects by kind, in the order in which the kinds appear.
func tally(objects []event.OwnedObject) string {
	count, kinds := map[string]int{}, []string{}
	for _, t := range objects {
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

// ReceiptDue reports whether a killed destroy has destroyed something without a
// receipt, or has left folders that belong to no stage.
func ReceiptDue(c *cluster.Cluster) (bool, error) {
	proved, err := c.Dir.Proof().Read()
	if err != nil || proved != nil {
		return err == nil, err
	}
	remains, err := c.Dir.Leftovers()
	return len(remains) > 0, err
}

// resume reads the proofs of a killed destroy.
func (r *receipt) resume() error {
	proved, err := r.run.Cluster.Dir.Proof().Read()
	if err != nil || proved == nil {
		return err
	}
	r.unverified = proved.Unverified
	for _, t := range proved.Objects {
		r.noteObject(t)
	}
	for _, t := range proved.Objects {
		path := r.run.Cluster.Dir.Stage(t.Stage).StatePath()
		if _, err := os.Lstat(path); errors.Is(err, fs.ErrNotExist) {
			r.noteObject(event.OwnedObject{Stage: t.Stage, Kind: "state", ID: path, Gone: true})
		}
	}
	return nil
}

// noteObject replaces the earlier record of the object.
func (r *receipt) noteObject(t event.OwnedObject) {
	same := func(x event.OwnedObject) bool {
		return x.Stage == t.Stage && x.Kind == t.Kind && x.ID == t.ID && x.Where == t.Where
	}
	if i := slices.IndexFunc(r.objects, same); i >= 0 {
		r.objects[i] = t
		return
	}
	r.objects = append(r.objects, t)
}

// save writes the proofs so far; the caller holds mu.
func (r *receipt) save() error {
	proved := &event.Receipt{Run: r.run.ID, Cluster: r.run.Cluster.Name(), Unverified: r.unverified}
	for _, t := range r.objects {
		if t.Gone {
			proved.Objects = append(proved.Objects, t)
		}
	}
	if len(proved.Objects)+len(proved.Unverified) == 0 {
		return nil
	}
	return r.run.Cluster.Dir.Proof().Write(*proved)
}
