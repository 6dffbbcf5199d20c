package cli

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"slices"
	"strings"

	"github.com/spf13/cobra"
	"github.com/zclconf/go-cty/cty"
	ctyjson "github.com/zclconf/go-cty/cty/json"

	"github.com/ephemeral-castle/castle/internal/cluster"
	"github.com/ephemeral-castle/castle/internal/operation/status"
	"github.com/ephemeral-castle/castle/internal/secret"
)

func newOutput(a *app) *cobra.Command {
	return a.valueFlags(&cobra.Command{
		Use:   "output CLUSTER [NAME]",
		Short: "Print stage outputs",
		Long: `Print the outputs of all layers, sensitive values masked, or the value of one output
(kubeconfig, or platform.kubeconfig), even if it is sensitive.`,
		Example: `  castle output blue
  castle output blue kubeconfig
  castle output blue platform.kubeconfig -o json`,
		SuggestFor: []string{"outputs"},
		Args:       a.cluster(cobra.MaximumNArgs(2)),
		RunE: a.onCluster(nil, func(_ context.Context, c *cluster.Cluster, args []string) error {
			all, err := status.Outputs(c)
			if err != nil {
				return err
			}
			if len(args) > 0 {
				return printOutput(a, all, args[0])
			}
			return printOutputs(a, all)
		}),
	})
}

// printOutputs prints all outputs; a sensitive value is masked.
func printOutputs(a *app, all []status.OutputValue) error {
	layers := map[string]map[string]any{}
	var table strings.Builder
	for _, o := range all {
		text, err := render(o.Value)
		if err != nil {
			return err
		}
		if layers[o.Layer] == nil {
			layers[o.Layer] = map[string]any{}
		}
		layers[o.Layer][o.Name] = ctyjson.SimpleJSONValue{Value: o.Value}
		if o.Sensitive {
			text, layers[o.Layer][o.Name] = secret.Mask, secret.Mask
		}
		text = strings.ReplaceAll(strings.TrimSpace(text), "\n", " ")
		fmt.Fprintf(&table, "%s.%s\t%s\n", o.Layer, o.Name, text)
	}
	return a.print(layers, func(w io.Writer) { fmt.Fprint(w, table.String()) })
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
	slices.Sort(names)
	choice := "choose one of " + strings.Join(names, ", ")
	switch {
	case len(all) == 0:
		return refuse("no output %q; nothing has been created yet", name)
	case len(found) == 0:
		return refuse("no output %q; %s", name, choice)
	case len(found) > 1:
		return refuse("output %q is ambiguous; prefix it with its layer; %s", name, choice)
	}
	if a.output == "json" {
		return a.print(ctyjson.SimpleJSONValue{Value: found[0].Value}, nil)
	}
	text, err := render(found[0].Value)
	if err == nil {
		_, err = fmt.Fprintln(values(a), strings.TrimSuffix(text, "\n"))
	}
	return err
}

// render returns a string unchanged and any other value as JSON.
func render(v cty.Value) (string, error) {
	if !v.IsNull() && v.Type() == cty.String {
		return v.AsString(), nil
	}
	data, err := json.Marshal(ctyjson.SimpleJSONValue{Value: v})
	return string(data), err
}
