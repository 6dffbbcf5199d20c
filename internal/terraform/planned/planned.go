// Package planned reads what a plan changes, from the JSON that Terraform shows of it.
package planned

import (
	"encoding/json"
	"fmt"
	"maps"
	"reflect"
	"slices"
	"strconv"
	"strings"

	"github.com/hashicorp/hcl/v2/hclsyntax"
	tfjson "github.com/hashicorp/terraform-json"
)

// Attributes are those attributes of a resource instance that differ.
type Attributes struct {
	Names []string // values, cpu
	Paths []string // the same, to the depth at which they differ: values[0], cpu.cores
	// Differences has the values of each of the paths. They may be secret.
	Differences []Difference
}

// Difference is a place at which a resource instance differs.
type Difference struct {
	Path    string
	Was, Is any  // decoded JSON; nil is null
	Hidden  bool // sensitive, before or after
	Unknown bool // Is is known after apply
}

// Texts are the values as Terraform writes them, if they are short and not sensitive. ok is false for others.
func (d Difference) Texts() (was, is string, ok bool) {
	was, wasShort := shortText(d.Was)
	is, isShort := shortText(d.Is)
	return was, is, wasShort && isShort && was != is && !d.Hidden && !d.Unknown
}

// Text is the path, with its values if they may be shown: disk[1].size 80 → 60.
func (d Difference) Text() string {
	if was, is, ok := d.Texts(); ok {
		return d.Path + " " + was + " → " + is
	}
	return d.Path
}

// shortText formats a value of at most one line.
func shortText(value any) (string, bool) {
	const most = 80
	var text string
	switch v := value.(type) {
	case nil:
		return "none", true
	case string:
		text = strconv.Quote(v)
	case bool, float64, json.Number:
		text = fmt.Sprint(v)
		if f, is := v.(float64); is {
			text = strconv.FormatFloat(f, 'f', -1, 64)
		}
	case []any:
		all := make([]string, len(v))
		for i, one := range v {
			if _, nested := one.(map[string]any); nested {
				return "", false
			}
			short, ok := shortText(one)
			if !ok {
				return "", false
			}
			all[i] = short
		}
		text = "[" + strings.Join(all, ", ") + "]"
	default:
		return "", false
	}
	return text, len(text) <= most && !strings.Contains(text, `\n`)
}

// Drift is a resource instance that differs from its last apply, as the refresh of a plan found it.
type Drift struct {
	Address string
	Absent  bool     // it does not exist any more
	Paths   []string // as those of Attributes; none if it is absent
}

// ChangedAttributes names, by address, what a plan changes in place or what forces a replacement.
func ChangedAttributes(shown *tfjson.Plan) map[string]Attributes {
	all := map[string]Attributes{}
	for _, c := range Managed(shown.ResourceChanges) {
		switch actions := c.Change.Actions; {
		case actions.Replace():
			all[c.Address] = forcingReplacement(c.Change)
		case actions.Update():
			all[c.Address] = differing(c.Change)
		}
		if isSecret(c.Change) {
			for i := range all[c.Address].Differences {
				all[c.Address].Differences[i].Hidden = true
			}
		}
	}
	return all
}

// isSecret reports whether a resource is the manifest of a Secret: Terraform marks nothing of it.
func isSecret(c *tfjson.Change) bool {
	return slices.ContainsFunc([]any{c.Before, c.After}, func(value any) bool {
		return part(part(value, "manifest"), "kind") == "Secret"
	})
}

// Drifted returns the resources that differ from their last apply, by address.
func Drifted(shown *tfjson.Plan) map[string]Drift {
	all := map[string]Drift{}
	for _, c := range Managed(shown.ResourceDrift) {
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
	names, paths := map[string]bool{}, map[string]values{}
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
			names[fmt.Sprint(steps[0])], paths[path] = true, at
		}
	}
	a := Attributes{Names: slices.Sorted(maps.Keys(names)), Paths: slices.Sorted(maps.Keys(paths))}
	for _, path := range a.Paths {
		a.Differences = append(a.Differences, paths[path].difference(path))
	}
	return a
}

func differing(c *tfjson.Change) (a Attributes) {
	at := valuesOf(c)
	for _, name := range at.keys() {
		one := at.child(name)
		if one.equal() {
			continue
		}
		a.Names = append(a.Names, name)
		one.differing(name, func(d Difference) {
			a.Paths, a.Differences = append(a.Paths, d.Path), append(a.Differences, d)
		})
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

func (v values) difference(path string) Difference {
	hidden := holdsTrue(v.hidden[0]) || holdsTrue(v.hidden[1])
	return Difference{Path: path, Was: v.was, Is: v.is, Hidden: hidden, Unknown: holdsTrue(v.unknown)}
}

// holdsTrue reports whether true stands anywhere in a value.
func holdsTrue(value any) bool {
	switch v := value.(type) {
	case bool:
		return v
	case map[string]any:
		return slices.ContainsFunc(slices.Collect(maps.Values(v)), holdsTrue)
	case []any:
		return slices.ContainsFunc(v, holdsTrue)
	}
	return false
}

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
func (v values) differing(path string, add func(Difference)) {
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
		add(v.difference(path)) // in a set of texts, one that changes moves others
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

// join adds a step to the path of the values. The only object of a list, such as a block, needs no index.
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

// Managed are the changes of managed resources.
func Managed(changes []*tfjson.ResourceChange) []*tfjson.ResourceChange {
	return slices.DeleteFunc(slices.Clone(changes), func(c *tfjson.ResourceChange) bool {
		return c == nil || c.Change == nil || c.Mode != tfjson.ManagedResourceMode
	})
}
