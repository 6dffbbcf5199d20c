package check

import (
	"errors"

	"github.com/hashicorp/hcl/v2"
	"github.com/zclconf/go-cty/cty"
	"github.com/zclconf/go-cty/cty/convert"

	"github.com/ephemeral-castle/castle/internal/config"
	"github.com/ephemeral-castle/castle/internal/talos"
	"github.com/ephemeral-castle/castle/internal/tfeval"
)

// patchVariable holds the user's own patches.
const patchVariable = "talos_config_patches"

// rendered is the configuration of one machine: what the module's data source
// talos_machine_configuration would return, from the same expressions.
type rendered struct {
	machine string // "cp-01"
	role    string
	at      hcl.Range // of the data source
	config  *talos.MachineConfig
	err     error // why there is no config; a *tfeval.UnknownError is no problem of the user's
}

// render renders the configuration of every machine of every stage.
func render(c *config.Cluster) []rendered {
	var all []rendered
	for _, s := range c.Stages {
		for _, b := range machineBlocks(s) {
			r := rendered{machine: b.Key, at: b.Range(), err: b.Err}
			if b.Key == "" {
				r.machine = s.Name
			}
			if r.err == nil {
				r.role, r.config, r.err = renderOne(b)
			}
			all = append(all, r)
		}
	}
	return all
}

// machineBlocks are the data sources for machine configurations, with stand-ins for
// what is not known, such as secrets.
func machineBlocks(s *config.Stage) []tfeval.Block {
	values := map[string]cty.Value{}
	for name := range s.Variables {
		values[name] = tfeval.StandIn(s.Written(name).Value)
	}
	return tfeval.Read(s, values).Instances("data", "talos_machine_configuration")
}

func renderOne(b tfeval.Block) (role string, config *talos.MachineConfig, err error) {
	m, err := machineOf(b)
	if err != nil || m.Type != "controlplane" && m.Type != "worker" {
		return m.Type, nil, err // a validation of the module reports another role
	}
	config, err = talos.Render(m)
	return m.Type, config, err
}

// machineOf evaluates the arguments of the data source.
func machineOf(b tfeval.Block) (talos.Machine, error) {
	var failed error
	get := func(name string, want cty.Type) cty.Value {
		v, err := b.Value(name)
		if err == nil && v != cty.NilVal {
			v, err = convert.Convert(v, want)
		}
		failed = errors.Join(failed, err)
		return v
	}
	str := func(name string) string { return tfeval.Text(get(name, cty.String)) }
	m := talos.Machine{
		ClusterName: str("cluster_name"), Endpoint: str("cluster_endpoint"), Type: str("machine_type"),
		TalosVersion: str("talos_version"), KubernetesVersion: str("kubernetes_version"),
	}
	for _, v := range tfeval.Elements(get("config_patches", cty.List(cty.String))) {
		m.Patches = append(m.Patches, tfeval.Text(v))
	}
	return m, failed
}
