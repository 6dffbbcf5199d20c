package backup

import (
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"maps"
	"os"
	"path/filepath"
	"slices"

	"github.com/ephemeral-castle/castle/internal/atomicfile"
	"github.com/ephemeral-castle/castle/internal/cluster"
	"github.com/ephemeral-castle/castle/internal/etcd"
	"github.com/ephemeral-castle/castle/internal/ownfile"
	"github.com/ephemeral-castle/castle/internal/run"
	"github.com/ephemeral-castle/castle/internal/run/review"
	"github.com/ephemeral-castle/castle/internal/run/survival"
	"github.com/ephemeral-castle/castle/internal/state/backups"
	"github.com/ephemeral-castle/castle/internal/talos"
)

// temporary returns a file that only the owner can read, and what removes it. If a kill leaves it, the next
// run of castle removes it.
func temporary(r *run.Run) (file *os.File, remove func() error, err error) {
	folder, err := atomicfile.MkdirTemp(r.Cluster.Dir.Path(), "backup")
	if err != nil {
		return nil, nil, err
	}
	file, err = ownfile.OpenFile(filepath.Join(folder, "snapshot"), os.O_CREATE|os.O_EXCL|os.O_RDWR, 0o600)
	if err != nil {
		return nil, nil, errors.Join(err, ownfile.RemoveAll(folder))
	}
	return file, func() error { return errors.Join(file.Close(), ownfile.RemoveAll(folder)) }, nil
}

// Verified is a backup that Verify has read from its beginning to its end.
type Verified struct {
	Backup *backups.Backup `json:"backup"`
	// OtherKeys names the keys of the cluster that differ from the backup's: it could not read that.
	OtherKeys []string `json:"other_keys"`
	// Compared is false if the state has no configuration of a control plane whose keys could be compared.
	Compared bool `json:"compared"`
	// Data are those of survives blocks, which Verify leaves to its caller.
	Data []survival.Proof `json:"data"`
}

// Verify reads the backup with an id, and checks it as Take has checked it. It compares the keys with those
// of the configuration in the states, which r has read. use, unless it is nil, gets the open snapshot.
func Verify(ctx context.Context, r *run.Run, id string, use func(*Verified, io.ReadSeeker) error) (
	_ *Verified, err error) {
	shelf, err := r.Cluster.Backups(ctx)
	if err != nil {
		return nil, err
	}
	b, err := find(ctx, r, shelf, id)
	if err != nil {
		return nil, err
	}
	file, remove, err := temporary(r)
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, remove()) }()
	if err := shelf.Read(ctx, b, file); err != nil {
		return nil, err
	}
	revision, err := etcd.Verify(file.Name())
	if err == nil && revision != b.Revision {
		err = fmt.Errorf("it ends at revision %d, and its manifest names %d", revision, b.Revision)
	}
	if err != nil {
		return nil, fmt.Errorf("backup %s: %w", b.ID, err)
	}
	v := &Verified{Backup: b, OtherKeys: []string{}}
	configuration, err := configuration(r)
	if err == nil && configuration != nil {
		v.Compared = true
		v.OtherKeys, err = otherKeys(b, configuration)
	}
	if err == nil && use != nil {
		err = use(v, file)
	}
	return v, err
}

// Newest stands for the id of the newest backup.
const Newest = "newest"

// find finds a backup.
func find(ctx context.Context, r *run.Run, shelf *backups.Shelf, id string) (*backups.Backup, error) {
	if id == Newest {
		b, err := shelf.Newest(ctx)
		if b == nil && err == nil {
			err = cluster.Usagef("%s has no backup in %s; take one: %s", r.Cluster.Name(), r.Cluster.Place(),
				r.Cluster.Command("backup"))
		}
		return b, err
	}
	b, err := shelf.Find(ctx, id)
	if errors.Is(err, fs.ErrNotExist) {
		err = cluster.Usagef("there is no backup %q of %s in %s; list them: %s", id, r.Cluster.Name(),
			r.Cluster.Place(), r.Cluster.Command("backup list"))
	}
	return b, err
}

// configuration returns the configuration of a control plane that the states have; nil if none has one.
func configuration(r *run.Run) ([]byte, error) {
	for _, s := range r.Cluster.Config.Stages {
		st, err := r.Cluster.Dir.Stage(s.Name).LastKnown()
		if err != nil {
			return nil, err
		}
		for _, res := range st.Managed() {
			text, _ := res.Attributes["machine_configuration_input"].(string)
			if res.Type != review.ApplyType || text == "" {
				continue
			}
			if is, err := talos.ReadConfigured([]byte(text)); err != nil || is.ControlPlane {
				return []byte(text), err
			}
		}
	}
	return nil, nil
}

// otherKeys names the keys that differ between a backup and a configuration, or that only one of them has.
func otherKeys(b *backups.Backup, configuration []byte) ([]string, error) {
	now, err := talos.KeyFingerprints(configuration)
	if err != nil {
		return nil, err
	}
	both := maps.Clone(now)
	maps.Copy(both, b.Keys)
	return slices.DeleteFunc(slices.Sorted(maps.Keys(both)),
		func(name string) bool { return now[name] == b.Keys[name] }), nil
}
