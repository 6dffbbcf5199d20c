package charts

import (
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"strings"
)

// manifestType is the media type of an artifact's manifest.
const manifestType = "application/vnd.oci.image.manifest.v1+json"

// addArtifact adds a chart as an artifact in a registry, as `helm push` stores it: tags, manifest and blobs.
func addArtifact(served map[string][]byte, at string, c Pulled) {
	blob := func(mediaType string, content []byte) map[string]any {
		sum := sha256.Sum256(content)
		digest := "sha256:" + hex.EncodeToString(sum[:])
		served[at+"/blobs/"+digest] = content
		return map[string]any{"mediaType": mediaType, "digest": digest, "size": len(content)}
	}
	config := fmt.Appendf(nil, `{"name":%q,"version":%q,"apiVersion":"v2"}`, c.Name, c.Version)
	manifest, err := json.Marshal(map[string]any{
		"schemaVersion": 2, "mediaType": manifestType,
		"config": blob("application/vnd.cncf.helm.config.v1+json", config),
		"layers": []any{blob("application/vnd.cncf.helm.chart.content.v1.tar+gzip", c.archive)},
	})
	if err != nil {
		panic(err) // texts and numbers
	}
	sum := sha256.Sum256(manifest)
	tag := strings.ReplaceAll(c.Version, "+", "_")
	served[at+"/manifests/"+tag] = manifest
	served[at+"/manifests/sha256:"+hex.EncodeToString(sum[:])] = manifest
	var tags struct {
		Name string   `json:"name"`
		Tags []string `json:"tags"`
	}
	_ = json.Unmarshal(served[at+"/tags/list"], &tags) //nolint:errcheck // written here, or not yet there
	tags.Name, tags.Tags = at[len("/v2/"):], append(tags.Tags, tag)
	served[at+"/tags/list"], _ = json.Marshal(tags) //nolint:errcheck // texts
}
