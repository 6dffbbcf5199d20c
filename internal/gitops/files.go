package gitops

import (
	"fmt"
	"os"
	"path"
	"path/filepath"
	"slices"
	"strings"

	"sigs.k8s.io/kustomize/api/konfig"
	"sigs.k8s.io/kustomize/kyaml/filesys"
)

// files is the repository as kustomize sees it: the folder on the disk and nothing outside of it. Some files
// may be added or replaced.
type files struct {
	filesys.FileSystem
	root     string            // absolute, without symbolic links
	replaced map[string][]byte // by absolute name: files that are not read from the disk
}

func openFolder(folder string) (*files, error) {
	root, err := filepath.Abs(folder)
	if err == nil {
		root, err = filepath.EvalSymlinks(root)
	}
	if err != nil {
		return nil, Problems{{Message: err.Error()}}
	}
	return &files{FileSystem: filesys.MakeFsOnDisk(), root: root, replaced: map[string][]byte{}}, nil
}

func (f *files) absolute(file string) string { return filepath.Join(f.root, filepath.FromSlash(file)) }

// ReadFile reads a file by its absolute name.
func (f *files) ReadFile(name string) ([]byte, error) {
	if data, is := f.replaced[name]; is {
		return data, nil
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

// Exists reports whether there is a file, a replaced one included.
func (f *files) Exists(name string) bool { return f.replaced[name] != nil || f.FileSystem.Exists(name) }

func (f *files) isFolder(folder string) bool { return f.IsDir(f.absolute(folder)) }

// kustomizationFile is the one that kustomize reads in a folder; empty: there is none.
func (f *files) kustomizationFile(folder string) string {
	for _, name := range konfig.RecognizedKustomizationFileNames() {
		file := path.Join(folder, name)
		if f.FileSystem.Exists(f.absolute(file)) && !f.isFolder(file) {
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
