package gitops

import (
	"strings"

	"sigs.k8s.io/kustomize/api/types"
	"sigs.k8s.io/yaml"
)

// undeprecated writes a kustomization.yaml with the fields of today. Flux takes the
// old ones as well; kustomize would complain about each on this process's stderr,
// without a word about the file.
func undeprecated(data []byte) []byte {
	var k types.Kustomization
	if err := k.Unmarshal(data); err != nil || len(*k.CheckDeprecatedFields()) == 0 {
		return data
	}
	k.FixKustomization()
	for _, p := range k.PatchesStrategicMerge {
		if strings.Contains(string(p), "\n") {
			k.Patches = append(k.Patches, types.Patch{Patch: string(p)})
		} else {
			k.Patches = append(k.Patches, types.Patch{Path: string(p)})
		}
	}
	k.PatchesStrategicMerge = nil
	if err := k.FixKustomizationPreMarshalling(nil); err != nil { // the rest of it reads no files
		return data
	}
	changed, err := yaml.Marshal(k)
	if err != nil {
		return data
	}
	return changed
}
