package plan

import (
	"reflect"
	"slices"
	"testing"

	"github.com/ephemeral-castle/castle/internal/secret"
)

// eachText calls do for each text that a value's JSON has, with the names of its fields. It makes the parts
// that are missing.
func eachText(v reflect.Value, path string, do func(path string, text reflect.Value)) {
	switch v.Kind() {
	case reflect.String:
		do(path, v)
	case reflect.Pointer:
		if v.IsNil() {
			v.Set(reflect.New(v.Type().Elem()))
		}
		eachText(v.Elem(), path, do)
	case reflect.Slice:
		if v.Len() == 0 {
			v.Set(reflect.MakeSlice(v.Type(), 1, 1))
		}
		eachText(v.Index(0), path, do)
	case reflect.Struct:
		for i := range v.NumField() {
			if field := v.Type().Field(i); field.IsExported() {
				eachText(v.Field(i), path+"."+field.Name, do)
			}
		}
	}
}

// A field that is added to a plan has to be masked, or listed here.
func TestAPlanShowsNoSecret(t *testing.T) {
	names := []string{".Cluster", ".Platform", ".Code.Stage", ".Code.Layer", ".Code.Source", ".Code.Castle",
		".Code.Files", ".Stages.Name", ".Stages.Layer", ".Stages.State", ".Stages.Missing",
		".Stages.Changes.Action", ".Stages.OnEarlier", ".Total.NotPlanned", ".Unlisted.Stage",
		".Unlisted.Layer",
		".Unlisted.Destroy", ".Saved.Path", ".Saved.SHA256", ".Saved.Apply", ".Saved.Unplanned",
		".Saved.Imports", ".Unknown.Costs.Currency",
		".Unknown.Costs.Items.What", ".Unknown.Costs.Unpriced", ".Unknown.Endpoint",
		".Unknown.Stages", ".Costs.Currency", ".Costs.Items.What", ".Costs.Unpriced",
		".Rollout.Cluster", ".Rollout.Platform",
		".Rollout.Steps.Machine", ".Rollout.Steps.Node", ".Rollout.Steps.Address",
		".Rollout.Steps.Action", ".Rollout.Steps.Disks", ".Rollout.Steps.Volumes", ".Rollout.Command"}
	p, known := &Plan{}, &secret.Masker{}
	eachText(reflect.ValueOf(p), "", func(path string, text reflect.Value) {
		text.SetString("secret of " + path)
		known.Add(text.String())
	})
	p.mask(known.Hide)
	var shown []string
	eachText(reflect.ValueOf(p), "", func(path string, text reflect.Value) {
		if text.String() != secret.Mask {
			shown = append(shown, path)
		}
	})
	if !slices.Equal(shown, names) {
		t.Errorf("not masked: %q, want the configuration's own names: %q", shown, names)
	}
}
