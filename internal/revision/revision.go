// Package revision compares the objects of a stage with those of its last apply. The system that holds them
// returns a revision of each, for many objects in one call and without their content, so that every create
// can afford the look. A difference, which a controller may have caused, is a reason to look with Terraform.
package revision

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"

	"github.com/ephemeral-castle/castle/internal/gate"
	"github.com/ephemeral-castle/castle/internal/state"
)

// Object is an object that a stage has made, or that it reads.
type Object struct {
	System   string `json:"system"`            // that holds it: kubernetes
	Kind     string `json:"kind"`              // Secret
	Name     string `json:"name"`              // flux-system/flux-system, as messages name it
	Ref      string `json:"ref,omitempty"`     // where the system finds it, if Kind and Name do not tell
	Address  string `json:"address,omitempty"` // of the resource in the stage's state that it belongs to
	Revision string `json:"revision"`          // changes whenever the object does; empty if it does not exist
}

func (o Object) String() string { return o.Kind + " " + o.Name }

// System reads revisions.
type System struct {
	Name string // as in Object.System
	// Read returns the objects of a stage with their revisions. known are those of the last apply. It is nil
	// after an apply: Read then takes the objects from the stage's state, those that do not exist included.
	// It leaves out what it cannot read cheaply. A revision neither contains nor digests a secret value.
	Read func(ctx context.Context, s Stage, known []Object) ([]Object, error)
}

// Stage is what a System may use.
type Stage struct {
	Name      string
	State     *state.State
	Target    gate.Target // with the caller's environment
	InCluster []string    // source addresses of the providers that castle connects to the cluster
	// Preflights have their arguments, by type. They name the datacenter and the Vault.
	Preflights map[string]gate.Values
	// Argument evaluates an argument of a provider's block; empty if it is not set.
	Argument func(provider, argument string) string
	// Ignores reports whether Terraform leaves a resource as it is, whatever changes.
	Ignores func(typ, name string) bool
	// Secrets lists the names that the stage reads from a secret store; none if it may read any.
	Secrets func() []string
}

// Recorded is the document of a stage's objects after its last apply.
func Recorded(dir *state.Stage) state.Document[[]Object] {
	return state.StageDocument[[]Object](dir, "revisions")
}

// Read reads all systems at once; see System.Read.
func Read(ctx context.Context, systems []System, s Stage, known []Object) ([]Object, error) {
	found, errs := make([][]Object, len(systems)), make([]error, len(systems))
	var all sync.WaitGroup
	for i, system := range systems {
		own := slices.DeleteFunc(slices.Clone(known), func(o Object) bool { return o.System != system.Name })
		if known != nil && len(own) == 0 {
			continue
		}
		all.Go(func() { found[i], errs[i] = system.Read(ctx, s, own) })
	}
	all.Wait()
	return slices.Concat(found...), errors.Join(errs...)
}

// Difference is an object that differs from the last apply.
type Difference struct {
	Object Object
	Now    Change
}

// Change is how an object differs.
type Change string

// The changes.
const (
	Absent  Change = "is absent"
	Changed Change = "has changed"
	New     Change = "is new"
)

func (d Difference) String() string { return fmt.Sprintf("%s %s", d.Object, d.Now) }

// Compare lists the differences: absent objects first, then by name.
func Compare(was, now []Object) []Difference {
	var all []Difference
	same := func(a Object) func(Object) bool {
		return func(b Object) bool {
			return a.System == b.System && a.Kind == b.Kind && a.Name == b.Name && a.Ref == b.Ref
		}
	}
	for _, old := range was {
		switch i := slices.IndexFunc(now, same(old)); {
		case i < 0 || now[i].Revision == "":
			all = append(all, Difference{old, Absent})
		case now[i].Revision != old.Revision:
			all = append(all, Difference{old, Changed})
		}
	}
	for _, o := range now {
		if !slices.ContainsFunc(was, same(o)) {
			all = append(all, Difference{o, New})
		}
	}
	rank := func(d Difference) int { return slices.Index([]Change{Absent, Changed, New}, d.Now) }
	slices.SortStableFunc(all, func(a, b Difference) int {
		return cmp.Or(rank(a)-rank(b), cmp.Compare(a.String(), b.String()))
	})
	return all
}
