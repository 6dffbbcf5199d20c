package config

import (
	"maps"
	"os"
	"path"
	"path/filepath"
	"slices"
	"strings"

	"github.com/ephemeral-castle/castle/internal/outline"
	"github.com/ephemeral-castle/castle/internal/syntax"
)

// layer is the values of one origin.
type layer struct {
	values map[string]Written
	folder string // whose clusters share them, "clusters/blue"; empty: they are this cluster's own
}

// first returns the strongest value of a name.
func first(layers []layer, name string) (Written, bool) {
	for _, y := range layers {
		if x, ok := y.values[name]; ok {
			return x, true
		}
	}
	return Written{}, false
}

// readShared reads the values that the cluster shares with others, the strongest first. It reports files that
// look like one and are not read.
func (r *inputValues) readShared() (all []layer) {
	own, named := r.load.file(""), path.Join("clusters", r.load.cluster.Name)
	const secrets = "secrets.tfvars"
	for _, x := range []struct{ folder, file, right string }{
		{"clusters", ownFile, path.Join("clusters", outline.SharedFile)},
		{"clusters", secrets, path.Join(own, secrets)},
		{named, ownFile, path.Join(named, outline.SharedFile)},
		{named, secrets, path.Join(own, secrets)},
		{own, outline.SharedFile, path.Join(own, ownFile)},
	} {
		file := path.Join(x.folder, x.file)
		if _, err := os.Lstat(filepath.Join(r.load.options.Repository, file)); err == nil {
			r.load.diags.add(syntax.WholeFile(file), file+": not read there",
				"castle would ignore its values. Move them to %s.", x.right)
		}
	}
	for _, folder := range []string{named, "clusters"} {
		all = append(all, layer{r.readTfvars(folder, outline.SharedFile, true), folder})
	}
	return all
}

// findUnshared notes shared values that no stage of any cluster that shares them declares. declared are the
// variables of this cluster.
func (r *inputValues) findUnshared(y layer, declared map[string]bool) {
	unknown := func(name string) bool { return !declared[name] }
	if !slices.ContainsFunc(slices.Collect(maps.Keys(y.values)), unknown) {
		return
	}
	sharing, known := r.sharing(y)
	if !known { // castle check of that cluster says why
		return
	}
	declared = maps.Clone(declared)
	for _, d := range sharing {
		maps.Copy(declared, r.load.declared([]*Stage{&d.stage}))
	}
	r.findUndeclared(y.values, declared, "No stage of any cluster in "+y.folder)
}

// sharing returns the stages of all clusters that share values; known is whether castle could read them.
func (r *inputValues) sharing(y layer) (all []*definition, known bool) {
	for cluster, sources := range r.load.library.definitions.clusters() {
		if y.folder == "" || !strings.HasPrefix("clusters/"+cluster, y.folder+"/") {
			continue
		}
		if sources == nil {
			return nil, false
		}
		for _, source := range slices.DeleteFunc(slices.Clone(sources), func(source string) bool {
			return !r.load.library.has(source)
		}) {
			d := r.load.library.definition(source)
			if all = append(all, d); d.incomplete {
				return nil, false
			}
		}
	}
	return all, true
}

// takenElsewhere reports whether another cluster uses a shared value that stage.hcl sets in this one.
func (r *inputValues) takenElsewhere(y layer, name string) bool {
	sharing, known := r.sharing(y)
	return !known || slices.ContainsFunc(sharing, func(d *definition) bool {
		_, declared := d.stage.Variables[name]
		_, wired := d.settings.inputs[name]
		return declared && !wired
	})
}

// Settings returns all values of a variable that files, flags and the environment set, the strongest first.
// With a stage they include its inputs, and the variable's default at the end: the first is what it gets.
func (c *Cluster) Settings(variable string, s *Stage) (all []Written) {
	add := func(values map[string]Written) {
		if x, ok := values[variable]; ok {
			all = append(all, x)
		}
	}
	for _, y := range c.above {
		add(y.values)
	}
	if s != nil {
		add(s.entry.settings.inputs)
		add(s.definition.settings.inputs)
	}
	for _, y := range c.below {
		add(y.values)
	}
	if s == nil {
		return all
	}
	v := s.Variables[variable]
	if fallback, has := v.Default(); has {
		all = append(all, Written{Name: variable, Value: fallback, at: v.Declared()})
	}
	return all
}
