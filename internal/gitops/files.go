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

// files is the repository as kustomize sees it: the folder on the disk and nothing
// outside of it, with one file more, or another one, where Flux would write one.
type files struct {
	filesys.FileSystem
	root     string // absolute, without symbolic links
	instead  string // absolute: the file that is not read from the disk
	contents []byte
}

// with replaces one file, or adds it.
func (f *files) with(file string, contents []byte) *files {
	return &files{FileSystem: filesys.MakeFsOnDisk(), root: f.root, instead: f.absolute(file), contents: contents}
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

// manifests is what Flux takes of a folder without a kustomization.yaml: all
// manifests below it, and of folders that have one, that.
func (f *files) manifests(folder string) ([]string, error) {
	var all []string
	base := f.absolute(folder)
	err := filepath.WalkDir(base, func(p string, e os.DirEntry, err error) error {
		if err != nil || p == base {
			return err
		}
		name, err := filepath.Rel(base, p)
		if err != nil {
			return err
		}
		switch {
		case slices.Contains(notManifests(), e.Name()):
			if e.IsDir() {
				return filepath.SkipDir
			}
		case e.IsDir():
			if f.kustomizationFile(path.Join(folder, filepath.ToSlash(name))) != "" {
				all = append(all, filepath.ToSlash(name))
				return filepath.SkipDir
			}
		case strings.HasSuffix(name, ".yaml"), strings.HasSuffix(name, ".yml"):
			all = append(all, filepath.ToSlash(name))
		}
		return nil
	})
	return all, err
}

// notManifests is what Flux's source-controller leaves out of every repository.
func notManifests() []string {
	return []string{
		".git", ".github", ".circleci", ".travis.yml", ".gitlab-ci.yml", "appveyor.yml", ".drone.yml", "cloudbuild.yaml",
		"codeship-services.yml", "codeship-steps.yml", ".goreleaser.yml", ".sops.yaml", ".flux.yaml",
	}
}
