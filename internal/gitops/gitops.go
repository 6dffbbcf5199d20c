// Package gitops reads a GitOps repository as Flux would: which Flux
// Kustomizations there are, in which order, and which objects each applies.
//
// How it thinks: Flux begins with one Kustomization (the root, which castle makes)
// and finds the others among the objects that this one applies. Read walks the same
// way through a local folder, and Build is one step of it, for whoever plays the
// kustomize-controller: a folder with a kustomization.yaml is built by kustomize, of
// one without all manifests are taken. Two words are alike: a Kustomization is
// Flux's object here, and kustomization.yaml is kustomize's file.
//
// Nothing is contacted: what a kustomization.yaml takes from elsewhere is a problem,
// and a Kustomization whose source is another repository has no objects here. A
// .sourceignore is not read. Every problem is reported, with file and line, before
// kustomize, whose own messages seldom have them.
package gitops

import (
	"cmp"
	"fmt"
	"path"
	"path/filepath"
	"slices"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
)

// Options say what Read reads.
type Options struct {
	Folder    string    // a local clone of the repository
	Path      string    // where the root begins in it: castle's git_path, "./clusters/blue"
	Namespace string    // of the root; empty: flux-system
	Variables Variables // what is known of the cluster's ConfigMaps and Secrets; may be nil
}

// Repository is what Flux would make of a folder.
type Repository struct {
	Folder         string
	Kustomizations []*Kustomization // the root first, each before those that it declares
}

// Place is a line of a file of the repository; Line is 0 where it is not known.
type Place struct {
	File string // relative to the repository, with slashes
	Line int
}

func (p Place) String() string {
	if p.Line == 0 {
		return p.File
	}
	return fmt.Sprintf("%s:%d", p.File, p.Line)
}

// Object is an object that a Kustomization applies, and where it is written.
type Object struct {
	*unstructured.Unstructured
	Place
}

// rootName is the name that Flux's own bootstrap and castle give the root.
const rootName = "flux-system"

// Read follows every Kustomization from the root on. The error, if there is one, is
// Problems; the repository then holds what could be read.
func Read(o Options) (*Repository, error) {
	folder, err := filepath.EvalSymlinks(o.Folder)
	if err != nil {
		return nil, Problems{{Message: err.Error()}}
	}
	if folder, err = filepath.Abs(folder); err != nil {
		return nil, Problems{{Message: err.Error()}}
	}
	r := &reader{options: o, files: &files{root: folder}, seen: map[Key]*Kustomization{}}
	root := &Kustomization{
		Key: Key{cmp.Or(o.Namespace, rootName), rootName}, Path: clean(o.Path), Prune: true,
		source: source{"GitRepository", Key{cmp.Or(o.Namespace, rootName), rootName}},
	}
	r.root = root
	r.follow(root)
	r.dependencies()
	return &Repository{Folder: o.Folder, Kustomizations: r.found}, r.problems.err()
}

// reader is one Read.
type reader struct {
	options  Options
	files    *files
	root     *Kustomization
	found    []*Kustomization
	seen     map[Key]*Kustomization
	problems Problems
}

func (r *reader) follow(k *Kustomization) {
	r.seen[k.Key] = k
	r.found = append(r.found, k)
	if k.source != r.root.source {
		k.Elsewhere = k.source.String()
		return
	}
	objects, err := build(r.files, k)
	r.problems.add(k.Place, err)
	if k.Objects, err = k.substituted(objects, r.options.Variables, keepUnknown); err != nil {
		r.problems.add(k.Place, err)
		return
	}
	for _, o := range k.Objects {
		if !IsKustomization(o.Unstructured) {
			continue
		}
		child, err := Parse(o.Unstructured)
		if err != nil {
			r.problems.add(o.Place, err)
			continue
		}
		child.Place, child.Parent = o.Place, k
		other, twice := r.seen[child.Key]
		switch {
		case twice && other == r.root: // a bootstrap of Flux's own leaves the root in the repository
		case twice:
			r.problems.add(o.Place, fmt.Errorf("Kustomization %s is declared twice; the other one is at %s", child.Key, other.Place))
		default:
			r.follow(child)
		}
	}
}

// dependencies finds what a Kustomization would wait for in vain.
func (r *reader) dependencies() {
	for _, k := range r.found {
		for _, n := range k.DependsOn {
			if r.seen[n] == nil {
				r.problems.add(k.Place, fmt.Errorf("Kustomization %s depends on %s, which the repository does not declare: it would wait for ever", k.Key, n))
			}
		}
		if cycle := r.cycle(k, nil); cycle != "" {
			r.problems.add(k.Place, fmt.Errorf("Kustomization %s depends on itself: %s", k.Key, cycle))
		}
	}
}

// cycle is the way from a Kustomization over its dependencies back to itself.
func (r *reader) cycle(k *Kustomization, way []Key) string {
	if len(way) > 0 && k.Key == way[0] {
		text := ""
		for _, n := range way {
			text += n.String() + " → "
		}
		return text + k.Key.String()
	}
	if slices.Contains(way, k.Key) {
		return "" // another one's cycle
	}
	for _, n := range k.DependsOn {
		if next := r.seen[n]; next != nil {
			if text := r.cycle(next, append(slices.Clone(way), k.Key)); text != "" {
				return text
			}
		}
	}
	return ""
}

// clean is a path inside the repository, without "./" before it.
func clean(p string) string { return path.Clean("/" + filepath.ToSlash(p))[1:] }
