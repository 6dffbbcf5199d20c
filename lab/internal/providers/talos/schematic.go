package talos

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"strings"

	"github.com/zclconf/go-cty/cty"
	"go.yaml.in/yaml/v3"

	"github.com/ephemeral-castle/castle/lab/internal/providers/plugin"
)

// imageFactory is the one that the provider is configured with.
type imageFactory struct{ url string }

func (f *imageFactory) configure(_ context.Context, config plugin.Values) error {
	if f.url = config.String("image_factory_url"); f.url == "" {
		f.url = "https://factory.talos.dev"
	}
	return nil
}

// imageFactorySchematic is the resource of a schematic. The real one never reads it again, and leaves it in
// the factory when it is deleted. Each update has a new id.
func imageFactorySchematic(f *imageFactory) plugin.Resource {
	post := func(failed string) func(context.Context, plugin.Change) (plugin.Values, error) {
		return func(ctx context.Context, c plugin.Change) (plugin.Values, error) {
			id, err := f.post(ctx, c.Planned.String("schematic"))
			if err != nil {
				return nil, problem(failed, err)
			}
			return plugin.Values{"id": cty.StringVal(id)}, nil
		}
	}
	return plugin.Resource{
		Schema: plugin.Block{Attributes: map[string]plugin.Attribute{
			"id": computedText(), "schematic": optionalText(),
		}},
		Create: post("failed to create schematic"),
		Update: post("failed to update schematic"),
	}
}

// post sends a schematic and returns the factory's id of it.
func (f *imageFactory) post(ctx context.Context, schematic string) (string, error) {
	var content map[string]any
	if err := yaml.Unmarshal([]byte(schematic), &content); err != nil {
		return "", err
	}
	if content == nil {
		schematic = "customization: {}\n"
	}
	at := strings.TrimSuffix(f.url, "/") + "/schematics"
	request, err := http.NewRequestWithContext(ctx, http.MethodPost, at, bytes.NewReader([]byte(schematic)))
	if err != nil {
		return "", err
	}
	request.Header.Set("Content-Type", "application/yaml")
	response, err := http.DefaultClient.Do(request)
	if err != nil {
		return "", err
	}
	defer response.Body.Close()
	body, err := io.ReadAll(response.Body)
	if err != nil {
		return "", err
	}
	if response.StatusCode >= http.StatusBadRequest {
		return "", fmt.Errorf("HTTP %d: %s", response.StatusCode, strings.TrimSpace(string(body)))
	}
	var answer struct {
		ID string `json:"id"`
	}
	err = json.Unmarshal(body, &answer)
	return answer.ID, err
}
