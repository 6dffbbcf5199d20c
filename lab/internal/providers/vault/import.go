package vault

import (
	"context"
	"maps"
	"strings"

	"github.com/zclconf/go-cty/cty"

	"github.com/ephemeral-castle/castle/lab/internal/providers/plugin"
)

// importing has a type taken over by the id that the real provider takes: its
// attributes and what stands between them. The read that follows finds the rest.
func importing(r plugin.Resource, prefix, first, between, second string) plugin.Resource {
	fresh := r.Schema.Attributes
	r.Import = func(_ context.Context, id string) (plugin.Values, error) {
		found := plugin.Values{"id": cty.StringVal(id)}
		rest, ok := strings.CutPrefix(id, prefix)
		found[first] = cty.StringVal(rest)
		if between != "" {
			before, after, cut := strings.Cut(rest, between)
			found[first], found[second], ok = cty.StringVal(before), cty.StringVal(after), ok && cut
		}
		if !ok {
			return nil, &plugin.Problem{Summary: "no path found in " + id}
		}
		all := plugin.Values{}
		for name, a := range fresh {
			all[name] = cty.NullVal(a.Type)
		}
		maps.Copy(all, found)
		return all, nil
	}
	return r
}
