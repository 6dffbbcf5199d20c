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
	"github.com/ephemeral-castle/castle/internal/platform"
	"github.com/ephemeral-castle/castle/internal/process"
	"github.com/ephemeral-castle/castle/internal/run"
	"github.com/ephemeral-castle/castle/internal/run/recovery"
	"github.com/ephemeral-castle/castle/internal/state"
)

// receipt collects the objects of a destroy and whether they are gone. castle writes it before it untracks
// anything: a stage without its state cannot be verified again, and a killed run would lose its results.
type receipt struct {
	run *run.Run

	mu      sync.Mutex
	rec     event.Receipt
	at      map[event.OwnedObject]int // the index of an object in rec, by what identifies it
	unsaved event.Receipt             // the part of rec that is not on disk
	gone    map[string]bool           // stages
}

// newReceipt returns the receipt of a run. It begins with the proofs of a killed destroy.
func newReceipt(of *run.Run) (*receipt, error) {
	r := &receipt{run: of, at: map[event.OwnedObject]int{}, gone: map[string]bool{}, rec: event.Receipt{
		Run: of.ID, Cluster: of.Cluster.Name(),
		Objects: []event.OwnedObject{}, Kept: []event.KeptStage{}, Unverified: []string{},
	}}
	proved, err := of.Cluster.Dir.Proofs().Begin()
	if err != nil {
		return nil, err
	}
	r.rec.Unverified = append(r.rec.Unverified, proved.Unverified...)
	for _, o := range proved.Objects {
		r.noteObject(o)
	}
	for _, o := range proved.Objects {
		path := of.Cluster.Dir.Stage(o.Stage).StatePath()
		if _, err := os.Lstat(path); errors.Is(err, fs.ErrNotExist) {
			r.noteObject(event.OwnedObject{Stage: o.Stage, Kind: "state", ID: path, Gone: true})
		}
	}
	r.unsaved = event.Receipt{} // it follows from the proofs that are on disk
	return r, nil
}

func isLeft(o event.OwnedObject) bool { return !o.Gone }

// note records the objects of a stage. A remaining object is an error.
func (r *receipt) note(stage string, objects []event.OwnedObject) error {
	r.mu.Lock()
	defer r.mu.Unlock()
	var left []event.OwnedObject
	for _, o := range objects {
		o.Stage, o.Reason = stage, r.run.Cluster.Masker.Hide(o.Reason)
		r.noteObject(o)
		if isLeft(o) {
			left = append(left, o)
		}
	}
	if len(left) > 0 {
		return &run.LeftoverError{Objects: left}
	}
	if len(r.unsaved.Objects)+len(r.unsaved.Unverified) == 0 {
		return nil
	}
	r.unsaved.Run, r.unsaved.Cluster = r.rec.Run, r.rec.Cluster
	err := r.run.Cluster.Dir.Proofs().Append(r.unsaved)
	if err == nil {
		r.unsaved = event.Receipt{}
	}
	return err
}

// noteObject replaces the earlier record of the object.
func (r *receipt) noteObject(o event.OwnedObject) {
	r.unsaved.Objects = append(r.unsaved.Objects, o)
	identity := o.Identity()
	if i, known := r.at[identity]; known {
		r.rec.Objects[i] = o
		return
	}
	r.at[identity] = len(r.rec.Objects)
	r.rec.Objects = append(r.rec.Objects, o)
}

// noteUnverified notes objects that Terraform reports as deleted and castle cannot look up.
func (r *receipt) noteUnverified(s *Stage, addresses []string, asked map[string]bool) {
	r.mu.Lock()
	defer r.mu.Unlock()
	for _, res := range s.state.Resources {
		if slices.Contains(addresses, res.Address) && !asked[res.Address] &&
			cluster.Platforms().Owner(res.Type) == nil &&
			!recovery.InStateOnly(res.Provider) && !cluster.InMachines(res.Provider) {
			r.rec.Unverified = append(r.rec.Unverified, s.Record.Name+": "+res.Address)
			r.unsaved.Unverified = append(r.unsaved.Unverified, s.Record.Name+": "+res.Address)
		}
	}
}

// noteUnknown notes machines that no state knows. Each look replaces the earlier one.
func (r *receipt) noteUnknown(machines []platform.Guest) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.rec.Unknown = nil
	for _, g := range machines {
		text := strings.TrimRight(fmt.Sprintf("%s %q %s, %s", g.Called, g.Name, g.Where, g.State), ", ")
		if g.CopyOf != 0 {
			text += fmt.Sprintf(", with the uuid of VM %d", g.CopyOf)
		}
		r.rec.Unknown = append(r.rec.Unknown, text)
	}
}

// noteRemoved records that a stage is gone with its state, and with the platform the exported files.
func (r *receipt) noteRemoved(s *Stage, how string) error {
	err := r.removed(s, "state", how, s.dir.StatePath())
	if s.Record.EndsCluster {
		kubeconfigs, talosconfigs := r.run.Cluster.Exports()
		err = errors.Join(err, r.removed(s, "kubeconfig", "", kubeconfigs...),
			r.removed(s, "talosconfig", "", talosconfigs...))
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	r.gone[s.Record.Name] = true
	return err
}

// removed records which of these files are gone.
func (r *receipt) removed(s *Stage, kind, how string, paths ...string) error {
	var objects []event.OwnedObject
	for _, path := range paths {
		o := event.OwnedObject{Kind: kind, ID: path, Gone: true, Reason: how}
		if _, err := os.Lstat(path); !errors.Is(err, fs.ErrNotExist) {
			o.Gone, o.Reason, o.Fix = false, "still there", "rm "+process.Quote(path)
		}
		objects = append(objects, o)
	}
	return r.note(s.Record.Name, objects)
}

// write writes the receipt and reports it in a line. err is how the walk ended.
func (r *receipt) write(all, destroyed []*Stage, err error) error {
	rec, dir := &r.rec, r.run.Cluster.Dir
	if len(rec.Objects) == 0 && len(destroyed) == 0 {
		return errors.Join(err, dir.RemoveLeftovers()) // there was nothing to prove
	}
	rec.Proved = err == nil && !slices.ContainsFunc(rec.Objects, isLeft)
	platform := false // stays
	for _, s := range all {
		name, why := s.Record.Name, "not selected"
		going := slices.ContainsFunc(destroyed, func(x *Stage) bool { return x.Record.Name == name })
		switch {
		case going && r.gone[name]:
			continue
		case going:
			why = "not proved gone"
		case s.Record.Persistent:
			why = "persistent"
		}
		rec.Kept = append(rec.Kept, event.KeptStage{Stage: name, Reason: why})
		platform = platform || s.Record.Layer == cluster.PlatformLayer
	}
	if rec.Proved {
		err := dir.RemoveLeftovers()
		if !platform { // its kubeconfig goes with it
			err = errors.Join(err, r.run.Cluster.RemoveExports())
		}
		if err != nil {
			return err
		}
	}
	var unread error
	if rec.Disk, unread = state.OnDisk(dir, r.run.Cluster.Config.Runs); unread != nil {
		return unread
	}
	shown := rec.Masked(r.run.Cluster.Masker.Hide)
	data, err := json.MarshalIndent(shown, "", "  ")
	if err != nil {
		return err
	}
	path := r.run.Files.ReceiptPath()
	if err := atomicfile.Write(path, append(data, '\n')); err != nil {
		return err
	}
	if rec.Proved {
		if err := dir.Proofs().Clear(); err != nil {
			return err
		}
	}
	text := summary(rec) + "; receipt in " + path + "\n" + onDisk(dir.Path(), rec.Disk)
	r.run.Emit(event.Event{Kind: event.Receipted, Text: text, Receipt: &shown})
	return nil
}

// summary is a receipt in one line.
func summary(rec *event.Receipt) string {
	gone, left := tally(rec.Objects, true), tally(rec.Objects, false)
	var parts []string
	if left != "" {
		parts = append(parts, "Not proved gone: "+left)
	}
	if rec.Proved {
		parts = append(parts, "Gone: "+gone+": proved")
	} else if gone != "" {
		parts = append(parts, "gone: "+gone)
	}
	if len(rec.Unverified) > 0 {
		parts = append(parts, "reported by Terraform alone: "+count(len(rec.Unverified), "resource"))
	}
	if len(rec.Unknown) > 0 {
		parts = append(parts, "staying (unknown to this state): "+strings.Join(rec.Unknown, "; "))
	}
	stages := map[string][]string{} // by the reason why they stay
	for _, s := range rec.Kept {
		stages[s.Reason] = append(stages[s.Reason], s.Stage)
	}
	for _, s := range rec.Kept {
		if names := stages[s.Reason]; names[0] == s.Stage {
			parts = append(parts, "staying ("+s.Reason+"): "+strings.Join(names, ", "))
		}
	}
	return strings.Join(parts, "; ")
}

// onDisk names what stays on this disk, in one line, by its place in dir.
func onDisk(dir string, kept []event.KeptPath) string {
	var plain, secret []string
	until := ""
	for _, k := range kept {
		switch name := strings.TrimPrefix(k.Path, dir+"/"); {
		case k.Secrets:
			secret = append(secret, name)
		case name == "runs" || name == "archive":
			plain, until = append(plain, name), k.Until
		}
	}
	text := fmt.Sprintf("On this disk: %s, without secrets, until %s", strings.Join(plain, " and "), until)
	if len(secret) > 0 {
		text += "; with secrets: " + strings.Join(secret, ", ")
	}
	return text
}

// tally counts the objects that are gone, or that are not, by kind, in the order in which the kinds appear.
func tally(objects []event.OwnedObject, gone bool) string {
	numbers, kinds := map[string]int{}, []string{}
	for _, o := range objects {
		if o.Gone != gone {
			continue
		}
		if numbers[o.Kind]++; numbers[o.Kind] == 1 {
			kinds = append(kinds, o.Kind)
		}
	}
	for i, kind := range kinds {
		if kind != "kubeconfig" && kind != "talosconfig" {
			kinds[i] = count(numbers[kind], kind)
		}
	}
	return strings.Join(kinds, ", ")
}

func count(n int, noun string) string {
	if n == 1 {
		return "1 " + noun
	}
	return fmt.Sprintf("%d %ss", n, noun)
}

// ReceiptDue reports whether a killed destroy has destroyed something without a
// receipt, or has left folders that belong to no stage.
func ReceiptDue(c *cluster.Cluster) (bool, error) {
	proved, err := c.Dir.Proofs().Read()
	if err != nil || proved != nil {
		return err == nil, err
	}
	remains, err := c.Dir.Leftovers()
	return len(remains) > 0, err
}
