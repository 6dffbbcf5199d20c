package run

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"

	"github.com/ephemeral-castle/castle/internal/atomicfile"
	"github.com/ephemeral-castle/castle/internal/cluster"
	"github.com/ephemeral-castle/castle/internal/ownfile"
	"github.com/ephemeral-castle/castle/internal/state"
)

// KeptInputs is the file of the inputs in the module's copy, so that one rename replaces both. Files of
// that name never reach a work directory.
const KeptInputs = "recorded.auto.tfvars.json"

// IsKept reports whether castle has added a file to the module's copy.
func IsKept(file string) bool { return file == KeptInputs || file == terraformLock }

const nextSuffix, oldSuffix = ".next", ".old"

func modulePath(dir *state.Stage) string { return filepath.Join(dir.Dir(), "module") }

// keepModule copies the module, its inputs and its lock file beside the state before the apply. A destroy
// must use the module that created the resources; later commands replace the work directory's content.
func keepModule(in *state.Dir, dir *state.Stage, module fs.FS, inputs, lock []byte) error {
	path := modulePath(dir)
	next, old := path+nextSuffix, path+oldSuffix
	if recordedPath(dir) == next { // the only copy, if there is one
		if err := in.Rename(next, path); err != nil && !errors.Is(err, fs.ErrNotExist) {
			return err
		}
	}
	if err := in.Remove(next, old); err != nil {
		return err
	}
	private := map[string][]byte{KeptInputs: state.Seal(inputs)}
	if lock != nil {
		private[terraformLock] = lock
	}
	if err := state.CopyFS(next, module, private); err != nil {
		return err
	}
	// A folder is not removed at once: a kill meanwhile would leave half of it.
	if err := in.Rename(path, old); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	return errors.Join(in.Rename(next, path), in.Remove(old))
}

// ReplaceInputs replaces the inputs that RecordedModule returns.
func ReplaceInputs(dir *state.Stage, inputs []byte) error {
	return atomicfile.Write(filepath.Join(recordedPath(dir), KeptInputs), state.Seal(inputs))
}

// RecordedModule returns the module of a stage's last apply and its inputs. Damaged inputs are an error: a
// destroy with them could miss a provider's address.
func RecordedModule(c *cluster.Cluster, dir *state.Stage) (module fs.FS, inputs []byte, err error) {
	path := recordedPath(dir)
	if _, err := os.Lstat(path); err != nil {
		return nil, nil, err
	}
	file, sealed := filepath.Join(path, KeptInputs), false
	data, err := ownfile.ReadFile(file)
	if err == nil {
		inputs, sealed, err = state.Unseal(data)
	}
	rec, unread := dir.Record()
	if !sealed && unread == nil && !rec.Sealed { // an older castle wrote the copy
		inputs, err = data, nil
	} else if !sealed && err == nil {
		err = errors.New("it has no checksum")
	}
	if err != nil {
		return nil, nil, &state.DamagedError{Path: file, Reason: err,
			Fix: fmt.Sprintf("a destroy works with these inputs; `%s --only %s --refresh` writes them again "+
				"from the configuration", c.Command("create"), filepath.Base(dir.Dir()))}
	}
	return ownfile.FS(path), inputs, nil
}

// recordedPath returns the folder of the module's copy. If keepModule was killed between its renames, the
// new copy is complete under its temporary name.
func recordedPath(dir *state.Stage) string {
	path := modulePath(dir)
	if _, err := os.Lstat(path); errors.Is(err, fs.ErrNotExist) {
		path += nextSuffix
	}
	return path
}
