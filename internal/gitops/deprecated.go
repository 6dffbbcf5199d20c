package gitops

import (
	"strings"

	"sigs.k8s.io/yaml"
)

// undeprecated writes a kustomization.yaml with the fields of today. Flux takes the
// old ones as well; kustomize would complain about each on this process's stderr,
// without a word about the file.
func undeprecated(data []byte) []byte {
	var fields map[string]any
	if err := yaml.Unmarshal(data, &fields); err != nil {
		return data // kustomize says so
	}
	old := false
	for name, moved := range map[string]string{"bases": "resources", "imageTags": "images", "patchesJson6902": "patches"} {
		if all, is := fields[name].([]any); is {
			more(fields, moved, all...)
			delete(fields, name)
			old = true
		}
	}
	if all, is := fields["patchesStrategicMerge"].([]any); is {
		for _, p := range all {
			field := "path"
			if text, _ := p.(string); strings.Contains(text, "\n") {
				field = "patch"
			}
			more(fields, "patches", map[string]any{field: p})
		}
		delete(fields, "patchesStrategicMerge")
		old = true
	}
	if labels, is := fields["commonLabels"]; is {
		more(fields, "labels", map[string]any{"pairs": labels, "includeSelectors": true})
		delete(fields, "commonLabels")
		old = true
	}
	changed, err := yaml.Marshal(fields)
	if !old || err != nil {
		return data
	}
	return changed
}
