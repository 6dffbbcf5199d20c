package status

import (
	"fmt"
	"os"
	"slices"
	"strings"

	"github.com/zclconf/go-cty/cty"

	"github.com/ephemeral-castle/castle/internal/cluster"
)

// OutputValue is one output of a layer.
type OutputValue struct {
	Layer, Stage, Name string
	Sensitive          bool
	Value              cty.Value
}

// Outputs returns the outputs of every stage, by layer and name.
func Outputs(c *cluster.Cluster) ([]OutputValue, error) {
	var all []OutputValue
	for _, s := range c.Config.Stages {
		st, err := c.Dir.Stage(s.Name).State()
		if err != nil {
			return nil, err
		}
		start := len(all)
		for name, out := range st.Outputs {
			all = append(all, OutputValue{
				Layer: s.Layer, Stage: s.Name, Name: name, Value: out.Value,
				Sensitive: out.Sensitive || s.Outputs[name].Sensitive,
			})
		}
		slices.SortFunc(all[start:], func(a, b OutputValue) int { return strings.Compare(a.Name, b.Name) })
	}
	return all, nil
}

// Configs returns the paths of the platform's kubeconfig and talosconfig. The error for a missing one
// names the command that creates it.
func Configs(c *cluster.Cluster) (kubeconfig, talosconfig string, err error) {
	for _, path := range []string{c.Dir.Kubeconfig(), c.Dir.Talosconfig()} {
		if _, err := os.Stat(path); err != nil {
			return "", "", &cluster.UsageError{
				Message: fmt.Sprintf(
					"%s has no kubeconfig yet; create it with `castle create %s`",
					c.Name(),
					c.Config.Name,
				),
			}
		}
	}
	return c.Dir.Kubeconfig(), c.Dir.Talosconfig(), nil
}
