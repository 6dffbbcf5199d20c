// Package state owns the state directory of one cluster: layout, lock, Terraform states with their snapshots,
// records, fingerprints, journals and logs. It runs no Terraform. Only the owner can read the directory.
// castle replaces its own files whole. Terraform writes its state in place, which can leave half a file: the
// newest readable snapshot then replaces it. castle's own JSON files and intents end with checksums and have
// a copy beside them (checksum.go), and seen.json identifies the state that castle last saw.
//
//	<root>/<cluster>/<platform>/
//	  layout  lock  recreate.json  restore.json  births.json  proved.jsonl  kubeconfig  talosconfig
//	  backups/  where there is no store (package backups)
//	  stages/<stage>/  terraform.tfstate  record.json  fingerprint.json  revisions.json  seen.json
//	                   intent.jsonl  snapshots/  module/  work/
//	  archive/<run>-<stage>/  record.json  terraform.tfstate, without secrets
//	  runs/<run>/  journal.jsonl  <stage>.log
package state

import (
	"cmp"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"

	"github.com/siderolabs/gen/xslices"

	"github.com/ephemeral-castle/castle/internal/atomicfile"
	"github.com/ephemeral-castle/castle/internal/naming"
	"github.com/ephemeral-castle/castle/internal/ownfile"
)

// layout is the version of the directory's layout that this package reads and writes.
const layout = 1

// Dir is the state directory of one cluster on one platform.
type Dir struct {
	path      string
	cluster   string      // blue/proxmox, for messages
	locked    atomic.Bool // this process holds the cluster lock
	snapshots int         // how many are kept of each stage; all if zero
	removals  sync.Mutex  // of removedFile and what it lists

	shared func(*os.File) bool // sharedFileSystem, except in tests
}

// KeepSnapshots sets how many snapshots are kept of each stage; all if zero.
func (d *Dir) KeepSnapshots(n int) { d.snapshots = n }

// Open creates the state directory if need be and refuses a layout that it does not know.
func Open(root, cluster, platform string) (*Dir, error) {
	if err := naming.Check(cluster+"/"+platform, "rename its folder", cluster, platform); err != nil {
		return nil, err
	}
	root = ownfile.Resolve(root)
	if err := os.MkdirAll(root, 0o700); err != nil {
		return nil, err
	}
	mine, err := ownfile.Open(root) // refused before anything is written into it, if it is another user's
	if err != nil {
		return nil, err
	}
	defer mine.Close() //nolint:errcheck // nothing was written to it
	d := &Dir{path: filepath.Join(root, cluster, platform), cluster: cluster + "/" + platform}
	d.shared = sharedFileSystem
	for _, dir := range []string{filepath.Dir(d.path), d.path, d.stages(), d.runs()} {
		if err := atomicfile.MkdirPrivate(dir); err != nil {
			return nil, err
		}
	}
	return d, cmp.Or(refuseOthers(d), checkLayout(d))
}

// refuseOthers refuses links and the like in the directory and in those of its stages. Opening a file checks
// it, too, but a command that does not open all would work on a part.
func refuseOthers(d *Dir) error {
	_, err := ownfile.ReadDir(d.path)
	stages, unread := ownfile.ReadDir(d.stages())
	err = errors.Join(err, unread)
	for _, e := range stages {
		_, unread := ownfile.ReadDir(d.Stage(e.Name()).Dir())
		if e.IsDir() && !errors.Is(unread, fs.ErrNotExist) {
			err = errors.Join(err, unread)
		}
	}
	return err
}

func checkLayout(d *Dir) error {
	path := filepath.Join(d.path, "layout")
	text, err := ownfile.ReadFile(path)
	if errors.Is(err, fs.ErrNotExist) {
		return atomicfile.Write(path, fmt.Appendln(nil, layout))
	}
	if err != nil {
		return err
	}
	return CheckLayout(d, text)
}

// CheckLayout refuses the content of a layout file that this castle does not know.
func CheckLayout(d *Dir, text []byte) error {
	found, err := strconv.Atoi(strings.TrimSpace(string(text)))
	if err != nil {
		return fmt.Errorf("%s: no layout version: %q; if no newer castle has used this directory, write %d "+
			"into the file", filepath.Join(d.path, "layout"), text, layout)
	}
	if found > layout {
		return fmt.Errorf("%s: layout %d was written by a newer castle; this one knows layout %d",
			d.path, found, layout)
	}
	return nil
}

// Cluster returns the name of the cluster: blue/proxmox.
func (d *Dir) Cluster() string { return d.cluster }

// Path returns the directory's absolute path.
func (d *Dir) Path() string { return d.path }

// Kubeconfig returns the path of the authoritative kubeconfig, there or not.
func (d *Dir) Kubeconfig() string { return filepath.Join(d.path, "kubeconfig") }

// Talosconfig returns the path of the authoritative talosconfig, there or not.
func (d *Dir) Talosconfig() string { return filepath.Join(d.path, "talosconfig") }

// Runs returns the ids of all runs, the newest first.
func (d *Dir) Runs() ([]string, error) {
	entries, err := ownfile.ReadDir(d.runs())
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return nil, err
	}
	var ids []string
	for _, e := range slices.Backward(entries) {
		ids = append(ids, e.Name())
	}
	return ids, nil
}

func (d *Dir) stages() string { return filepath.Join(d.path, "stages") }

// Stages returns the names of the stages that have a record or a state, sorted. Another name than castle
// gives a stage is an error.
func (d *Dir) Stages() (all []string, err error) {
	entries, err := ownfile.ReadDir(d.stages())
	if err != nil {
		return nil, err
	}
	for _, e := range entries {
		if d.Stage(e.Name()).known() {
			all = append(all, e.Name())
		}
	}
	return all, naming.Check(d.stages(), NotMade, all...)
}

// Leftovers returns the folders that belong to no stage: a killed run prepared them
// and never applied, or did not finish removing them. They can hold states and inputs.
func (d *Dir) Leftovers() ([]string, error) {
	all, err := aside(d)
	if err != nil {
		return nil, err
	}
	entries, err := ownfile.ReadDir(d.stages())
	if err != nil {
		return nil, err
	}
	for _, e := range entries {
		if !d.Stage(e.Name()).known() {
			all = append(all, filepath.Join(d.stages(), e.Name()))
		}
	}
	return all, nil
}

// aside returns the folders of stages that a killed run did not finish to remove.
func aside(d *Dir) (all []string, err error) {
	names, err := fs.Glob(ownfile.FS(d.path), removed+"*")
	return xslices.Map(names, func(name string) string { return filepath.Join(d.path, name) }), err
}

func removeAside(d *Dir) error {
	all, err := aside(d)
	for _, path := range all {
		err = errors.Join(err, ownfile.RemoveAll(path))
	}
	return err
}

// RemoveLeftovers deletes them. No run may be working on the cluster.
func (d *Dir) RemoveLeftovers() error {
	all, err := d.Leftovers()
	return errors.Join(err, d.Remove(all...))
}
