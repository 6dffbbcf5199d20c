// Package gitops reads a GitOps repository as Flux would: which Flux Kustomizations there are, in which
// order, and which objects each applies. Read follows them through a local folder; Build is a step.
//
// Read contacts nothing: a remote resource is a problem, and a Kustomization of another source has no
// objects. It leaves out what .sourceignore and .gitignore keep out of Flux's copy. It reports every problem
// with file and line before kustomize runs, whose messages seldom have them.
//
// github.com/fluxcd/pkg/kustomize v1.40.0 is not used: its Build reloads kustomize's OpenAPI schema each
// time, 430 ms instead of 1 ms; it stops at the first unreadable manifest, and adds 140 packages.
package gitops

import (
	"cmp"
	"errors"
	"fmt"
	"maps"
	"path"
	"path/filepath"
	"slices"
	"strings"

	"github.com/siderolabs/gen/xslices"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"github.com/ephemeral-castle/castle/internal/graph"
)

// Options configure Read.
type Options struct {
	Folder    string    // a local clone of the repository
	Path      string    // where the root begins in it: castle's git_path, "./clusters/blue"
	Source    string    // kind of the root's source; empty: GitRepository
	Namespace string    // of the root; empty: flux-system
	Variables Variables // the known ConfigMaps and Secrets of the cluster; may be nil
	// RootVariables is the ConfigMap from which the root substitutes, too; empty: none.
	RootVariables string
	// RootKeys is the Secret with which the root decrypts; empty: it does not.
	RootKeys string
	Seen     func(file string) // is called with each file that Read reads, relative to Folder; may be nil
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
	At Place
}

// Problem is a mistake in the repository, and where it is written.
type Problem struct {
	At      Place
	Message string
}

func (p Problem) Error() string {
	return strings.TrimPrefix(p.At.String()+": "+p.Message, ": ")
}

// Problems are all mistakes of a repository, by file and line.
type Problems []Problem

func (p Problems) Error() string {
	return strings.Join(xslices.Map(p, Problem.Error), "\n")
}

// add adds an error; Problems keep the places that they have.
func (p *Problems) add(at Place, err error) {
	var several Problems
	switch {
	case err == nil:
	case errors.As(err, &several):
		for _, one := range several {
			if one.At.File == "" {
				one.At = at
			}
			*p = append(*p, one)
		}
	default:
		*p = append(*p, Problem{at, err.Error()})
	}
}

// err is nil without problems, and has each once: two Kustomizations may read one file.
func (p Problems) err() error {
	if len(p) == 0 {
		return nil
	}
	slices.SortStableFunc(p, func(a, b Problem) int {
		return cmp.Or(cmp.Compare(a.At.File, b.At.File), cmp.Compare(a.At.Line, b.At.Line))
	})
	return slices.Compact(p)
}

// rootName is the name that Flux's own bootstrap and castle give the root.
const rootName = "flux-system"

// Read returns the Kustomizations that Flux would apply: the root first, each before those that it declares.
// A non-nil error is Problems; the Kustomizations are then everything that Read could read.
func Read(o Options) ([]*Kustomization, error) {
	key := Key{cmp.Or(o.Namespace, rootName), rootName}
	root := &Kustomization{Key: key, Path: clean(o.Path), Decrypts: o.RootKeys != "", Keys: o.RootKeys,
		source: cmp.Or(o.Source, "GitRepository") + " " + key.String()}
	if o.RootVariables != "" {
		root.VariablesFrom = []VariableSource{{Kind: "ConfigMap", Name: o.RootVariables}}
	}
	r := &reader{options: o, seen: map[Key]*Kustomization{}, root: root}
	r.follow(root)
	r.checkDependencies()
	return r.found, r.problems.err()
}

// reader is one Read.
type reader struct {
	options  Options
	root     *Kustomization
	found    []*Kustomization
	seen     map[Key]*Kustomization
	problems Problems
}

func (r *reader) follow(k *Kustomization) {
	r.seen[k.Key] = k
	r.found = append(r.found, k)
	if k.source != r.root.source {
		k.Elsewhere = k.source
		return
	}
	objects, err := build(r.options.Folder, k, r.options.Seen)
	r.problems.add(k.At, err)
	if k.Objects, err = k.Substitute(objects, r.options.Variables, true); err != nil {
		r.problems.add(k.At, err)
		return
	}
	for _, o := range k.Objects {
		if !IsKustomization(o.Unstructured) {
			continue
		}
		child, err := Parse(o.Unstructured)
		if err != nil {
			r.problems.add(o.At, err)
			continue
		}
		child.At, child.Parent = o.At, k
		other, twice := r.seen[child.Key]
		switch {
		case twice && other == r.root: // a bootstrap of Flux's own leaves the root in the repository
		case twice:
			r.problems.add(o.At, fmt.Errorf("Kustomization %s is declared twice; the other one is at %s",
				child.Key, other.At))
		default:
			r.follow(child)
		}
	}
}

// checkDependencies finds dependencies that would never be ready.
func (r *reader) checkDependencies() {
	needs := func(key Key) []Key {
		k := r.seen[key]
		all := slices.Clone(k.DependsOn)
		if k.Parent != nil { // who applies it waits for these first
			all = append(all, k.Parent.DependsOn...)
		}
		for _, child := range r.found {
			if child.Parent == k && k.Wait && !child.Suspend {
				all = append(all, child.Key)
			}
		}
		return all
	}
	for _, k := range r.found {
		for _, n := range k.DependsOn {
			if r.seen[n] == nil {
				r.problems.add(k.At,
					fmt.Errorf("Kustomization %s depends on %s, which the repository does not declare: "+
						"it never starts", k.Key, n))
			}
		}
		_, err := graph.Sort(append([]Key{k.Key}, slices.Collect(maps.Keys(r.seen))...), needs)
		if cycle, is := errors.AsType[*graph.CycleError[Key]](err); is && cycle.Path[0] == k.Key {
			var path []string
			why := ""
			for i, n := range cycle.Path {
				path = append(path, n.String())
				if i > 0 && !slices.Contains(r.seen[cycle.Path[i-1]].DependsOn, n) {
					why = "; with wait: true, a Kustomization waits for those that it declares, and what " +
						"it declares comes after what it depends on"
				}
			}
			r.problems.add(k.At, fmt.Errorf("Kustomization %s depends on itself: %s%s", k.Key,
				strings.Join(path, " → "), why))
		}
	}
}

// clean is a path inside the repository, without "./" before it.
func clean(p string) string { return path.Clean("/" + filepath.ToSlash(p))[1:] }
