package terraform

import (
	"context"
	"fmt"
	"maps"
	"reflect"
	"slices"
	"strconv"

	"github.com/hashicorp/hcl/v2/hclsyntax"
	tfjson "github.com/hashicorp/terraform-json"
)

// Attributes names those attributes of a resource instance that differ. It holds names only: the values may
// be secret.
type Attributes struct {
	Names []string // values, cpu
	Paths []string // the same, to the depth at which they differ: values[0], cpu.cores
}

// Drift is a resource instance that differs from its last apply, as the refresh of a plan found it.
type Drift struct {
	Address string
	Absent  bool     // it does not exist any more
	Paths   []string // as those of Attributes; none if it is absent
}

// Differences returns, by address, the attributes that p would change in place or that force a replacement.
// It also returns the resources that differ from their last apply, by address.
func (p *Plan) Differences(ctx context.Context) (changed map[string]Attributes, drift map[string]Drift,
	err error) {
	err = p.show(ctx, func(shown *tfjson.Plan) error {
		changed, drift = changedAttributes(shown), driftOf(shown)
		return nil
	})
	return changed, drift, err
}

func changedAttributes(shown *tfjson.Plan) map[string]Attributes {
	all := map[string]Attributes{}
	for _, c := range managed(shown.ResourceChanges) {
		switch actions := c.Change.Actions; {
		case actions.Replace():
			all[c.Address] = forcingReplacement(c.Change)
		case actions.Update():
			all[c.Address] = differing(c.Change)
		}
	}
	return all
}

func driftOf(shown *tfjson.Plan) map[string]Drift {
	all := map[string]Drift{}
	for _, c := range managed(shown.ResourceDrift) {
		switch actions := c.Change.Actions; {
		case actions.Delete():
			all[c.Address] = Drift{Address: c.Address, Absent: true}
		case actions.Update():
			all[c.Address] = Drift{Address: c.Address, Paths: differing(c.Change).Paths}
		}
	}
	return all
}

func forcingReplacement(c *tfjson.Change) Attributes {
	names, paths := map[string]bool{}, map[string]bool{}
	for _, one := range c.ReplacePaths {
		steps, _ := one.([]any)
		at, path := valuesOf(c), ""
		for _, step := range steps {
			if at.sensitive() {
				break
			}
			path = at.join(path, step)
			at = at.child(step)
		}
		if len(steps) > 0 {
			names[fmt.Sprint(steps[0])], paths[path] = true, true
		}
	}
	return Attributes{slices.Sorted(maps.Keys(names)), slices.Sorted(maps.Keys(paths))}
}

func differing(c *tfjson.Change) (a Attributes) {
	at := valuesOf(c)
	for _, name := range at.keys() {
		one := at.child(name)
		if one.equal() {
			continue
		}
		a.Names = append(a.Names, name)
		one.differing(name, func(path string) { a.Paths = append(a.Paths, path) })
	}
	return a
}

// values are those of one attribute, or of a part of it, before and after a change.
type values struct {
	was, is any
	unknown any    // true, or the parts of which it is true
	hidden  [2]any // likewise: sensitive before and after
}

func valuesOf(c *tfjson.Change) values {
	return values{c.Before, c.After, c.AfterUnknown, [2]any{c.BeforeSensitive, c.AfterSensitive}}
}

func (v values) equal() bool { return v.unknown != true && reflect.DeepEqual(v.was, v.is) }

// sensitive reports whether the keys of the value may be secret, too.
func (v values) sensitive() bool { return v.hidden[0] == true || v.hidden[1] == true }

// child returns a part of the values.
func (v values) child(step any) values {
	return values{part(v.was, step), part(v.is, step), part(v.unknown, step),
		[2]any{part(v.hidden[0], step), part(v.hidden[1], step)}}
}

// part returns what a value has under a key or an index, or nil.
func part(value, step any) any {
	switch value := value.(type) {
	case map[string]any:
		key, _ := step.(string)
		return value[key]
	case []any:
		if i, is := step.(float64); is && i >= 0 && int(i) < len(value) {
			return value[int(i)]
		}
	}
	return nil
}

// keys are those of all the values.
func (v values) keys() []string {
	all := map[string]any{}
	for _, value := range []any{v.was, v.is, v.unknown} {
		of, _ := value.(map[string]any)
		maps.Copy(all, of)
	}
	return slices.Sorted(maps.Keys(all))
}

// differing adds the paths at which the values differ, as deep as both have the same shape.
func (v values) differing(path string, add func(string)) {
	var steps []any
	_, was := v.was.(map[string]any)
	_, is := v.is.(map[string]any)
	before, wasList := v.was.([]any)
	after, isList := v.is.([]any)
	switch {
	case v.sensitive() || v.unknown == true:
	case was && is:
		for _, key := range v.keys() {
			steps = append(steps, key)
		}
	case wasList && isList && len(before) == len(after):
		for i := range before {
			steps = append(steps, float64(i))
		}
	}
	steps = slices.DeleteFunc(steps, func(step any) bool { return v.child(step).equal() })
	if len(steps) == 0 || wasList && len(steps) > 1 && !v.hasObjects() {
		add(path) // in a set of texts, one that changes moves others
		return
	}
	for _, step := range steps {
		v.child(step).differing(v.join(path, step), add)
	}
}

// hasObjects reports whether the values are lists of objects.
func (v values) hasObjects() bool {
	_, was := part(v.was, 0.0).(map[string]any)
	_, is := part(v.is, 0.0).(map[string]any)
	return was && is
}

// join adds a step to the path of the values. The only object of a list, such as a block that a resource has
// once, needs no index.
func (v values) join(path string, step any) string {
	key, is := step.(string)
	before, _ := v.was.([]any)
	after, _ := v.is.([]any)
	switch {
	case !is && v.hasObjects() && len(before) == 1 && len(after) == 1:
		return path
	case !is:
		return fmt.Sprintf("%s[%v]", path, step)
	case path == "":
		return key
	case hclsyntax.ValidIdentifier(key):
		return path + "." + key
	}
	return path + "[" + strconv.Quote(key) + "]"
}
