package cli

import (
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strings"
	"text/tabwriter"

	"github.com/spf13/cobra"
	"github.com/zclconf/go-cty/cty"
	ctyjson "github.com/zclconf/go-cty/cty/json"

	"github.com/ephemeral-castle/castle/internal/castle"
	"github.com/ephemeral-castle/castle/internal/secret"
)

// outputs is the annotation of a command that can print in more ways than all others.
const outputs = "outputs"

// checkOutput judges --output by what the command can print.
func (a *app) checkOutput(cmd *cobra.Command) error {
	ways := strings.Fields(cmd.Annotations[outputs])
	switch {
	case len(ways) == 0 && a.output != "text" && a.output != "json":
		return fmt.Errorf("--output %q is neither text nor json", a.output)
	case len(ways) > 0 && !slices.Contains(ways, a.output):
		return fmt.Errorf("--output %q is none of %s", a.output, strings.Join(ways, ", "))
	}
	return nil
}

func newOutput(a *app) *cobra.Command {
	cmd := &cobra.Command{
		Use:   "output CLUSTER [NAME]",
		Short: "Print what the stages have said",
		Long: `Print the outputs of all layers, sensitive ones masked, or the one called NAME
(kubeconfig, or platform.kubeconfig), as it is, even if it is sensitive.`,
		Args: usage(func(_ *cobra.Command, args []string) error {
			switch {
			case len(args) == 0:
				return errors.New("needs a cluster" + a.known())
			case len(args) > 2:
				return fmt.Errorf("needs a cluster and at most one name, not %d", len(args)-1)
			}
			return nil
		}),
		RunE: func(_ *cobra.Command, args []string) error {
			c, err := a.open(args[0], nil)
			if err != nil {
				return err
			}
			all, err := c.Outputs()
			if err != nil {
				return err
			}
			if len(args) == 2 {
				return a.printOutput(all, args[1])
			}
			return a.printOutputs(all)
		},
	}
	a.valueFlags(cmd)
	return cmd
}

func (a *app) printOutputs(all []castle.OutputValue) error {
	if a.output == "json" {
		layers := map[string]map[string]any{}
		for _, o := range all {
			if layers[o.Layer] == nil {
				layers[o.Layer] = map[string]any{}
			}
			layers[o.Layer][o.Name] = shown(o)
		}
		return a.printJSON(layers)
	}
	t := tabwriter.NewWriter(a.stdout, 0, 0, 2, ' ', 0)
	for _, o := range all {
		text, err := render(o.Value)
		if err != nil {
			return err
		}
		if o.Sensitive {
			text = secret.Mask
		}
		fmt.Fprintf(t, "%s.%s\t%s\n", o.Layer, o.Name, strings.ReplaceAll(strings.TrimSpace(text), "\n", " "))
	}
	return t.Flush()
}

func shown(o castle.OutputValue) any {
	if o.Sensitive {
		return secret.Mask
	}
	return ctyjson.SimpleJSONValue{Value: o.Value}
}

func (a *app) printOutput(all []castle.OutputValue, name string) error {
	var found []castle.OutputValue
	var names []string
	for _, o := range all {
		names = append(names, o.Layer+"."+o.Name)
		if o.Name == name || o.Layer+"."+o.Name == name {
			found = append(found, o)
		}
	}
	if len(found) != 1 {
		slices.Sort(names)
		why := "no output is called " + name
		if len(found) > 1 {
			why = "several layers have an output called " + name + "; put the layer's name before it"
		}
		if len(names) == 0 {
			return &castle.UsageError{Message: why + "; nothing has been created yet"}
		}
		return &castle.UsageError{Message: why + "; there are " + strings.Join(names, ", ")}
	}
	if a.output == "json" {
		return a.printJSON(ctyjson.SimpleJSONValue{Value: found[0].Value})
	}
	text, err := render(found[0].Value)
	if err != nil {
		return err
	}
	_, err = fmt.Fprintln(a.stdout, strings.TrimSuffix(text, "\n"))
	return err
}

// render writes a string as it is and everything else as JSON.
func render(v cty.Value) (string, error) {
	if !v.IsNull() && v.Type() == cty.String {
		return v.AsString(), nil
	}
	data, err := json.Marshal(ctyjson.SimpleJSONValue{Value: v})
	return string(data), err
}
