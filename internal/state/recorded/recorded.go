// Package recorded keeps the module of a stage's last apply, with its inputs and its lock file, beside the
// state. A destroy works with that module: the configuration may have changed since, or be gone. It stands
// below package run, not beside the other facts of a last apply: it needs the state directory alone, and a
// run reads it to prepare a workspace.
package recorded

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"github.com/ephemeral-castle/castle/internal/atomicfile"
	"github.com/ephemeral-castle/castle/internal/ownfile"
	"github.com/ephemeral-castle/castle/internal/providers"
	"github.com/ephemeral-castle/castle/internal/state"
)

// InputsFile is the file of the inputs in the module's copy, so that one rename replaces both. Files of
// that name never reach a work directory.
const InputsFile = "recorded.auto.tfvars.json"

// IsAdded reports whether castle has added a file to the module's copy.
func IsAdded(file string) bool { return file == InputsFile || file == providers.ModuleFile }

const nextSuffix, oldSuffix = ".next", ".old"

func modulePath(dir *state.Stage) string { return filepath.Join(dir.Dir(), "module") }

// Keep copies the module, its inputs and its lock file beside the state before the apply. A destroy
// must use the module that created the resources; later commands replace the work directory's content. The
// record gets the digests of the files. It is written while both copies are there, and describes one of them.
func Keep(in *state.Dir, dir *state.Stage, rec state.Record, module fs.FS, inputs, lock []byte) error {
	next := modulePath(dir) + nextSuffix
	if err := errors.Join(settle(in, dir), in.Remove(next)); err != nil {
		return err
	}
	private := map[string][]byte{InputsFile: state.Seal(inputs)}
	if lock != nil {
		private[providers.ModuleFile] = lock
	}
	err := state.CopyFS(next, module, private)
	if err == nil {
		rec.Files, _, err = inspect(next)
	}
	if err == nil {
		err = dir.SetRecord(rec)
	}
	return errors.Join(err, settle(in, dir))
}

// settle puts the copy that the record describes in its place. A folder is not removed at once: a kill
// meanwhile would leave half of it.
func settle(in *state.Dir, dir *state.Stage) error {
	path := modulePath(dir)
	next, old := path+nextSuffix, path+oldSuffix
	err := in.Remove(old)
	if err != nil || Path(dir) != next {
		return err
	}
	if err := in.Rename(path, old); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	return errors.Join(in.Rename(next, path), in.Remove(old))
}

// ReplaceInputs replaces the inputs that Module returns.
func ReplaceInputs(dir *state.Stage, inputs []byte) error {
	return atomicfile.Write(filepath.Join(Path(dir), InputsFile), state.Seal(inputs))
}

// Module returns the module of a stage's last apply and its inputs. It refuses a copy that is not as it was
// recorded: a destroy with a lost file would leave what that file destroys, one with a changed file would run
// foreign code, and one with damaged inputs could miss a provider's address. create is the cluster's command.
func Module(dir *state.Stage, create string) (module fs.FS, inputs []byte, err error) {
	path := Path(dir)
	rec, err := dir.Record()
	if _, missing := os.Lstat(path); err == nil && len(rec.Files) == 0 { // it was never applied
		err = missing
	}
	if err != nil {
		return nil, nil, err
	}
	files, inputs, err := inspect(path)
	if errors.As(err, new(*ownfile.RefusedError)) {
		return nil, nil, err
	}
	file, fix := InputsFile, "a destroy works with these inputs; %s them again from the configuration"
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
		again := fmt.Sprintf("`%s --only %s --refresh` writes", create, rec.Name)
		return nil, nil, &state.DamagedError{Path: filepath.Join(path, file), Reason: err,
			Fix: fmt.Sprintf(fix, again)}
	}
	return ownfile.FS(path), inputs, nil
}

// Path returns the folder of the module's copy. If Keep was killed, the copy that the record
// describes is complete under its temporary name.
func Path(dir *state.Stage) string {
	path := modulePath(dir)
	rec, err := dir.Record()
	if files, _, unread := inspect(path + nextSuffix); err == nil && unread == nil &&
		len(files.Changed(&rec.Files)) == 0 {
		return path + nextSuffix
	}
	return path
}

// Files returns the digests of a module's copy, as far as its files can be read: Module reports the rest.
func Files(dir *state.Stage) state.Fingerprint {
	files, _, _ := inspect(Path(dir)) //nolint:errcheck // see above
	return files
}

// inspect returns the digests of the files of a module's copy, and its inputs. The inputs have a checksum
// of their own, because ReplaceInputs changes them.
func inspect(path string) (files state.Fingerprint, inputs []byte, err error) {
	if err := files.AddFS("", ownfile.FS(path)); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return nil, nil, err
	}
	delete(files, InputsFile)
	data, err := ownfile.ReadFile(filepath.Join(path, InputsFile))
	if err != nil {
		return files, nil, err
	}
	inputs, err = state.Unseal(data)
	return files, inputs, err
}

// Repair writes the copy of a stage's module again, if files of it are lost or changed and the
// repository has the stage as it was applied. It returns their names.
func Repair(in *state.Dir, dir *state.Stage, module fs.FS) (repaired []string, err error) {
	rec, unread := dir.Record()
	files, inputs, damage := inspect(Path(dir))
	repaired = files.Changed(&rec.Files)
	now, undigested := state.Digest(module)
	if errors.Join(unread, damage, undigested) != nil || now != rec.Module || len(repaired) == 0 ||
		slices.Contains(repaired, providers.ModuleFile) {
		return nil, nil // whoever needs it reports it
	}
	lock, err := providers.ModuleLock(Path(dir))
	if err != nil {
		return nil, err
	}
	return repaired, Keep(in, dir, rec, module, inputs, lock)
}
