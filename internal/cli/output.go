package cli

import (
	"encoding/json"
	"fmt"
	"slices"
	"strings"

	"github.com/spf13/cobra"
	"github.com/zclconf/go-cty/cty"
	ctyjson "github.com/zclconf/go-cty/cty/json"

	"github.com/ephemeral-castle/castle/internal/cluster"
	"github.com/ephemeral-castle/castle/internal/operation/status"
	"github.com/ephemeral-castle/castle/internal/secret"
	"github.com/ephemeral-castle/castle/internal/ui"
)

func newOutput(a *app) *cobra.Command {
	cmd := &cobra.Command{
		Use:   "output CLUSTER [NAME]",
		Short: "Print stage outputs",
		Long: `Print the outputs of all layers, sensitive values masked, or the value of one output
(kubeconfig, or platform.kubeconfig), even if it is sensitive.`,
		Args: a.cluster(cobra.MaximumNArgs(2)),
		RunE: func(_ *cobra.Command, args []string) error {
			c, err := a.open(args[0], nil)
			if err != nil {
				return err
			}
			all, err := status.Outputs(c)
			if err != nil {
				return err
			}
			if len(args) == 2 {
				return printOutput(a, all, args[1])
			}
			return printOutputs(a, all)
		},
	}
	a.valueFlags(cmd)
	return cmd
}

// printOutputs prints all outputs; a sensitive value is masked.
func printOutputs(a *app, all []status.OutputValue) error {
	layers := map[string]map[string]any{}
	t := ui.NewTable(a.stdout)
	for _, o := range all {
		if layers[o.Layer] == nil {
			layers[o.Layer] = map[string]any{}
		}
		text, err := render(o.Value)
		if err != nil {
			return err
		}
		layers[o.Layer][o.Name] = ctyjson.SimpleJSONValue{Value: o.Value}
		if o.Sensitive {
			text, layers[o.Layer][o.Name] = secret.Mask, secret.Mask
		}
		fmt.Fprintf(t, "%s.%s\t%s\n", o.Layer, o.Name, strings.ReplaceAll(strings.TrimSpace(text), "\n", " "))
	}
	return a.print(layers, t.Flush)
}

// printOutput prints the value of one output.
func printOutput(a *app, all []status.OutputValue, name string) error {
	var found []status.OutputValue
	var names []string
	for _, o := range all {
		names = append(names, o.Layer+"."+o.Name)
		if o.Name == name || o.Layer+"."+o.Name == name {
			found = append(found, o)
		}
	}
	if len(found) != 1 {
		why := fmt.Sprintf("no output %q", name)
		if len(found) > 1 {
			why = fmt.Sprintf("output %q is ambiguous; prefix it with its layer", name)
		}
		if len(names) == 0 {
			return &cluster.UsageError{Message: why + "; nothing has been created yet"}
		}
		slices.Sort(names)
		return &cluster.UsageError{Message: why + "; choose one of " + strings.Join(names, ", ")}
	}
	return a.print(ctyjson.SimpleJSONValue{Value: found[0].Value}, func() error {
		text, err := render(found[0].Value)
		if err == nil {
			_, err = fmt.Fprintln(a.stdout, strings.TrimSuffix(text, "\n"))
		}
		return err
	})
}

// render returns a string unchanged and any other value as JSON.
func render(v cty.Value) (string, error) {
	if !v.IsNull() && v.Type() == cty.String {
		return v.AsString(), nil
	}
	data, err := json.Marshal(ctyjson.SimpleJSONValue{Value: v})
	return string(data), err
}
