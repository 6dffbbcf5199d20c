package gitops

import (
	"cmp"
	"encoding/json"
	"fmt"
	"maps"
	"regexp"
	"slices"
	"strings"

	"github.com/fluxcd/pkg/envsubst"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"sigs.k8s.io/kustomize/api/types"
	"sigs.k8s.io/yaml"
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
	Ignored   []Ignored      // manifests of its folder that Git ignores
	Elsewhere string         // its source, if that is not this repository: it has no Objects

	// Decrypts tells that Flux decrypts the objects with SOPS; Keys is the Secret with the keys, "" for none.
	Decrypts bool
	Keys     string

	source string // of the manifests: "GitRepository flux-system/flux-system"
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
	HealthChecks []Checked   `json:"healthChecks"`
	SourceRef    reference   `json:"sourceRef"`
	Decryption   *struct {
		SecretRef reference `json:"secretRef"`
	} `json:"decryption"`
	PostBuild struct {
		Substitute     map[string]string `json:"substitute"`
		SubstituteFrom []VariableSource  `json:"substituteFrom"`
	} `json:"postBuild"`
}

// Checked is an object of a Kustomization's healthChecks.
type Checked struct {
	APIVersion string `json:"apiVersion"`
	Kind       string `json:"kind"`
	Namespace  string `json:"namespace"`
	Name       string `json:"name"`
}

type reference struct {
	Kind      string `json:"kind"` // of a source
	Namespace string `json:"namespace"`
	Name      string `json:"name"`
}

func (r reference) from(namespace string) Key { return Key{cmp.Or(r.Namespace, namespace), r.Name} }

// Source is the kind, namespace and name of the source of its manifests.
func (k *Kustomization) Source() string { return k.source }

// HealthChecks are the objects that must be ready beside its own; with wait: true Flux ignores them.
func (k *Kustomization) HealthChecks() []Checked {
	if k.Wait {
		return nil
	}
	return k.spec.HealthChecks
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
	k.VariablesFrom = s.PostBuild.SubstituteFrom
	if s.Decryption != nil {
		k.Decrypts, k.Keys = true, s.Decryption.SecretRef.Name
	}
	k.source = s.SourceRef.Kind + " " + s.SourceRef.from(k.Key.Namespace).String()
	for _, d := range s.DependsOn {
		k.DependsOn = append(k.DependsOn, d.from(k.Key.Namespace))
	}
	if strings.Contains(k.Path, "${") {
		return nil, fmt.Errorf("Kustomization %s: spec.path has a variable of unknown value: %s",
			k.Key, s.Path)
	}
	return k, nil
}

// Variables returns the data of a ConfigMap or Secret, and whether it exists.
type Variables func(kind, namespace, name string) (map[string]string, bool)

// Substitute replaces the ${variables} of objects, as Flux does. A source must exist unless it is optional;
// for a caller that does not know all sources, keepUnknown leaves ${name} in place instead.
func (k *Kustomization) Substitute(objects []Object, from Variables, keepUnknown bool) ([]Object, error) {
	values, complete := map[string]string{}, true
	for _, s := range k.VariablesFrom {
		var data map[string]string
		exists := false
		if from != nil {
			data, exists = from(s.Kind, k.Key.Namespace, s.Name)
		}
		complete = complete && exists
		if !exists && !s.Optional && !keepUnknown {
			return nil, fmt.Errorf("substitute from '%s/%s' error: it is not in namespace %s", s.Kind, s.Name,
				k.Key.Namespace)
		}
		maps.Copy(values, data)
	}
	maps.Copy(values, k.spec.PostBuild.Substitute)
	if len(values) == 0 {
		return objects, nil // Flux then leaves even $$ as it is
	}
	for _, name := range slices.Sorted(maps.Keys(values)) {
		if !variableName.MatchString(name) {
			return nil, fmt.Errorf("variable %s: a name has letters, digits and underscores", name)
		}
	}
	mapping := func(keep bool) func(name string) (string, bool) {
		return func(name string) (string, bool) {
			v, known := values[name]
			if !known && keep {
				v = "${" + name + "}"
			}
			// Flux is not strict: an unknown variable becomes empty.
			return strings.ReplaceAll(v, "\n", ""), true
		}
	}
	var all []Object
	for _, o := range objects {
		keep := !complete && keepUnknown
		changed, text, err := replace(o.Unstructured, mapping(keep))
		if err != nil && keep { // the default of an unknown variable may be a quote
			changed, text, err = replace(o.Unstructured, mapping(false))
		}
		if err != nil {
			return nil, fmt.Errorf("%s: %s %s: %w", o.At, o.GetKind(), o.GetName(), err)
		}
		all = append(all, Object{changed, o.At})
		if complete {
			k.noteUnset(text, all[len(all)-1], values)
		}
	}
	return all, nil
}

var (
	variableName = regexp.MustCompile(`^[_a-zA-Z][_a-zA-Z0-9]*$`)
	// plainVariable is a variable without a default, or an escaped dollar sign.
	plainVariable = regexp.MustCompile(`\$\$|\$\{([_a-zA-Z][_a-zA-Z0-9]*)\}`)
)

// noteUnset notes which variables in an object's text no source has.
func (k *Kustomization) noteUnset(text string, o Object, values map[string]string) {
	seen := map[string]bool{"": true}
	for _, found := range plainVariable.FindAllStringSubmatch(text, -1) {
		if _, known := values[found[1]]; !known && !seen[found[1]] {
			seen[found[1]] = true
			k.Unset = append(k.Unset, Unset{found[1], o})
		}
	}
}

// replace substitutes in the object's text, so that a variable may hold a number. It
// returns the text as it was; "" if the object's label or annotation forbids it.
func replace(o *unstructured.Unstructured, mapping func(string) (string, bool)) (*unstructured.Unstructured,
	string, error) {
	const label = "kustomize.toolkit.fluxcd.io/substitute"
	if o.GetLabels()[label] == "disabled" || o.GetAnnotations()[label] == "disabled" {
		return o, "", nil
	}
	text, err := yaml.Marshal(o.Object)
	if err != nil {
		return nil, "", err
	}
	replaced, err := envsubst.Eval(string(text), mapping)
	if err != nil || replaced == string(text) {
		return o, string(text), err
	}
	changed := &unstructured.Unstructured{}
	data, err := yaml.YAMLToJSON([]byte(replaced))
	if err == nil {
		err = changed.UnmarshalJSON(data)
	}
	return changed, string(text), err
}
