package terraform

import (
	"bytes"
	"cmp"
	"crypto/sha256"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"os"
	"path"
	"path/filepath"
	"slices"
	"strconv"
	"strings"

	"github.com/hashicorp/hcl/v2/hclwrite"
	"github.com/hashicorp/terraform-config-inspect/tfconfig"
	"github.com/zclconf/go-cty/cty"
	ctyjson "github.com/zclconf/go-cty/cty/json"

	"github.com/ephemeral-castle/castle/internal/atomicfile"
	"github.com/ephemeral-castle/castle/internal/ownfile"
	"github.com/ephemeral-castle/castle/internal/providers"
)

// The files of the work directory that are castle's own. None is flushed: each use of the folder compares
// them, and the module's copies, with what they have to be, and init runs again unless its stamp matches.
const (
	overrideFile = "castle_override.tf"      // Terraform merges *_override.tf over the module
	inputsFile   = "castle.auto.tfvars.json" // and reads *.auto.tfvars.json by itself
	manifestFile = ".castle-files.json"      // what was copied from the module
	lockFileName = providers.ModuleFile
)

// Materialise makes the work directory a copy of module and adds castle's own files.
// Files that came from the module and are gone from it are removed. Files that
// Terraform or a provider wrote stay, such as the lock file of a module without one.
func (r *Root) Materialise(module fs.FS, o Override) error { return r.workdir().materialise(module, o) }

func (w workdir) materialise(module fs.FS, o Override) error {
	if err := atomicfile.MkdirPrivate(w.dir); err != nil {
		return err
	}
	files, err := moduleFiles(module)
	if err != nil {
		return err
	}
	old, err := w.manifest()
	if err != nil {
		return err
	}
	// While copying, the manifest names the old files and the new ones, so that an
	// interrupted copy leaves nothing that the next one would not remove. Without a manifest, the next one
	// finds those that Terraform reads.
	both := map[string]string{}
	for name := range files {
		both[name] = ""
	}
	maps.Copy(both, old)
	if exists(filepath.Join(w.dir, manifestFile)) {
		if err := w.setManifest(both); err != nil {
			return err
		}
	}
	for name := range both {
		if _, ok := files[name]; ok {
			continue
		}
		if err := w.removeFile(name); err != nil {
			return err
		}
	}
	copied := map[string]string{}
	for name, mode := range files {
		if copied[name], err = w.copyFile(module, name, mode, old[name]); err != nil {
			return err
		}
	}
	return errors.Join(w.setManifest(copied), w.writeOverride(o))
}

// moduleFiles returns the files to copy, each with the mode of its copy.
func moduleFiles(module fs.FS) (map[string]fs.FileMode, error) {
	files := map[string]fs.FileMode{}
	err := fs.WalkDir(module, ".", func(name string, d fs.DirEntry, err error) error {
		switch {
		case err != nil:
			return err
		case d.IsDir() && (d.Name() == ".terraform" || d.Name() == ".git"):
			return fs.SkipDir
		case name == overrideFile || name == inputsFile:
			return fmt.Errorf("%s: castle writes a file of this name itself", name)
		case d.IsDir() || excluded(name):
			return nil
		}
		info, err := fs.Stat(module, name) // follows a link
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

// excluded reports whether a file holds a state, or values that would bypass castle's.
func excluded(name string) bool {
	return holdsValues(name) || strings.Contains(path.Base(name), ".tfstate")
}

// holdsValues reports whether Terraform takes values of variables from a file by itself.
func holdsValues(name string) bool {
	plain := strings.TrimSuffix(name, ".json")
	return path.Base(name) == name &&
		(plain == "terraform.tfvars" || strings.HasSuffix(plain, ".auto.tfvars"))
}

// copyFile copies one file unless the copy is there, and returns the original's digest.
func (w workdir) copyFile(module fs.FS, name string, mode fs.FileMode, before string) (string, error) {
	data, err := fs.ReadFile(module, name)
	if err != nil {
		return "", err
	}
	digest := fmt.Sprintf("%x", sha256.Sum256(data))
	to := filepath.Join(w.dir, filepath.FromSlash(name))
	there, err := ownfile.ReadFile(to)
	if err == nil && bytes.Equal(there, data) {
		return digest, ownfile.Chmod(to, mode)
	}
	// Init adds this platform's checksums to a lock file: that copy stays until the module ships another lock
	// file. An empty one, left by a power cut, does not stay: init would choose other versions.
	if err == nil && len(there) > 0 && name == lockFileName && digest == before {
		return digest, nil
	}
	if err := atomicfile.MkdirPrivate(filepath.Dir(to)); err != nil {
		return "", err
	}
	if err := ownfile.Remove(to); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return "", err
	}
	return digest, atomicfile.CreateUnflushed(to, data, mode)
}

// removeFile removes a file and the folders that are empty then.
func (w workdir) removeFile(name string) error {
	err := ownfile.Remove(filepath.Join(w.dir, filepath.FromSlash(name)))
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	for dir := path.Dir(name); dir != "."; dir = path.Dir(dir) {
		if ownfile.Remove(filepath.Join(w.dir, filepath.FromSlash(dir))) != nil {
			break // not empty
		}
	}
	return nil
}

// manifest returns the digests of the module's files by name. Others that Terraform would read have none:
// those of an older module whose manifest is lost, or what somebody has added.
func (w workdir) manifest() (map[string]string, error) {
	data, err := ownfile.ReadFile(filepath.Join(w.dir, manifestFile))
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return nil, err
	}
	files := map[string]string{}
	if json.Unmarshal(data, &files) != nil || files == nil {
		files = map[string]string{}
	}
	err = fs.WalkDir(ownfile.FS(w.dir), ".", func(name string, d fs.DirEntry, err error) error {
		switch {
		case errors.Is(err, fs.ErrNotExist): // the folder, before the first copy
			return nil
		case err == nil && d.Name() == ".terraform":
			return fs.SkipDir
		case err == nil && files[name] == "" && (isTerraform(name) || holdsValues(name)) &&
			name != overrideFile && name != inputsFile:
			files[name] = ""
		}
		return err
	})
	return files, err
}

func isTerraform(name string) bool {
	return strings.HasSuffix(name, ".tf") || strings.HasSuffix(name, ".tf.json")
}

func (w workdir) setManifest(files map[string]string) error {
	data, err := json.Marshal(files)
	if err != nil {
		return err
	}
	return atomicfile.Update(filepath.Join(w.dir, manifestFile), data)
}

// sources returns the sorted names of the files that Terraform reads, and the lock file.
func (w workdir) sources() ([]string, error) {
	files, err := w.manifest()
	if err != nil {
		return nil, err
	}
	names := []string{overrideFile, lockFileName}
	for name := range files {
		if isTerraform(name) {
			names = append(names, name)
		}
	}
	slices.Sort(names)
	return names, nil
}

// Override holds the files that castle adds to a module.
type Override struct {
	InCluster  []string             // source addresses of the providers that castle configures
	Kubeconfig string               // absolute path, for these providers
	Inputs     map[string]cty.Value // of the module's variables
	Kept       []byte               // a result of Root.Inputs; without it and Inputs the file stays
}

// Inputs returns the file of the inputs of the module's variables, which holds secrets.
func (r *Root) Inputs() ([]byte, error) { return ownfile.ReadFile(filepath.Join(r.Dir, inputsFile)) }

func (w workdir) writeOverride(o Override) error {
	text, err := w.override(o)
	if err != nil {
		return err
	}
	if err := atomicfile.Update(filepath.Join(w.dir, overrideFile), text); err != nil {
		return err
	}
	values := o.Kept
	if o.Inputs != nil {
		if values, err = inputs(o.Inputs); err != nil {
			return err
		}
	}
	if values == nil {
		return nil
	}
	return atomicfile.Update(filepath.Join(w.dir, inputsFile), values)
}

// override configures the backend and the providers of the cluster.
func (w workdir) override(o Override) ([]byte, error) {
	quote := func(text string) []byte { return hclwrite.TokensForValue(cty.StringVal(text)).Bytes() }
	var b bytes.Buffer
	fmt.Fprintf(&b, "terraform {\n  backend \"local\" {\n    path = %s\n  }\n}\n", quote(w.statePath))
	var names map[string]string
	if len(o.InCluster) > 0 {
		names = w.localNames()
	}
	for _, source := range o.InCluster {
		arguments := map[string]string{ // the first is an attribute since helm 3; it was a block before
			"registry.terraform.io/hashicorp/helm":       "kubernetes = {\n    config_path = %s\n  }",
			"registry.terraform.io/hashicorp/kubernetes": "config_path = %s",
		}[source]
		if arguments == "" {
			return nil, fmt.Errorf("provider %s: castle cannot write its block", source)
		}
		name := cmp.Or(names[source], path.Base(source))
		fmt.Fprintf(&b, "\nprovider %q {\n  "+arguments+"\n}\n", name, quote(o.Kubeconfig))
	}
	return b.Bytes(), nil
}

// localNames returns the module's names of its providers, by source address. A module
// that cannot be read has none here; Terraform will report its errors.
func (w workdir) localNames() map[string]string {
	names := map[string]string{}
	module, _ := tfconfig.LoadModuleFromFilesystem(tfconfig.WrapFS(ownfile.FS(w.dir)), ".")
	for name, required := range module.RequiredProviders {
		names[strings.ToLower(completed(cmp.Or(required.Source, name)))] = name
	}
	return names
}

// ProviderNames returns the names that the module in dir gives providers, by their source addresses. Of the
// sources it lacks those that neither the module nor, by the lock file, one that it calls needs.
func ProviderNames(dir string, sources ...string) map[string]string {
	names := workdir{dir: dir}.localNames()
	lock, _ := ownfile.ReadFile(filepath.Join(dir, lockFileName)) //nolint:errcheck // it may need none
	for _, source := range sources {
		if names[source] == "" && bytes.Contains(lock, []byte(strconv.Quote(source))) {
			names[source] = path.Base(source)
		}
	}
	return names
}

// inputs encodes values for a *.tfvars.json file, where each variable's type converts them.
func inputs(values map[string]cty.Value) ([]byte, error) {
	plain := map[string]json.RawMessage{}
	for name, v := range values {
		v, _ = v.UnmarkDeep()
		if !v.IsWhollyKnown() {
			return nil, fmt.Errorf("input %s: known after apply only", name)
		}
		data, err := ctyjson.Marshal(v, v.Type())
		if err != nil {
			return nil, fmt.Errorf("input %s: %w", name, err)
		}
		plain[name] = data
	}
	return json.MarshalIndent(plain, "", "  ")
}

// checkLinks refuses what Terraform and its providers would follow, or wait for, in the work directory and
// beside the state: they open files as the system does.
func (r *Root) checkLinks() error {
	_, err := ownfile.ReadDir(filepath.Dir(r.StatePath))
	if r.StatePath != "" && err != nil && !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	return filepath.WalkDir(r.Dir, func(path string, d fs.DirEntry, err error) error {
		info, unknown := os.Lstat(path)
		if errors.Is(unknown, fs.ErrNotExist) { // removed meanwhile, or before the first use
			return nil
		}
		if err = cmp.Or(err, unknown); err != nil || d.Type()&fs.ModeSymlink != 0 && r.isInstalled(path) {
			return err
		}
		return ownfile.Check(path, info)
	})
}

// isInstalled reports whether a link is one that init makes: to a provider's package in the plugin cache or
// in a mirror, or to none any more. A module that init downloads may hold links to files of modules, too.
func (r *Root) isInstalled(link string) bool {
	target, err := filepath.EvalSymlinks(link)
	leads := func(to string) bool { return err == nil && strings.HasPrefix(target, ownfile.Resolve(to)+"/") }
	modules, packages := filepath.Join(r.dataDir(), "modules"), filepath.Join(r.dataDir(), "providers")
	if strings.HasPrefix(link, modules+"/") {
		return leads(modules)
	}
	origins, _ := ReadOrigins(r.Env) //nolint:errcheck // then there is no mirror
	return strings.HasPrefix(link, packages+"/") && (errors.Is(err, fs.ErrNotExist) || leads(r.PluginCache) ||
		slices.ContainsFunc(origins.Folders, func(m method) bool { return leads(m.Path) }))
}

// discardPackages removes the providers of a work directory, which init makes again, if they hold another
// link. On a full disk init copies a package instead of linking it, with the links that are in a mirror.
func (r *Root) discardPackages() (err error) {
	packages := filepath.Join(r.dataDir(), "providers")
	refused, is := errors.AsType[*ownfile.RefusedError](r.checkLinks())
	if is && strings.HasPrefix(refused.Path, packages+"/") {
		err = ownfile.RemoveAll(packages)
	}
	return err
}
