package castle

import (
	"errors"
	"io/fs"
	"os"
	"slices"

	"github.com/ephemeral-castle/castle/internal/event"
)

// What a destroy proves it keeps on the disk before it forgets what it was proved
// of: a stage that is gone with its state cannot be asked for again, and a receipt
// that lacks what a killed run had razed would prove little.

// ReceiptDue reports whether a destroy that was killed has razed something of which
// there is no receipt yet, or has left folders that belong to no stage.
func (c *Castle) ReceiptDue() (bool, error) {
	proved, err := c.dir.Proof().Read()
	if err != nil || proved != nil {
		return err == nil, err
	}
	remains, err := c.dir.Leftovers()
	return len(remains) > 0, err
}

// resume takes over what a killed destroy had proved.
func (r *destruction) resume() error {
	proved, err := r.dir.Proof().Read()
	if err != nil || proved == nil {
		return err
	}
	r.unasked = proved.Unverified
	for _, t := range proved.Objects {
		r.note(t)
	}
	for _, t := range proved.Objects {
		path := r.dir.Stage(t.Stage).StatePath()
		if _, err := os.Lstat(path); errors.Is(err, fs.ErrNotExist) {
			r.note(event.OwnedObject{Stage: t.Stage, Kind: "state", ID: path, Gone: true})
		}
	}
	return nil
}

// note remembers what was found of a thing; it says more than what was found before.
func (r *destruction) note(t event.OwnedObject) {
	same := func(x event.OwnedObject) bool {
		return x.Stage == t.Stage && x.Kind == t.Kind && x.ID == t.ID && x.Where == t.Where
	}
	if i := slices.IndexFunc(r.things, same); i >= 0 {
		r.things[i] = t
		return
	}
	r.things = append(r.things, t)
}

// retain writes what was proved so far; the caller holds noting.
func (r *destruction) retain() error {
	proved := &event.Receipt{Run: r.id, Cluster: r.Name(), Unverified: r.unasked}
	for _, t := range r.things {
		if t.Gone {
			proved.Objects = append(proved.Objects, t)
		}
	}
	if len(proved.Objects)+len(proved.Unverified) == 0 {
		return nil
	}
	return r.dir.Proof().Write(*proved)
}
