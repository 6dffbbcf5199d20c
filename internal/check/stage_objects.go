package check

import (
	"maps"

	"github.com/zclconf/go-cty/cty"

	"github.com/ephemeral-castle/castle/internal/config"
	"github.com/ephemeral-castle/castle/internal/tfeval"
)

// stageObjects is what the enabled stages create, as far as its name is known before a run.
func (c *cluster) stageObjects() []tfeval.Object {
	if c.objects != nil {
		return c.objects
	}
	c.outputs = map[string]map[string]cty.Value{}
	for _, s := range c.config.Stages { // lower layers first
		m := tfeval.Read(s, s.Foreseen(c.outputs))
		c.objects = append(c.objects, m.Objects()...)
		if c.outputs[s.Layer] == nil {
			c.outputs[s.Layer] = map[string]cty.Value{}
		}
		maps.Copy(c.outputs[s.Layer], m.Outputs())
	}
	return c.objects
}

// without is what a stage would create if a variable had its default.
func (c *cluster) without(s *config.Stage, variable string) []tfeval.Object {
	inputs := s.Foreseen(c.outputs)
	inputs[variable], _ = s.Variables[variable].Default()
	return tfeval.Read(s, inputs).Objects()
}
