package helm

import (
	"fmt"
	"maps"
	"strings"

	"helm.sh/helm/v3/pkg/strvals"
	"sigs.k8s.io/yaml"

	"github.com/ephemeral-castle/castle/lab/internal/providers/plugin"
)

// chartValues merges values, set, set_list and set_sensitive, in this order.
func chartValues(v plugin.Values) (map[string]any, error) {
	all := map[string]any{}
	for _, text := range v.Strings("values") {
		one := map[string]any{}
		if err := yaml.Unmarshal([]byte(text), &one); err != nil {
			return nil, &plugin.Problem{Summary: "Error unmarshaling values",
				Detail: fmt.Sprintf("---> %v %s", err, text)}
		}
		all = merge(all, one)
	}
	for _, s := range v.Objects("set") {
		if err := set(all, s); err != nil {
			return nil, err
		}
	}
	for _, s := range v.Objects("set_list") {
		name, joined := s.String("name"), strings.Join(s.Strings("value"), ",")
		if err := strvals.ParseInto(name+"={"+joined+"}", all); err != nil {
			return nil, &plugin.Problem{Summary: "Error parsing list value",
				Detail: fmt.Sprintf("Failed parsing key %q with value %s: %s", name, joined, err)}
		}
	}
	for _, s := range v.Objects("set_sensitive") {
		if err := set(all, s); err != nil {
			return nil, err
		}
	}
	return all, nil
}

func set(into map[string]any, s plugin.Values) error {
	name, value := s.String("name"), s.String("value")
	var err error
	switch s.String("type") {
	case "", "auto":
		err = strvals.ParseInto(name+"="+value, into)
	case "string":
		err = strvals.ParseIntoString(name+"="+value, into)
	case "literal":
		err = strvals.ParseLiteralInto(name+"="+value, into)
	default:
		return &plugin.Problem{Summary: "Unexpected type", Detail: "Unexpected type: " + s.String("type")}
	}
	if err != nil {
		return &plugin.Problem{Summary: "Failed parsing value",
			Detail: fmt.Sprintf("Failed parsing key %q: %s", name, err)}
	}
	return nil
}

func merge(a, b map[string]any) map[string]any {
	out := maps.Clone(a)
	for key, x := range b {
		if inner, ok := x.(map[string]any); ok {
			if under, ok := out[key].(map[string]any); ok {
				out[key] = merge(under, inner)
				continue
			}
		}
		out[key] = x
	}
	return out
}

// cloak returns config with the values of set_sensitive hidden.
func cloak(config map[string]any, v plugin.Values) map[string]any {
	for _, s := range v.Objects("set_sensitive") {
		config = cloakOne(config, strings.Split(s.String("name"), "."))
	}
	return config
}

func cloakOne(config map[string]any, path []string) map[string]any {
	out := maps.Clone(config)
	if len(path) == 1 {
		out[path[0]] = "(sensitive value)"
		return out
	}
	if inner, ok := out[path[0]].(map[string]any); ok {
		out[path[0]] = cloakOne(inner, path[1:])
	}
	return out
}
