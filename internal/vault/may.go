package vault

import (
	"context"
	"encoding/json"
	"fmt"
	"maps"
	"net/http"
	"slices"
	"strings"
)

// may asks whether the token may do all that is wanted, by path, and says what it
// may not, all at once. Vault's own word for each is "permission denied".
func (s Server) may(ctx context.Context, c *client, wanted map[string][]string, way string) error {
	paths := slices.Sorted(maps.Keys(wanted))
	var answer struct {
		Data map[string]json.RawMessage `json:"data"`
	}
	if err := c.call(ctx, http.MethodPost, "sys/capabilities-self", map[string][]string{"paths": paths}, &answer); err != nil {
		return s.trouble("it does not say what the token may do: "+err.Error(), "give the token the policy default, too")
	}
	var lacks []string
	for _, path := range paths {
		var may []string
		if err := json.Unmarshal(answer.Data[path], &may); err != nil {
			return s.trouble("it does not say what the token may do", "look at the Vault")
		}
		missing := slices.DeleteFunc(slices.Clone(wanted[path]), func(want string) bool { return slices.Contains(may, want) })
		if len(missing) > 0 {
			lacks = append(lacks, strings.Join(missing, ", ")+" "+path)
		}
	}
	if len(lacks) == 0 {
		return nil
	}
	return s.trouble(fmt.Sprintf("the token may not %s: no policy of its own says so", strings.Join(lacks, "; ")), way)
}
