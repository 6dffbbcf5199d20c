package run

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"

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
// must use the module that created the resources; later commands replace the work directory's content. The
// record gets the digests of the files and is written while both copies are there, so that it describes one
// of them at any time.
func keepModule(
	in *state.Dir, dir *state.Stage, rec state.Record, module fs.FS, inputs, lock []byte,
) error {
	next := modulePath(dir) + nextSuffix
	if err := errors.Join(settleModule(in, dir), in.Remove(next)); err != nil {
		return err
	}
	private := map[string][]byte{KeptInputs: state.Seal(inputs)}
	if lock != nil {
		private[terraformLock] = lock
	}
	err := state.CopyFS(next, module, private)
	if err == nil {
		rec.Files, _, err = inspectCopy(next)
	}
	if err == nil {
		err = dir.SetRecord(rec)
	}
	return errors.Join(err, settleModule(in, dir))
}

// settleModule puts the copy that the record describes in its place, if a kill between the steps of
// keepModule has left it beside that. A folder is not removed at once: a kill meanwhile would leave half of
// it.
func settleModule(in *state.Dir, dir *state.Stage) error {
	path := modulePath(dir)
	next, old := path+nextSuffix, path+oldSuffix
	if recordedPath(dir) == next {
		if err := in.Remove(old); err != nil {
			return err
		}
		if err := in.Rename(path, old); err != nil && !errors.Is(err, fs.ErrNotExist) {
			return err
		}
		if err := in.Rename(next, path); err != nil {
			return err
		}
	}
	return in.Remove(old)
}

// ReplaceInputs replaces the inputs that RecordedModule returns.
func ReplaceInputs(dir *state.Stage, inputs []byte) error {
	return atomicfile.Write(filepath.Join(recordedPath(dir), KeptInputs), state.Seal(inputs))
}

// RecordedModule returns the module of a stage's last apply and its inputs. It refuses a copy that is not as
// it was recorded: a destroy with a lost file would leave what that file destroys, one with a changed file
// would run foreign code, and one with damaged inputs could miss a provider's address.
func RecordedModule(c *cluster.Cluster, dir *state.Stage) (module fs.FS, inputs []byte, err error) {
	path := recordedPath(dir)
	rec, err := dir.Record()
	if err != nil {
		return nil, nil, err
	}
	if _, err := os.Lstat(path); err != nil && len(rec.Files) == 0 { // it was never applied
		return nil, nil, err
	}
	stage := filepath.Base(dir.Dir())
	again := fmt.Sprintf("`%s --only %s --refresh` writes", c.Command("create"), stage)
	files, inputs, unread := inspectCopy(path)
	if differing := files.Changed(&rec.Files); len(differing) > 0 {
		return nil, nil, &state.DamagedError{Path: filepath.Join(path, differing[0]),
			Reason: fmt.Errorf("the module of the last apply differs from its record in: %s",
				strings.Join(differing, ", ")),
			Fix: fmt.Sprintf("a destroy works with that module. Restore its files from a backup, or put the "+
				"stage back into the repository as it was applied: castle then takes them from there. If the "+
				"present configuration may stand in for it, %s the copy again", again)}
	}
	if unread != nil {
		return nil, nil, &state.DamagedError{Path: filepath.Join(path, KeptInputs), Reason: unread,
			Fix: fmt.Sprintf("a destroy works with these inputs; %s them again from the configuration", again)}
	}
	return ownfile.FS(path), inputs, nil
}

// recordedPath returns the folder of the module's copy. If keepModule was killed, the copy that the record
// describes is complete under its temporary name.
func recordedPath(dir *state.Stage) string {
	path := modulePath(dir)
	rec, err := dir.Record()
	if files, _, unread := inspectCopy(path + nextSuffix); err == nil && unread == nil &&
		len(files.Changed(&rec.Files)) == 0 {
		return path + nextSuffix
	}
	return path
}

// inspectCopy returns the digests of the files of a module's copy, and its inputs. The inputs have a checksum
// of their own, because ReplaceInputs changes them.
func inspectCopy(path string) (files state.Fingerprint, inputs []byte, err error) {
	if err := files.AddFS("", ownfile.FS(path)); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return nil, nil, err
	}
	delete(files, KeptInputs)
	data, err := ownfile.ReadFile(filepath.Join(path, KeptInputs))
	if err != nil {
		return files, nil, err
	}
	inputs, sealed, err := state.Unseal(data)
	if err == nil && !sealed {
		err = errors.New("it has no checksum")
	}
	return files, inputs, err
}

// repairModule takes the lost and changed files of a stage's recorded module from the repository's stage, if
// they are there as they were recorded, and returns their names.
func repairModule(dir *state.Stage, module fs.FS) (repaired []string, err error) {
	rec, unread := dir.Record()
	if unread != nil { // its reader reports it
		return nil, nil
	}
	path := recordedPath(dir)
	files, _, _ := inspectCopy(path) //nolint:errcheck // likewise
	for _, name := range files.Changed(&rec.Files) {
		var f state.Fingerprint
		data, err := fs.ReadFile(module, name)
		if f.Add(name, data); err != nil || f[name] != rec.Files[name] {
			continue
		}
		info, err := fs.Stat(module, name)
		file := filepath.Join(path, filepath.FromSlash(name))
		if err = errors.Join(err, atomicfile.MkdirPrivate(filepath.Dir(file))); err == nil {
			err = atomicfile.WriteMode(file, data, info.Mode().Perm())
		}
		if err != nil {
			return repaired, err
		}
		repaired = append(repaired, name)
	}
	return repaired, nil
}
