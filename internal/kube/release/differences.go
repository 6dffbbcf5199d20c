package release

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"maps"
	"reflect"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/siderolabs/gen/xslices"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/wait"

	"github.com/ephemeral-castle/castle/internal/gate"
	"github.com/ephemeral-castle/castle/internal/kube/client"
)

// Difference is an object of a release that is not as the manifest has it. It never holds a value.
type Difference struct {
	Object Object   `json:"object"`
	Absent bool     `json:"absent,omitempty"` // or being deleted
	Paths  []string `json:"paths,omitempty"`  // the changed fields of one that exists
}

// Differences compares each object of a release's manifest with the live one, in the manifest's order. The
// error joins the objects that could not be compared; the differences of the others come with it. A CA
// bundle belongs to the controller that injects it, and a Job that is gone has done its work.
func Differences(ctx context.Context, target gate.Target, namespace, name string) ([]Difference, error) {
	var found []Difference
	err := do(ctx, target, func(ctx context.Context, a *client.API) error {
		differing, err := compareAll(ctx, a, namespace, name)
		found = append(found, xslices.Map(differing, func(d different) Difference { return d.is })...)
		return err
	})
	return found, err
}

// Restore applies each object of a release's manifest that differs from the live one, and returns those
// that it has applied. It deletes nothing, and refuses an object that another release owns.
func Restore(ctx context.Context, target gate.Target, namespace, name string) ([]Difference, error) {
	var restored []Difference
	err := do(ctx, target, func(ctx context.Context, a *client.API) error {
		differing, err := compareAll(ctx, a, namespace, name)
		if err != nil {
			return err
		}
		for _, d := range differing {
			if err := d.restore(ctx, a, namespace, name); err != nil {
				return fmt.Errorf("release %s/%s: %s: %w", namespace, name, d.is.Object, a.Explain(err))
			}
			restored = append(restored, d.is)
		}
		return nil
	})
	return restored, err
}

// different is a difference with the object of the manifest.
type different struct {
	is     Difference
	wanted manifested
}

// atOnce bounds the requests of one comparison that are under way.
const atOnce = 8

func compareAll(ctx context.Context, a *client.API, namespace, name string) ([]different, error) {
	all, err := manifest(ctx, a, namespace, name)
	if err != nil {
		return nil, err
	}
	found, errs := make([]*Difference, len(all)), make([]error, len(all))
	var comparing sync.WaitGroup
	slots := make(chan struct{}, atOnce)
	for i, m := range all {
		slots <- struct{}{}
		comparing.Go(func() {
			defer func() { <-slots }()
			if found[i], errs[i] = m.compare(ctx, a); errs[i] != nil {
				errs[i] = fmt.Errorf("%s: %w", m.object, a.Explain(errs[i]))
			}
		})
	}
	comparing.Wait()
	var differing []different
	for i, d := range found {
		if d != nil {
			differing = append(differing, different{is: *d, wanted: all[i]})
		}
	}
	return differing, errors.Join(errs...)
}

// attempts bounds the comparisons of an object that changes meanwhile.
const attempts = 5

// compare returns the object's difference; nil if there is none.
func (m manifested) compare(ctx context.Context, a *client.API) (*Difference, error) {
	absent := &Difference{Object: m.object, Absent: true}
	if m.object.Kind == "Job" && strings.HasPrefix(m.object.APIVersion, "batch/") {
		absent = nil // a Job with a time to live deletes itself
	}
	if m.in.Name == "" {
		return absent, nil
	}
	wanted := m.withoutBundles()
	for attempt := 1; ; attempt++ {
		live, err := a.Get(ctx, m.in, m.object.Kind)
		switch {
		case gate.KindOf(err) == gate.NotFound:
			return absent, nil
		case err != nil:
			return nil, err
		case live.GetDeletionTimestamp() != nil:
			return absent, nil
		case covers(live.Object, wanted.Object):
			return nil, nil
		}
		applied, err := m.apply(ctx, a, wanted, metav1.DryRunAll)
		if refused := apierrors.APIStatus(nil); apierrors.IsInvalid(err) && errors.As(err, &refused) {
			return &Difference{Object: m.object, Paths: fieldsOf(refused.Status())}, nil
		}
		if err != nil {
			return nil, err
		}
		same := applied.GetResourceVersion() == live.GetResourceVersion()
		paths := changed("", withoutMetadata(live).Object, withoutMetadata(applied).Object)
		switch {
		case len(paths) == 0:
			return nil, nil
		case same || attempt == attempts:
			return &Difference{Object: m.object, Paths: paths}, nil
		}
	}
}

// manager is the name under which the API server records what castle writes.
const manager = "castle"

// apply sends an object as castle's, or in a dry run. It takes fields over that somebody else has set since.
func (m manifested) apply(ctx context.Context, a *client.API, o *client.Object, dryRun ...string) (
	*client.Object, error) {
	return a.Dynamic.Resource(m.in.Resource).Namespace(m.in.Namespace).Apply(ctx, m.object.Name, o,
		metav1.ApplyOptions{FieldManager: manager, Force: true, DryRun: dryRun})
}

// again is the pause between two looks at the cluster while it catches up.
const again = 200 * time.Millisecond

// restore creates or applies the object of the manifest. The kind of one whose definition was restored before
// is served a moment later, and one that is being deleted goes first.
func (d different) restore(ctx context.Context, a *client.API, namespace, name string) error {
	m := d.wanted
	err := wait.PollUntilContextCancel(ctx, again, true, func(ctx context.Context) (done bool, err error) {
		if m.in.Name == "" {
			m, err = located(ctx, a, m.wanted, namespace, name)
			if err != nil || m.in.Name == "" {
				return false, err
			}
		}
		live, err := a.Get(ctx, m.in, m.object.Kind)
		if gate.KindOf(err) == gate.NotFound {
			return true, nil
		}
		if err != nil || live.GetDeletionTimestamp() != nil {
			return false, err
		}
		has := live.GetAnnotations()
		inNamespace, of := cmp.Or(has[releaseNamespace], namespace), cmp.Or(has[releaseName], name)
		if inNamespace != namespace || of != name {
			return false, gate.Permanent(fmt.Errorf("it belongs to release %s/%s", inNamespace, of))
		}
		return true, nil
	})
	if err != nil {
		return err
	}
	if !d.is.Absent {
		_, err = m.apply(ctx, a, m.withoutBundles())
		return err
	}
	// An apply would own the bundle, and the next one without it would remove it.
	_, err = a.Dynamic.Resource(m.in.Resource).Namespace(m.in.Namespace).Create(ctx, m.wanted,
		metav1.CreateOptions{FieldManager: manager})
	return err
}

// withoutBundles is the object without the CA bundles that controllers inject into it.
func (m manifested) withoutBundles() *client.Object {
	o := m.wanted.DeepCopy()
	group, _, _ := strings.Cut(m.object.APIVersion, "/")
	switch group {
	case "admissionregistration.k8s.io", "apiextensions.k8s.io", "apiregistration.k8s.io":
		withoutTexts(o.Object, "caBundle")
	}
	return o
}

func withoutTexts(value any, name string) {
	switch value := value.(type) {
	case map[string]any:
		if _, text := value[name].(string); text { // a schema's field of this name is no text
			delete(value, name)
		}
		for _, field := range value {
			withoutTexts(field, name)
		}
	case []any:
		for _, item := range value {
			withoutTexts(item, name)
		}
	}
}

// withoutMetadata removes what the API server and controllers write into each object.
func withoutMetadata(o *client.Object) *client.Object {
	delete(o.Object, "status")
	if metadata, ok := o.Object["metadata"].(map[string]any); ok {
		maps.DeleteFunc(metadata, func(field string, _ any) bool {
			return !slices.Contains([]string{"labels", "annotations", "finalizers", "ownerReferences"}, field)
		})
	}
	return o
}

// covers reports whether live has every field of wanted with its value, so that an apply would change
// nothing. It saves most of the dry runs.
func covers(live, wanted any) bool {
	switch wanted := wanted.(type) {
	case map[string]any:
		has, ok := live.(map[string]any)
		for name, value := range wanted {
			field, found := has[name]
			ok = ok && found && covers(field, value)
		}
		return ok
	case []any:
		has, ok := live.([]any)
		if !ok || len(has) != len(wanted) {
			return false
		}
		for i := range wanted {
			ok = ok && covers(has[i], wanted[i])
		}
		return ok
	}
	return live == wanted
}

// changed lists the paths at which two forms of an object differ. An empty list is as good as none.
func changed(path string, live, applied any) []string {
	if was, is := named(live), named(applied); was != nil && is != nil {
		live, applied = was, is
	}
	was, isMap := live.(map[string]any)
	is, bothMaps := applied.(map[string]any)
	switch {
	case isMap && bothMaps:
	case isEmpty(live) && isEmpty(applied), reflect.DeepEqual(live, applied):
		return nil
	default:
		return []string{path}
	}
	all := maps.Clone(was)
	maps.Copy(all, is)
	return xslices.FlatMap(slices.Sorted(maps.Keys(all)), func(key string) []string {
		return changed(join(path, key), was[key], is[key])
	})
}

// named is a list of objects by their names; nil if they have none.
func named(value any) map[string]any {
	list, _ := value.([]any)
	all := map[string]any{}
	for _, item := range list {
		fields, _ := item.(map[string]any)
		name, _ := fields["name"].(string)
		if name == "" || all["["+name+"]"] != nil {
			return nil
		}
		all["["+name+"]"] = item
	}
	if len(all) == 0 {
		return nil
	}
	return all
}

func isEmpty(value any) bool {
	list, ok := value.([]any)
	return value == nil || ok && len(list) == 0
}

// join appends a field to a path: spec.containers[web].image, metadata.annotations[example.org/owner].
func join(path, field string) string {
	switch {
	case strings.HasPrefix(field, "["):
		return path + field
	case strings.ContainsAny(field, "./"):
		return path + "[" + field + "]"
	case path == "":
		return field
	}
	return path + "." + field
}

// fieldsOf lists the fields that the API server refuses to change: nobody can restore those by an apply.
func fieldsOf(refused metav1.Status) []string {
	var paths []string
	if refused.Details != nil {
		for _, cause := range refused.Details.Causes {
			paths = append(paths, cause.Field)
		}
	}
	slices.Sort(paths)
	return slices.Compact(paths)
}
