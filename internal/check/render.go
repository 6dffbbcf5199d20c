package check

import (
	"errors"
	"fmt"

	"github.com/hashicorp/hcl/v2"
	"github.com/hashicorp/hcl/v2/hclsyntax"
	"github.com/zclconf/go-cty/cty"
	"github.com/zclconf/go-cty/cty/convert"

	"github.com/ephemeral-castle/castle/internal/config"
	"github.com/ephemeral-castle/castle/internal/talos"
)

// patchVariable holds the user's own patches.
const patchVariable = "talos_config_patches"

// rendered is the configuration of one machine: what the module's data source
// talos_machine_configuration would make, from the same expressions.
type rendered struct {
	machine string // "cp-01"
	role    string
	at      hcl.Range // of the data source
	config  *talos.MachineConfig
	err     error // why there is no config; an *unknownError where that is nobody's fault
}

// render makes the configuration of every machine of every stage that has one.
func (c *cluster) render() []rendered {
	var all []rendered
	for _, s := range c.config.Stages {
		values := map[string]cty.Value{}
		for name := range s.Variables {
			values[name] = standIn(s.Written(name).Value)
		}
		m := readModule(s, values)
		for _, b := range m.blocks {
			if b.Type == "data" && len(b.Labels) == 2 && b.Labels[0] == "talos_machine_configuration" {
				all = append(all, c.renderEach(s, m, b)...)
			}
		}
	}
	return all
}

func (c *cluster) renderEach(s *config.Stage, m *module, b *hclsyntax.Block) []rendered {
	forEach, ok := b.Body.Attributes["for_each"]
	if !ok {
		return []rendered{c.renderOne(m, b, s.Name, nil)}
	}
	instances, err := m.evaluate(forEach.Expr, nil)
	if err != nil || !instances.IsWhollyKnown() || instances.IsNull() || !instances.CanIterateElements() {
		return []rendered{{machine: s.Name, at: b.DefRange(), err: errors.Join(err, &unknownError{"for_each"})}}
	}
	var all []rendered
	for it := instances.ElementIterator(); it.Next(); {
		key, value := it.Element()
		if key.Type() != cty.String {
			key = cty.StringVal(fmt.Sprint(len(all)))
		}
		all = append(all, c.renderOne(m, b, key.AsString(), map[string]cty.Value{
			"each": cty.ObjectVal(map[string]cty.Value{"key": key, "value": value}),
		}))
	}
	return all
}

func (c *cluster) renderOne(m *module, b *hclsyntax.Block, name string, beside map[string]cty.Value) rendered {
	r := rendered{machine: name, at: b.DefRange()}
	machine, err := m.machine(b, beside)
	r.role = machine.Type
	if err == nil && machine.Type != "controlplane" && machine.Type != "worker" {
		return r // a validation of the module says so
	}
	if err == nil {
		r.config, err = talos.Render(machine)
	}
	r.err = err
	return r
}

// machine evaluates what the data source is given.
func (m *module) machine(b *hclsyntax.Block, beside map[string]cty.Value) (talos.Machine, error) {
	var failed error
	get := func(name string, want cty.Type) cty.Value {
		attr, ok := b.Body.Attributes[name]
		if !ok {
			return cty.NullVal(want)
		}
		v, err := m.evaluate(attr.Expr, beside)
		if err == nil {
			v, err = convert.Convert(v, want)
		}
		failed = errors.Join(failed, err)
		return v
	}
	machine := talos.Machine{
		ClusterName: text(get("cluster_name", cty.String)), Endpoint: text(get("cluster_endpoint", cty.String)),
		Type: text(get("machine_type", cty.String)), TalosVersion: text(get("talos_version", cty.String)),
		KubernetesVersion: text(get("kubernetes_version", cty.String)),
	}
	for _, v := range elements(get("config_patches", cty.List(cty.String))) {
		machine.Patches = append(machine.Patches, text(v))
	}
	return machine, failed
}
