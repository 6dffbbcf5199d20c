package gitops

import (
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
		return nil, Problems{{Message: fmt.Sprintf("Kustomization %s: the repository has no folder ./%s", k.Key, k.Path)}}
	}
	fields, file, err := kustomization(f, k)
	if err != nil {
		return nil, err
	}
	sources := &sources{files: f, documents: map[string][]document{}, folders: map[string]bool{}}
	if file == "" {
		file = path.Join(k.Path, konfig.DefaultKustomizationFileName())
		for _, entry := range fields["resources"].([]any) {
			sources.entry(Place{}, k.Path, entry.(string), true)
		}
	}
	sources.folder(k.Path)
	if err := sources.problems.err(); err != nil {
		return nil, err
	}
	data, err := yaml.Marshal(fields)
	if err != nil {
		return nil, err
	}
	built, err := run(f.with(file, data), f.absolute(k.Path))
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

// kustomization is what Flux has kustomize build: the folder's own file, if it has
// one, with what the Kustomization adds to it.
func kustomization(f *files, k *Kustomization) (fields map[string]any, file string, err error) {
	file = f.kustomizationFile(k.Path)
	if file == "" {
		names, err := f.manifests(k.Path)
		if err != nil {
			return nil, "", err
		}
		resources := []any{}
		for _, n := range names {
			resources = append(resources, "./"+n)
		}
		fields = map[string]any{"apiVersion": types.KustomizationVersion, "kind": types.KustomizationKind, "resources": resources}
	} else {
		data, err := f.read(file)
		if err != nil {
			return nil, "", Problems{{Place{File: file}, err.Error()}}
		}
		if err := yaml.Unmarshal(data, &fields); err != nil {
			return nil, "", Problems{yamlProblem(file, err)}
		}
		if fields == nil {
			fields = map[string]any{}
		}
	}
	s := k.spec
	set(fields, "namespace", s.TargetNamespace)
	set(fields, "namePrefix", s.NamePrefix)
	set(fields, "nameSuffix", s.NameSuffix)
	more(fields, "patches", s.Patches...)
	more(fields, "images", s.Images...)
	for _, c := range s.Components {
		more(fields, "components", c)
	}
	more(fields, "buildMetadata", types.OriginAnnotations) // where each object is written
	return fields, file, nil
}

func set(fields map[string]any, name, value string) {
	if value != "" {
		fields[name] = value
	}
}

func more(fields map[string]any, name string, values ...any) {
	if len(values) > 0 {
		have, _ := fields[name].([]any)
		fields[name] = append(have, values...)
	}
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
			err = fmt.Errorf("it gave up: %v", r)
		}
	}()
	return krusty.MakeKustomizer(&krusty.Options{
		LoadRestrictions: types.LoadRestrictionsNone, // the repository is the border, not the folder
		PluginConfig:     types.DisabledPluginConfig(),
	}).Run(f, folder)
}

// object is what was built, and where it comes from.
func (s *sources) object(k *Kustomization, r *resource.Resource) (Object, error) {
	origin, err := r.GetOrigin()
	if err != nil {
		return Object{}, err
	}
	if err := r.SetOrigin(nil); err != nil {
		return Object{}, err
	}
	data, err := r.MarshalJSON()
	if err != nil {
		return Object{}, err
	}
	o := Object{Unstructured: &unstructured.Unstructured{}}
	if err := o.UnmarshalJSON(data); err != nil {
		return Object{}, err
	}
	if common := k.spec.CommonMetadata; len(common.Labels) > 0 {
		o.SetLabels(labels.Merge(o.GetLabels(), common.Labels))
	}
	if common := k.spec.CommonMetadata; len(common.Annotations) > 0 {
		o.SetAnnotations(labels.Merge(o.GetAnnotations(), common.Annotations))
	}
	if origin != nil {
		if origin.Path == "" { // a generator made it
			o.At.File = path.Join(k.Path, origin.ConfiguredIn)
		} else {
			o.At.File = path.Join(k.Path, origin.Path)
			o.At.Line = s.line(o.At.File, o.GetKind(), o.GetName())
		}
	}
	return o, nil
}
