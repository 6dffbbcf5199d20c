package gitops

import (
	"cmp"
	"errors"
	"fmt"
	"path"
	"strings"
	"sync"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/labels"
	"sigs.k8s.io/kustomize/api/konfig"
	"sigs.k8s.io/kustomize/api/krusty"
	"sigs.k8s.io/kustomize/api/resmap"
	"sigs.k8s.io/kustomize/api/resource"
	"sigs.k8s.io/kustomize/api/types"
	"sigs.k8s.io/yaml"
)

// Build returns the objects that a Kustomization applies, before variables are
// substituted. The error, if there is one, is Problems.
func Build(folder string, k *Kustomization) ([]Object, error) {
	f, err := openFolder(folder)
	if err != nil {
		return nil, err
	}
	return build(f, k)
}

func build(f *files, k *Kustomization) ([]Object, error) {
	if !f.isFolder(k.Path) {
		return nil, Problems{{Message: fmt.Sprintf("Kustomization %s: the repository has no folder ./%s", k.Key,
			k.Path)}}
	}
	clear(f.replaced)
	sources := &sources{files: f, documents: map[string][]document{}, folders: map[string]bool{}}
	fields, file := sources.folder(k.Path), f.kustomizationFile(k.Path)
	if file == "" {
		file = path.Join(k.Path, konfig.DefaultKustomizationFileName())
		names, err := f.manifests(k.Path)
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
	origin, err := r.GetOrigin()
	err = errors.Join(err, r.SetOrigin(nil))
	data, marshalErr := r.MarshalJSON()
	o := Object{Unstructured: &unstructured.Unstructured{}}
	if err := errors.Join(err, marshalErr); err != nil {
		return o, err
	}
	if err := o.UnmarshalJSON(data); err != nil {
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
