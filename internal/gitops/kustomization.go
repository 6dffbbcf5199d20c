package gitops

import (
	"cmp"
	"encoding/json"
	"fmt"
	"strings"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"sigs.k8s.io/kustomize/api/types"
)

// Kustomization is one of Flux's: a folder and how it is applied.
type Kustomization struct {
	Key       Key
	Path      string // in the repository: "infrastructure/controllers"; empty is its root
	DependsOn []Key
	Wait      bool // ready only when all its objects are
	Suspend   bool

	VariablesFrom []VariableSource // postBuild.substituteFrom

	At        Place          // where it is declared; none for the root
	Parent    *Kustomization // that declares it; nil for the root
	Objects   []Object       // what it applies, as far as its variables are known
	Unset     []Unset        // variables that would become empty
	Elsewhere string         // its source, if that is not this repository: it has no Objects

	source source
	spec   spec
}

// Key is a namespace and a name in it.
type Key struct{ Namespace, Name string }

func (n Key) String() string { return n.Namespace + "/" + n.Name }

// VariableSource is a ConfigMap or Secret, in the Kustomization's namespace, that variables come from.
type VariableSource struct {
	Kind     string `json:"kind"`
	Name     string `json:"name"`
	Optional bool   `json:"optional"`
}

// Unset is a variable of an object that no source has, and that has no default.
type Unset struct {
	Variable string
	Object   Object
}

// source is where the manifests come from.
type source struct {
	kind string
	key  Key
}

func (s source) String() string { return s.kind + " " + s.key.String() }

// spec holds the fields of a Kustomization's spec that Read needs.
type spec struct {
	TargetNamespace string        `json:"targetNamespace"`
	NamePrefix      string        `json:"namePrefix"`
	NameSuffix      string        `json:"nameSuffix"`
	Patches         []types.Patch `json:"patches"`
	Images          []types.Image `json:"images"`
	Components      []string      `json:"components"`
	CommonMetadata  struct {
		Labels      map[string]string `json:"labels"`
		Annotations map[string]string `json:"annotations"`
	} `json:"commonMetadata"`

	Path         string      `json:"path"`
	Wait         bool        `json:"wait"`
	Suspend      bool        `json:"suspend"`
	DependsOn    []reference `json:"dependsOn"`
	HealthChecks []any       `json:"healthChecks"`
	SourceRef    reference   `json:"sourceRef"`
	PostBuild    struct {
		Substitute     map[string]string `json:"substitute"`
		SubstituteFrom []VariableSource  `json:"substituteFrom"`
	} `json:"postBuild"`
}

type reference struct {
	Kind      string `json:"kind"` // of a source
	Namespace string `json:"namespace"`
	Name      string `json:"name"`
}

func (r reference) from(namespace string) Key {
	return Key{cmp.Or(r.Namespace, namespace), r.Name}
}

// Waits reports whether the Kustomization is ready only when its objects are ready.
func (k *Kustomization) Waits() bool { return k.Wait || len(k.spec.HealthChecks) > 0 }

// IsKustomization reports whether an object is a Kustomization of Flux's.
func IsKustomization(o *unstructured.Unstructured) bool {
	return o.GetKind() == "Kustomization" && o.GroupVersionKind().Group == "kustomize.toolkit.fluxcd.io"
}

// Parse reads a Kustomization of Flux's.
func Parse(o *unstructured.Unstructured) (*Kustomization, error) {
	k := &Kustomization{Key: Key{o.GetNamespace(), o.GetName()}}
	s := &k.spec
	data, err := json.Marshal(o.Object["spec"])
	if err == nil {
		err = json.Unmarshal(data, s)
	}
	if err != nil {
		return nil, fmt.Errorf("Kustomization %s: spec: %w", k.Key, err)
	}
	if s.SourceRef.Name == "" {
		return nil, fmt.Errorf("Kustomization %s: spec.sourceRef names no source", k.Key)
	}
	k.Path, k.Wait, k.Suspend = clean(s.Path), s.Wait, s.Suspend
	k.source = source{s.SourceRef.Kind, s.SourceRef.from(k.Key.Namespace)}
	k.VariablesFrom = s.PostBuild.SubstituteFrom
	for _, d := range s.DependsOn {
		k.DependsOn = append(k.DependsOn, d.from(k.Key.Namespace))
	}
	if strings.Contains(k.Path, "${") {
		return nil, fmt.Errorf("Kustomization %s: spec.path has a variable of unknown value: %s",
			k.Key, s.Path)
	}
	return k, nil
}
