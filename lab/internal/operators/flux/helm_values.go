package flux

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"

	"helm.sh/helm/v3/pkg/chartutil"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"github.com/ephemeral-castle/castle/lab/internal/operators/cluster"
)

// values merges the values of a release.
func (h *helm) values(ctx context.Context, r *unstructured.Unstructured) (map[string]any, error) {
	merged := map[string]any{}
	from, _, err := unstructured.NestedSlice(r.Object, "spec", "valuesFrom")
	if err != nil {
		return nil, err
	}
	for _, f := range from {
		one, _ := f.(map[string]any)
		kind, name, key := cluster.Text(one, "kind"), cluster.Text(one, "name"),
			firstOf(cluster.Text(one, "valuesKey"), "values.yaml")
		if cluster.Text(one, "targetPath") != "" {
			return nil, errors.New("the lab knows no valuesFrom with targetPath")
		}
		data, _, err := h.w.Offered(ctx, kind, r.GetNamespace(), name)
		if optional, _ := one["optional"].(bool); data == nil && err == nil && optional {
			continue
		}
		if err == nil && data[key] == "" {
			err = fmt.Errorf("missing key '%s' in %s '%s/%s'", key, kind, r.GetNamespace(), name)
		}
		if err != nil {
			return nil, fmt.Errorf("could not resolve %s chart values reference '%s/%s' with key '%s': %w",
				kind, r.GetNamespace(), name, key, err)
		}
		more, err := chartutil.ReadValues([]byte(data[key]))
		if err != nil {
			return nil, err
		}
		merged = chartutil.CoalesceTables(more, merged)
	}
	own, _, err := unstructured.NestedMap(r.Object, "spec", "values")
	if err != nil {
		return nil, err
	}
	if own == nil {
		return merged, nil
	}
	return chartutil.CoalesceTables(own, merged), nil
}

func spelled(values map[string]any) string {
	data, err := json.Marshal(values) // sorted by name
	if err != nil {
		return err.Error()
	}
	return string(data)
}

func digest(s string) string {
	sum := sha256.Sum256([]byte(s))
	return hex.EncodeToString(sum[:])
}

func firstOf(all ...string) string {
	for _, s := range all {
		if s != "" {
			return s
		}
	}
	return ""
}
