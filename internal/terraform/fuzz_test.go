package terraform

import (
	"bytes"
	"encoding/json"
	"slices"
	"strings"
	"testing"

	tfjson "github.com/hashicorp/terraform-json"

	"github.com/ephemeral-castle/castle/internal/terraform/planned"
)

// FuzzStream feeds Terraform's output in two ways: whole, and cut at some place. The same is reported, and no
// line is lost for the log.
func FuzzStream(f *testing.F) {
	f.Add([]byte(applied), uint16(100))
	f.Add([]byte("\x1b[31mError\x1b[0m\n"+`{"type":"diagnostic","@message":"m","diagnostic":`+
		`{"severity":"error","summary":"s",`+
		`"detail":"d","address":"a.b","range":{"filename":"f"}}}`), uint16(60))
	f.Add([]byte(`{"type":"apply_start","hook":null}`), uint16(3))
	f.Fuzz(func(t *testing.T, output []byte, at uint16) {
		read := func(pieces ...[]byte) (*stream, []Change, string) {
			var changes []Change
			var log bytes.Buffer
			s := running(&Root{Log: &log, OnResource: func(c Change) { changes = append(changes, c) }})
			for _, p := range pieces {
				if n, err := s.Write(slices.Clone(p)); n != len(p) || err != nil {
					t.Fatalf("wrote %d of %d bytes: %v", n, len(p), err)
				}
			}
			s.flush()
			return s, changes, log.String()
		}
		cut := min(int(at), len(output))
		s, changes, log := read(output)
		other, otherChanges, otherLog := read(output[:cut], output[cut:])
		if !slices.Equal(changes, otherChanges) || len(s.errors) != len(other.errors) || log != otherLog {
			t.Errorf("cut at %d: %+v, log %q; whole: %+v, log %q", cut, otherChanges, otherLog, changes, log)
		}
		for line := range bytes.Lines(output) {
			line = bytes.TrimSuffix(line, []byte("\n"))
			if !json.Valid(line) && !strings.Contains(log, string(colours.ReplaceAll(line, nil))) {
				t.Errorf("line %q is lost in log %q", line, log)
			}
		}
		if len(changes) < len(s.planned) {
			t.Errorf("%d changes are planned and %d reported", len(s.planned), len(changes))
		}
	})
}

// FuzzPlan reads a plan as `terraform show -json` prints it. Each object is of a resource that the plan has.
func FuzzPlan(f *testing.F) {
	f.Add([]byte(`{"format_version":"1.2","planned_values":{"outputs":{"a":{"value":["x"],` +
		`"type":["list","string"]}},"root_module":{}},"resource_changes":[{"address":"vm.a",` +
		`"mode":"managed","type":"proxmox_virtual_environment_vm",` +
		`"change":{"actions":["delete","create"],"before":{"vm_id":1,` +
		`"node_name":"n"},"after":{"vm_id":421,"node_name":"n"},"after_unknown":{"id":true},` +
		`"replace_paths":[["vm_id"],[]]}}],"output_changes":{"a":{"actions":["create"],"after":["x"],` +
		`"after_unknown":false}}}`))
	f.Add([]byte(`{"format_version":"1.0","resource_changes":[{"mode":"managed"},null],` +
		`"output_changes":{"a":null}}`))
	root := &Root{Identities: map[string]Identity{"proxmox_virtual_environment_vm": {
		ID: "{node_name}/{vm_id}", UUID: "{smbios.uuid}"}}}
	f.Fuzz(func(t *testing.T, text []byte) {
		shown := &tfjson.Plan{}
		if shown.UnmarshalJSON(text) != nil {
			t.Skip("terraform-json refuses it")
		}
		for _, o := range root.objectsOf(shown) {
			if !slices.ContainsFunc(shown.ResourceChanges, func(c *tfjson.ResourceChange) bool {
				return c != nil && c.Address == o.Address && c.Type == o.Type
			}) {
				t.Errorf("%+v is not in the plan", o)
			}
		}
		planned.ChangedAttributes(shown)
		planned.Drifted(shown)
		outputs, known, err := outputsOf(shown)
		for name := range outputs {
			if shown.OutputChanges[name] == nil {
				t.Errorf("output %s is not in the plan", name)
			}
		}
		if err == nil && known && len(outputs) > len(shown.OutputChanges) {
			t.Errorf("%d outputs of %d", len(outputs), len(shown.OutputChanges))
		}
	})
}
