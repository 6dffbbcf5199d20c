package workingcopy

import (
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"path/filepath"

	"github.com/ephemeral-castle/castle/internal/atomicfile"
	"github.com/ephemeral-castle/castle/internal/ownfile"
	"github.com/ephemeral-castle/castle/internal/state"
	"github.com/ephemeral-castle/castle/internal/state/commits"
)

const (
	recordFile   = "store.json"
	checkoutLock = "store.lock"
	divergedDir  = "diverged"
	layoutFile   = "layout"

	recordFormat = 1
)

// record is store.json: what the directory was brought to.
type record struct {
	Format int    `json:"format"`
	URL    string `json:"url"`
	// Commit is the commit of the files; nil if it is not known to the log.
	Commit *commits.Commit `json:"commit"`
	// Files are the files as they were then on this machine.
	Files map[string]entry `json:"files"`
	// Run is the run of this machine that took the lock last.
	Run string `json:"run,omitempty"`
	// Pending are the hashes of files that an unfinished checkout was about to write; "": to delete.
	Pending map[string]string `json:"pending,omitempty"`
}

func recordPath(dir *state.Dir) string { return filepath.Join(dir.Path(), recordFile) }

// load reads the record; nil if there is none.
func load(dir *state.Dir) (*record, error) {
	path := recordPath(dir)
	data, err := ownfile.ReadFile(path)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	}
	if err != nil {
		return nil, err
	}
	r := &record{}
	if err = json.Unmarshal(data, r); err == nil && (r.URL == "" || r.Format < 1) {
		err = errors.New("it names no store")
	}
	if err != nil {
		return nil, &state.DamagedError{Path: path, Reason: err, Fix: fmt.Sprintf("castle knows by it what "+
			"the store lacks: move %s away, and castle reads the newest commit into a new directory",
			dir.Path())}
	}
	if r.Format > recordFormat {
		return nil, fmt.Errorf("%s: a newer castle has written format %d; this one knows format %d",
			path, r.Format, recordFormat)
	}
	if r.Files == nil {
		r.Files = map[string]entry{}
	}
	return r, nil
}

func (r *record) save(dir *state.Dir) error {
	r.Format = recordFormat
	data, err := json.Marshal(r)
	if err != nil {
		return err
	}
	return atomicfile.Write(recordPath(dir), append(data, '\n'))
}

// clean reports whether the log has a file as it is on this machine.
func (r *record) clean(name string, now *entry) bool {
	if now == nil {
		_, was := r.Files[name]
		pending, to := r.Pending[name]
		return !was || to && pending == ""
	}
	if was, ok := r.Files[name]; ok && was.same(*now) {
		return true
	}
	return r.Pending[name] == now.SHA256 && now.SHA256 != ""
}

// changes returns the files that the log lacks as they are on this machine; a nil entry was deleted.
func (r *record) changes(now map[string]entry) map[string]*entry {
	changed := map[string]*entry{}
	for name, e := range now {
		if !r.clean(name, &e) {
			changed[name] = &e
		}
	}
	for name := range maps.Keys(r.Files) {
		if _, there := now[name]; !there && !r.clean(name, nil) {
			changed[name] = nil
		}
	}
	return changed
}
