package gitops

import (
	"cmp"
	"errors"
	"fmt"
	"os"
	"path"
	"path/filepath"
	"slices"
	"strings"
	"sync"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/labels"
	"sigs.k8s.io/kustomize/api/konfig"
	"sigs.k8s.io/kustomize/api/krusty"
	"sigs.k8s.io/kustomize/api/resmap"
	"sigs.k8s.io/kustomize/api/resource"
	"sigs.k8s.io/kustomize/api/types"
	"sigs.k8s.io/kustomize/kyaml/filesys"
	"sigs.k8s.io/yaml"
)

// Build returns the objects of a Kustomization before substitution. The error, if any, is Problems.
func Build(folder string, k *Kustomization) ([]Object, error) { return build(folder, k, nil) }

// build calls seen, which may be nil, with each file that it reads.
func build(folder string, k *Kustomization, seen func(file string)) ([]Object, error) {
	f, err := openFolder(folder)
	if err != nil {
		return nil, err
	}
	f.seen = seen
	if !f.isFolder(k.Path) {
		return nil, Problems{{Message: "Kustomization " + k.Key.String() +
			": the repository has no folder ./" + k.Path}}
	}
	if err := f.leftOut("./"+k.Path, k.Path); err != nil {
		return nil, Problems{{Message: "Kustomization " + k.Key.String() + ": " + err.Error()}}
	}
	sources := &sources{files: f, documents: map[string][]document{}}
	fields, file := sources.folder(k.Path), f.kustomizationFile(k.Path)
	if file == "" {
		file = path.Join(k.Path, konfig.DefaultKustomizationFileName())
		names, err := f.manifests(k)
		if err != nil {
			return nil, err
		}
		for _, name := range names {
			fields.Resources = append(fields.Resources, "./"+name)
			sources.entry(Place{}, k.Path, name, true)
		}
	}
	if err := sources.problems.err(); err != nil {
		return nil, err
	}
	data, err := yaml.Marshal(k.spec.addTo(fields))
	if err != nil {
		return nil, err
	}
	f.replaced[f.absolute(file)] = data
	built, err := run(f, f.absolute(k.Path))
	if err != nil {
		if twice, is := sources.twice(); is && strings.Contains(err.Error(), "already registered id") {
			return nil, Problems{twice}
		}
		text := strings.ReplaceAll(err.Error(), f.root+"/", "")
		return nil, Problems{{Place{File: file}, "kustomize cannot build it: " + text}}
	}
	var all []Object
	for _, r := range built.Resources() {
		o, err := sources.object(k, r)
		if err != nil {
			return nil, Problems{{Place{File: file}, err.Error()}}
		}
		all = append(all, o)
	}
	return all, nil
}

// addTo adds the fields to a kustomization.yaml that Flux passes to kustomize.
func (s spec) addTo(k types.Kustomization) types.Kustomization {
	k.FixKustomization()
	k.Namespace = cmp.Or(s.TargetNamespace, k.Namespace)
	k.NamePrefix, k.NameSuffix = cmp.Or(s.NamePrefix, k.NamePrefix), cmp.Or(s.NameSuffix, k.NameSuffix)
	k.Patches, k.Images = append(k.Patches, s.Patches...), append(k.Images, s.Images...)
	k.Components = append(k.Components, s.Components...)
	k.BuildMetadata = append(k.BuildMetadata, types.OriginAnnotations) // where each object is written
	return k
}

// kustomizing keeps builds apart: kustomize has variables that all of them share
// (https://github.com/kubernetes-sigs/kustomize/issues/3659).
var kustomizing sync.Mutex

// run builds a folder. kustomize panics on some objects, as its users know.
func run(f *files, folder string) (built resmap.ResMap, err error) {
	kustomizing.Lock()
	defer kustomizing.Unlock()
	defer func() {
		if r := recover(); r != nil {
			err = fmt.Errorf("it panicked: %v", r)
		}
	}()
	return krusty.MakeKustomizer(&krusty.Options{
		LoadRestrictions: types.LoadRestrictionsNone, // files keeps it inside of the repository
		PluginConfig:     types.DisabledPluginConfig(),
	}).Run(f, folder)
}

// object returns a built resource as an Object, with its place in the sources.
func (s *sources) object(k *Kustomization, r *resource.Resource) (Object, error) {
	o := Object{Unstructured: &unstructured.Unstructured{}}
	origin, originErr := r.GetOrigin()
	resetErr := r.SetOrigin(nil)
	data, err := r.MarshalJSON()
	if err == nil {
		err = o.UnmarshalJSON(data)
	}
	if err := errors.Join(originErr, resetErr, err); err != nil {
		return o, err
	}
	common := k.spec.CommonMetadata
	if len(common.Labels) > 0 {
		o.SetLabels(labels.Merge(o.GetLabels(), common.Labels))
	}
	if len(common.Annotations) > 0 {
		o.SetAnnotations(labels.Merge(o.GetAnnotations(), common.Annotations))
	}
	if origin != nil { // a generator's object has no Path, and no line
		o.At.File = path.Join(k.Path, cmp.Or(origin.Path, origin.ConfiguredIn))
		o.At.Line = s.line(o.At.File, o.GetKind(), o.GetName())
	}
	return o, nil
}

// files is the folder on the disk, and nothing outside of it, with some files added or replaced.
type files struct {
	filesys.FileSystem
	root     string            // absolute, without symbolic links
	replaced map[string][]byte // by absolute name: files that are not read from the disk
	rules    map[string][]ignoreRule
	index    []byte // of Git
	seen     func(file string)
}

func openFolder(folder string) (*files, error) {
	root, err := filepath.Abs(folder)
	if err == nil {
		root, err = filepath.EvalSymlinks(root)
	}
	if err != nil {
		return nil, Problems{{Message: err.Error()}}
	}
	return &files{FileSystem: filesys.MakeFsOnDisk(), root: root, replaced: map[string][]byte{},
		rules: map[string][]ignoreRule{}}, nil
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
	inside, err := filepath.Rel(f.root, real)
	if err != nil || !filepath.IsLocal(inside) {
		return nil, fmt.Errorf("%s is outside of the repository", name)
	}
	data, err := os.ReadFile(real)
	if err == nil && f.seen != nil { // kustomize also tries folders
		f.seen(filepath.ToSlash(inside))
	}
	return data, err
}

// Exists reports whether there is a file, a replaced one included.
func (f *files) Exists(name string) bool { return f.replaced[name] != nil || f.FileSystem.Exists(name) }

func (f *files) isFolder(folder string) bool { return f.IsDir(f.absolute(folder)) }

// kustomizationFile is the one that kustomize reads in a folder; empty: there is none.
func (f *files) kustomizationFile(folder string) string {
	for _, name := range konfig.RecognizedKustomizationFileNames() {
		if file := path.Join(folder, name); f.FileSystem.Exists(f.absolute(file)) && !f.isFolder(file) {
			return file
		}
	}
	return ""
}

// ignored lists the files that Flux's source-controller leaves out of every repository.
const ignored = " .git .github .circleci .travis.yml .gitlab-ci.yml appveyor.yml .drone.yml cloudbuild.yaml" +
	" codeship-services.yml codeship-steps.yml .goreleaser.yml .sops.yaml .flux.yaml "

// manifests lists the files that Flux applies from a folder without a kustomization.yaml: all manifests
// below it, and folders that have a kustomization.yaml. It notes those that Git ignores.
func (f *files) manifests(k *Kustomization) ([]string, error) {
	var all []string
	base := f.absolute(k.Path)
	err := filepath.WalkDir(base, func(p string, e os.DirEntry, err error) error {
		if err != nil || p == base {
			return err
		}
		name := filepath.ToSlash(strings.TrimPrefix(p, base+string(filepath.Separator)))
		built := e.IsDir() && f.kustomizationFile(path.Join(k.Path, name)) != ""
		manifest := !e.IsDir() && slices.Contains([]string{".yaml", ".yml"}, path.Ext(name))
		skip := strings.Contains(ignored, " "+e.Name()+" ")
		by, out := f.ignored(path.Join(k.Path, name))
		switch {
		case skip || !built && !manifest:
		case !out:
			all = append(all, name)
		case path.Base(by.File) == gitIgnore:
			k.Ignored = append(k.Ignored, Ignored{path.Join(k.Path, name), by})
		}
		if e.IsDir() && (skip || built) {
			return filepath.SkipDir
		}
		return nil
	})
	return all, err
}
