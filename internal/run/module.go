package run

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"github.com/ephemeral-castle/castle/internal/atomicfile"
	"github.com/ephemeral-castle/castle/internal/cluster"
	"github.com/ephemeral-castle/castle/internal/ownfile"
	"github.com/ephemeral-castle/castle/internal/state"
	"github.com/ephemeral-castle/castle/internal/terraform"
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
// record gets the digests of the files. It is written while both copies are there, and describes one of them.
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

// settleModule puts the copy that the record describes in its place. A folder is not removed at once: a kill
// meanwhile would leave half of it.
func settleModule(in *state.Dir, dir *state.Stage) error {
	path := modulePath(dir)
	next, old := path+nextSuffix, path+oldSuffix
	err := in.Remove(old)
	if err != nil || recordedPath(dir) != next {
		return err
	}
	if err := in.Rename(path, old); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	return errors.Join(in.Rename(next, path), in.Remove(old))
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
	if _, missing := os.Lstat(path); err == nil && len(rec.Files) == 0 { // it was never applied
		err = missing
	}
	if err != nil {
		return nil, nil, err
	}
	files, inputs, err := inspectCopy(path)
	if errors.As(err, new(*ownfile.RefusedError)) {
		return nil, nil, err
	}
	file, fix := KeptInputs, "a destroy works with these inputs; %s them again from the configuration"
	if differing := files.Changed(&rec.Files); len(differing) > 0 {
		err = fmt.Errorf("the module of the last apply is not as it was recorded: %s",
			strings.Join(differing, ", "))
		if file = differing[0]; len(files) == 0 {
			file, err = "", errors.New("the module of the last apply is lost")
		}
		fix = "a destroy works with that module. Restore it from a backup, or put the " +
			"stage back into the repository as it was applied: castle then takes it from there. If the " +
			"present configuration may stand in for it, %s it again"
	}
	if err != nil {
		again := fmt.Sprintf("`%s --only %s --refresh` writes", c.Command("create"), rec.Name)
		return nil, nil, &state.DamagedError{Path: filepath.Join(path, file), Reason: err,
			Fix: fmt.Sprintf(fix, again)}
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
	inputs, err = state.Unseal(data)
	return files, inputs, err
}

// repairModule writes the copy of a stage's module again, if files of it are lost or changed and the
// repository has the stage as it was applied. It returns their names.
func repairModule(in *state.Dir, dir *state.Stage, module fs.FS) (repaired []string, err error) {
	rec, unread := dir.Record()
	files, inputs, damage := inspectCopy(recordedPath(dir))
	repaired = files.Changed(&rec.Files)
	now, undigested := state.Digest(module)
	if errors.Join(unread, damage, undigested) != nil || now != rec.Module || len(repaired) == 0 ||
		slices.Contains(repaired, terraformLock) {
		return nil, nil // whoever needs it reports it
	}
	lock, err := terraform.LockFile(recordedPath(dir))
	if err != nil {
		return nil, err
	}
	return repaired, keepModule(in, dir, rec, module, inputs, lock)
}
