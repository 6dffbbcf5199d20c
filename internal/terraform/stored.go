package terraform

import (
	"archive/zip"
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"reflect"
	"slices"

	tfjson "github.com/hashicorp/terraform-json"
)

// Stored is what Terraform's own file of a plan contains, which may come from elsewhere.
type Stored struct {
	Changes   []Change // without reasons
	Differing []string // files of its module that are not those of the work directory
	values    map[string]any
	defaults  map[string]any
}

// Inspect reads a plan back. The work directory holds the module that it has to be a plan of.
func (r *Root) Inspect(ctx context.Context, content []byte) (*Stored, error) {
	s := &Stored{values: map[string]any{}, defaults: map[string]any{}}
	p, err := r.Restore(content, nil)
	if err == nil {
		s.Differing, err = r.workdir().differing(content)
	}
	if err == nil {
		err = p.show(ctx, func(shown *tfjson.Plan) error {
			s.Changes = changesOf(shown)
			for name, v := range shown.Variables {
				s.values[name] = v.Value
			}
			if shown.Config != nil && shown.Config.RootModule != nil {
				for name, v := range shown.Config.RootModule.Variables {
					s.defaults[name] = v.Default
				}
			}
			return nil
		})
	}
	return s, errors.Join(err, p.Discard())
}

// DifferingInputs lists the variables whose values are neither the inputs in the work directory nor defaults.
func (s *Stored) DifferingInputs(r *Root) (names []string, err error) {
	data, err := r.Inputs()
	inputs := s.defaults
	if err = errors.Join(err, json.Unmarshal(data, &inputs)); err != nil {
		return nil, err
	}
	for name, v := range inputs {
		if !reflect.DeepEqual(s.values[name], v) {
			names = append(names, "variable "+name)
		}
	}
	slices.Sort(names)
	return names, nil
}

// changesOf returns the changes that Terraform reports when it makes the plan.
func changesOf(shown *tfjson.Plan) (all []Change) {
	for _, c := range shown.ResourceChanges {
		if c == nil || c.Change == nil || len(c.Change.Actions) == 0 {
			continue
		}
		one := Change{Address: c.Address, Type: c.Type, Action: string(c.Change.Actions[0]), Phase: Planned,
			From: c.PreviousAddress, Imported: c.Change.Importing != nil}
		switch actions := c.Change.Actions; {
		case actions.Replace():
			one.Action = "replace"
		case actions.NoOp() && one.From != "":
			one.Action = "move"
		case actions.NoOp() && one.Imported:
			one.Action = "import"
		case actions.NoOp() || actions.Delete() && c.Mode == tfjson.DataResourceMode:
			continue
		}
		all = append(all, one)
	}
	return all
}

// differing compares the module in a plan, which is the one that Terraform applies, with the work directory.
func (w workdir) differing(plan []byte) (names []string, err error) {
	installed, err := w.modules()
	if err != nil {
		return nil, err
	}
	archive, err := zip.NewReader(bytes.NewReader(plan), int64(len(plan)))
	if err != nil {
		return nil, err
	}
	for i, f := range archive.File { // Terraform reads another one of the two
		if slices.ContainsFunc(archive.File[:i], func(other *zip.File) bool { return other.Name == f.Name }) {
			return nil, fmt.Errorf("%s is in the plan twice", f.Name)
		}
	}
	var modules []module
	list, err := fs.ReadFile(archive, "tfconfig/modules.json")
	if err = errors.Join(err, json.Unmarshal(list, &modules)); err != nil {
		return nil, err
	}
	for _, m := range modules {
		stored, err := fs.Sub(archive, "tfconfig/m-"+m.Key)
		own := os.DirFS(filepath.Join(w.dir, m.Dir))
		files, _ := fs.Glob(own, "[^.]*.tf")
		json, _ := fs.Glob(own, "[^.]*.tf.json")
		embedded, _ := fs.Glob(stored, "*")
		if err != nil || !slices.Contains(installed, m) {
			names = append(names, "module "+m.Key)
			continue
		}
		all := slices.Concat(files, json, embedded)
		slices.Sort(all)
		for _, name := range slices.Compact(all) {
			is, lost := fs.ReadFile(own, name)
			was, added := fs.ReadFile(stored, name)
			if lost != nil || added != nil || !bytes.Equal(is, was) {
				names = append(names, filepath.Join("module", m.Key, name))
			}
		}
	}
	return names, nil
}
