package outdated

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"maps"
	"net/http"
	"slices"
	"strings"

	"go.yaml.in/yaml/v3"
)

// largest bounds an answer: the index of a repository holds each release of its charts.
const largest = 64 << 20

// get reads an address. A redirect leads to an address that the configuration does not name, and is an error.
func get(ctx context.Context, client *http.Client, address string) ([]byte, error) {
	request, err := http.NewRequestWithContext(ctx, http.MethodGet, address, nil)
	if err != nil {
		return nil, err
	}
	response, err := client.Do(request)
	if err != nil {
		return nil, err
	}
	body, err := io.ReadAll(io.LimitReader(response.Body, largest+1))
	err = errors.Join(err, response.Body.Close())
	switch {
	case err != nil:
		return nil, err
	case response.StatusCode != http.StatusOK:
		return nil, fmt.Errorf("%s answers %s", address, response.Status)
	case len(body) > largest:
		return nil, fmt.Errorf("%s answers with more than %d bytes", address, largest)
	case strings.Contains(response.Header.Get("Link"), "next"):
		return nil, fmt.Errorf("%s lists its releases on several pages, which castle does not read", address)
	}
	return body, nil
}

// decode reads a JSON answer; without the expected form, it has no releases.
func decode[T any](body []byte) (answer T) {
	_ = json.Unmarshal(body, &answer) //nolint:errcheck // no releases: the item is unknown
	return answer
}

// list reads the versions of an image factory.
func list(body []byte) []string { return decode[[]string](body) }

// tags reads those of a repository of images.
func tags(body []byte) (all []string) {
	for _, tag := range decode[struct {
		Tags []string `json:"tags"`
	}](body).Tags {
		all = append(all, strings.ReplaceAll(tag, "_", "+")) // a tag has no +
	}
	return all
}

// registry reads the versions of a provider in a registry.
func registry(body []byte) (all []string) {
	for _, v := range decode[struct {
		Versions []struct {
			Version string `json:"version"`
		} `json:"versions"`
	}](body).Versions {
		all = append(all, v.Version)
	}
	return all
}

// mirrored reads the versions of a provider in a network mirror.
func mirrored(body []byte) []string {
	return slices.Collect(maps.Keys(decode[struct {
		Versions map[string]any `json:"versions"`
	}](body).Versions))
}

// index reads the versions of a chart in the index of its repository.
func index(body []byte, chart string) (all []string) {
	var answer struct {
		Entries map[string][]struct {
			Version string `yaml:"version"`
		} `yaml:"entries"`
	}
	if yaml.Unmarshal(body, &answer) != nil {
		return nil
	}
	for _, e := range answer.Entries[chart] {
		all = append(all, e.Version)
	}
	return all
}
