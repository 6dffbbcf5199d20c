package terraform

import (
	"bytes"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"os"
	"path"
	"path/filepath"
	"slices"
	"strings"

	"github.com/ephemeral-castle/castle/internal/atomicfile"
)

// The files of the work directory that are castle's own.
const (
	overrideFile = "castle_override.tf"      // Terraform merges *_override.tf over the module
	inputsFile   = "castle.auto.tfvars.json" // and reads *.auto.tfvars.json by itself
	manifestFile = ".castle-files.json"      // what was copied from the module
	lockFileName = ".terraform.lock.hcl"
)

// Materialise makes the work directory a copy of module and adds castle's own
// files. What the module no longer has goes, if it came from the module:
// whatever Terraform or a provider wrote there stays, such as the lock file of a
// module that ships none.
func (r *Root) Materialise(module fs.FS, o Override) error {
	if err := atomicfile.MkdirPrivate(r.Dir); err != nil {
		return err
	}
	files, err := moduleFiles(module)
	if err != nil {
		return err
	}
	old, err := r.manifest()
	if err != nil {
		return err
	}
	// While copying, the manifest names the old files and the new: wherever this
	// ends, the next time knows what may go.
	both := maps.Clone(old)
	for name := range files {
		if _, ok := both[name]; !ok {
			both[name] = ""
		}
	}
	if err := r.setManifest(both); err != nil {
		return err
	}
	for name := range both {
		if _, ok := files[name]; ok {
			continue
		}
		if err := r.removeFile(name); err != nil {
			return err
		}
	}
	copied := map[string]string{}
	for name, mode := range files {
		if copied[name], err = r.copyFile(module, name, mode, old[name]); err != nil {
			return err
		}
	}
	return errors.Join(r.setManifest(copied), r.writeOverride(o))
}

// moduleFiles lists what is copied, with the mode that the copy gets.
func moduleFiles(module fs.FS) (map[string]fs.FileMode, error) {
	files := map[string]fs.FileMode{}
	err := fs.WalkDir(module, ".", func(name string, d fs.DirEntry, err error) error {
		switch {
		case err != nil:
			return err
		case d.IsDir():
			if d.Name() == ".terraform" || d.Name() == ".git" {
				return fs.SkipDir
			}
			return nil
		case name == overrideFile || name == inputsFile:
			return fmt.Errorf("%s: castle writes a file of this name itself", name)
		case leftOut(name):
			return nil
		}
		info, err := fs.Stat(module, name) // of what a link names
		if err != nil {
			return err
		}
		if !info.Mode().IsRegular() {
			return fmt.Errorf("%s: a module may hold files and folders only", name)
		}
		files[name] = 0o600
		if info.Mode()&0o111 != 0 {
			files[name] = 0o700 // a script that the module calls
		}
		return nil
	})
	return files, err
}

// leftOut are states, and values that would come in past castle's own order.
func leftOut(name string) bool {
	base := path.Base(name)
	if strings.Contains(base, ".tfstate") {
		return true
	}
	atRoot := base == name
	return atRoot && (base == "terraform.tfvars" || base == "terraform.tfvars.json" ||
		strings.HasSuffix(base, ".auto.tfvars") || strings.HasSuffix(base, ".auto.tfvars.json"))
}

// copyFile copies one file unless the copy is there, and returns the original's digest.
func (r *Root) copyFile(module fs.FS, name string, mode fs.FileMode, before string) (string, error) {
	data, err := fs.ReadFile(module, name)
	if err != nil {
		return "", err
	}
	sum := sha256.Sum256(data)
	digest := hex.EncodeToString(sum[:])
	to := filepath.Join(r.Dir, filepath.FromSlash(name))
	there, err := os.ReadFile(to)
	if err == nil && bytes.Equal(there, data) {
		return digest, os.Chmod(to, mode)
	}
	// Init adds this platform's checksums to a lock file: the copy differs then
	// and stays, until the module ships another one. A power cut can leave it
	// empty, and an init would then choose other versions than those that were locked.
	if err == nil && len(there) > 0 && name == lockFileName && digest == before {
		return digest, nil
	}
	if err := os.MkdirAll(filepath.Dir(to), 0o700); err != nil {
		return "", err
	}
	return digest, writeMode(to, data, mode)
}

// removeFile removes a file and the folders that are empty without it.
func (r *Root) removeFile(name string) error {
	if err := os.Remove(filepath.Join(r.Dir, filepath.FromSlash(name))); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	for dir := path.Dir(name); dir != "."; dir = path.Dir(dir) {
		if os.Remove(filepath.Join(r.Dir, filepath.FromSlash(dir))) != nil {
			break // not empty
		}
	}
	return nil
}

// manifest returns the digests of the module's files by name.
func (r *Root) manifest() (map[string]string, error) {
	data, err := os.ReadFile(filepath.Join(r.Dir, manifestFile))
	if errors.Is(err, fs.ErrNotExist) {
		return map[string]string{}, nil
	}
	if err != nil {
		return nil, err
	}
	files := map[string]string{}
	if err := json.Unmarshal(data, &files); err != nil {
		return nil, fmt.Errorf("%s: %w", filepath.Join(r.Dir, manifestFile), err)
	}
	return files, nil
}

func (r *Root) setManifest(files map[string]string) error {
	data, err := json.Marshal(files)
	if err != nil {
		return err
	}
	return atomicfile.Write(filepath.Join(r.Dir, manifestFile), data)
}

// sources returns the names of the module's files that Terraform reads, and its lock file, sorted.
func (r *Root) sources() ([]string, error) {
	files, err := r.manifest()
	if err != nil {
		return nil, err
	}
	names := []string{overrideFile, lockFileName}
	for name := range files {
		if strings.HasSuffix(name, ".tf") || strings.HasSuffix(name, ".tf.json") {
			names = append(names, name)
		}
	}
	slices.Sort(names)
	return names, nil
}
