package gitops

//lint:file-ignore SA1019 repositories still use the patch fields that kustomize has deprecated

import (
	"fmt"
	"os"
	"path"
	"path/filepath"
	"slices"
	"strings"

	"sigs.k8s.io/kustomize/api/konfig"
	"sigs.k8s.io/kustomize/api/types"
	"sigs.k8s.io/kustomize/kyaml/filesys"
	"sigs.k8s.io/yaml"
)

// files is the repository as kustomize sees it: the folder on the disk and nothing outside of it. One file
// may be added or replaced, where Flux would write one.
type files struct {
	filesys.FileSystem
	root     string // absolute, without symbolic links
	instead  string // absolute: the file that is not read from the disk
	contents []byte
}

func openFolder(folder string) (*files, error) {
	root, err := filepath.Abs(folder)
	if err == nil {
		root, err = filepath.EvalSymlinks(root)
	}
	if err != nil {
		return nil, Problems{{Message: err.Error()}}
	}
	return &files{root: root}, nil
}

// with replaces one file, or adds it.
func (f *files) with(file string, contents []byte) *files {
	return &files{FileSystem: filesys.MakeFsOnDisk(), root: f.root, instead: f.absolute(file),
		contents: contents}
}

func (f *files) absolute(file string) string { return filepath.Join(f.root, filepath.FromSlash(file)) }

// ReadFile reads a file for kustomize, by its absolute path.
func (f *files) ReadFile(name string) ([]byte, error) {
	data, err := f.raw(name)
	if err == nil && slices.Contains(konfig.RecognizedKustomizationFileNames(), filepath.Base(name)) {
		data = undeprecated(data)
	}
	return data, err
}

func (f *files) raw(name string) ([]byte, error) {
	if f.instead != "" && name == f.instead {
		return f.contents, nil
	}
	real, err := filepath.EvalSymlinks(name)
	if err != nil {
		return nil, err
	}
	if inside, err := filepath.Rel(f.root, real); err != nil || !filepath.IsLocal(inside) {
		return nil, fmt.Errorf("%s is outside of the repository", name)
	}
	return os.ReadFile(real)
}

// Exists reports whether there is a file, the replaced one included.
func (f *files) Exists(name string) bool {
	return f.instead != "" && name == f.instead || f.FileSystem.Exists(name)
}

func (f *files) read(file string) ([]byte, error) { return f.raw(f.absolute(file)) }

func (f *files) isFolder(folder string) bool {
	info, err := os.Stat(f.absolute(folder))
	return err == nil && info.IsDir()
}

// kustomizationFile is the one that kustomize reads in a folder; empty: there is none.
func (f *files) kustomizationFile(folder string) string {
	for _, name := range konfig.RecognizedKustomizationFileNames() {
		file := path.Join(folder, name)
		if info, err := os.Stat(f.absolute(file)); err == nil && !info.IsDir() {
			return file
		}
	}
	return ""
}

// ignored lists the files that Flux's source-controller leaves out of every repository.
const ignored = " .git .github .circleci .travis.yml .gitlab-ci.yml appveyor.yml .drone.yml cloudbuild.yaml" +
	" codeship-services.yml codeship-steps.yml .goreleaser.yml .sops.yaml .flux.yaml "

// manifests lists the files that Flux applies from a folder without a kustomization.yaml: all manifests
// below it, and folders that have a kustomization.yaml.
func (f *files) manifests(folder string) ([]string, error) {
	var all []string
	base := f.absolute(folder)
	err := filepath.WalkDir(base, func(p string, e os.DirEntry, err error) error {
		if err != nil || p == base {
			return err
		}
		name := filepath.ToSlash(strings.TrimPrefix(p, base+string(filepath.Separator)))
		built := e.IsDir() && f.kustomizationFile(path.Join(folder, name)) != ""
		manifest := !e.IsDir() && slices.Contains([]string{".yaml", ".yml"}, path.Ext(name))
		skip := strings.Contains(ignored, " "+e.Name()+" ")
		if !skip && (built || manifest) {
			all = append(all, name)
		}
		if e.IsDir() && (skip || built) {
			return filepath.SkipDir
		}
		return nil
	})
	return all, err
}

// undeprecated moves a kustomization.yaml's deprecated fields to their successors.
// kustomize accepts the old ones, but would warn of each on this process's stderr.
func undeprecated(data []byte) []byte {
	k := types.Kustomization{}
	if err := yaml.UnmarshalStrict(data, &k); err != nil || len(*k.CheckDeprecatedFields()) == 0 {
		return data // kustomize reports an error
	}
	// kustomize's own conversion would look for files in the working directory
	for _, p := range k.PatchesStrategicMerge {
		if patch := string(p); strings.Contains(patch, "\n") {
			k.Patches = append(k.Patches, types.Patch{Patch: patch})
		} else {
			k.Patches = append(k.Patches, types.Patch{Path: patch})
		}
	}
	k.PatchesStrategicMerge = nil
	k.FixKustomization()
	if err := k.FixKustomizationPreMarshalling(nil); err != nil {
		return data
	}
	changed, err := yaml.Marshal(k)
	if err != nil {
		return data
	}
	return changed
}
