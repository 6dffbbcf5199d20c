package state

import (
	"encoding/json"
	"errors"
	"io/fs"
	"path/filepath"
	"slices"

	"github.com/ephemeral-castle/castle/internal/atomicfile"
	"github.com/ephemeral-castle/castle/internal/event"
	"github.com/ephemeral-castle/castle/internal/ownfile"
)

// Proofs are the objects that an unfinished destroy has proved gone: a stage that is removed from the state
// directory cannot be checked again. A run appends its proofs to a journal, because a document with those of
// all stages would be written once for each stage. The next run makes a document of them.
type Proofs struct{ dir *Dir }

// Proofs returns the proofs of an unfinished destroy.
func (d *Dir) Proofs() Proofs { return Proofs{d} }

func (p Proofs) document() Document[event.Receipt] {
	return Document[event.Receipt]{filepath.Join(p.dir.path, "proved.json"), p.dir}
}

func (p Proofs) journal() string { return filepath.Join(p.dir.path, "proved.jsonl") }

// Read returns the proofs; nil if there are none. A last line that was cut short proves nothing.
func (p Proofs) Read() (*event.Receipt, error) {
	all, err := p.document().Read()
	if err != nil {
		return nil, err
	}
	data, err := ownfile.ReadFile(p.journal())
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return nil, err
	}
	err = eachLine(data, func(_ int, line, _ []byte) error {
		if all == nil {
			all = &event.Receipt{}
		}
		before := *all
		*all = event.Receipt{}
		if err := json.Unmarshal(line, all); err != nil {
			const fix = "castle can go on without it: delete it"
			return &DamagedError{Path: p.journal(), Reason: err, Fix: fix}
		}
		all.Objects = append(before.Objects, all.Objects...)
		for _, address := range before.Unverified { // a kill in Begin leaves them twice
			if !slices.Contains(all.Unverified, address) {
				all.Unverified = append(all.Unverified, address)
			}
		}
		return nil
	})
	if err != nil || all == nil {
		return nil, err
	}
	newest := map[event.OwnedObject]int{} // a later line counts
	for i, o := range all.Objects {
		newest[o.Identity()] = i
	}
	var gone []event.OwnedObject
	for i, o := range all.Objects {
		if o.Gone && newest[o.Identity()] == i {
			gone = append(gone, o)
		}
	}
	all.Objects = gone
	return all, nil
}

// Begin returns the proofs so far and prepares for those of the run that calls it.
func (p Proofs) Begin() (proved event.Receipt, err error) {
	all, err := p.Read()
	if err != nil || all == nil {
		return proved, err
	}
	if !exists(p.journal()) {
		return *all, nil
	}
	// A line cannot follow one that was cut short.
	return *all, errors.Join(p.document().Write(*all), p.dir.removeKept(p.journal()))
}

// Append records proofs on disk. A later proof of an object replaces the earlier one.
func (p Proofs) Append(proved event.Receipt) error {
	isNew := !exists(p.journal())
	file, err := atomicfile.Append(p.journal())
	if err != nil {
		return err
	}
	j := &Journal{file: file}
	if err := errors.Join(j.append(proved, true), j.close(false)); err != nil || !isNew {
		return err
	}
	return atomicfile.SyncDir(p.dir.path)
}

// Clear removes the proofs.
func (p Proofs) Clear() error {
	return errors.Join(p.document().Clear(), p.dir.removeKept(p.journal()))
}
