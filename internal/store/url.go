package store

import (
	"context"
	"fmt"
	"maps"
	"net/url"
	"slices"
	"strings"

	"github.com/ephemeral-castle/castle/internal/store/location"
)

// Open returns the store at a URL: s3://, file:// or postgres://. Credentials come from each system's usual
// environment only; a URL that holds some is an error. Open makes no request.
func Open(ctx context.Context, raw string) (Store, error) {
	u, err := location.Parse(raw)
	if err != nil {
		return nil, err
	}
	open := map[string]func(context.Context, *url.URL) (backend, error){"s3": openS3, "file": openFolder,
		"postgres": openPostgres, "postgresql": openPostgres}[u.Scheme]
	b, err := open(ctx, u)
	if err != nil {
		return nil, fmt.Errorf("%s://%s%s: %w", u.Scheme, u.Host, u.EscapedPath(), err)
	}
	return &retried{url: raw, backend: b, limit: limit}, nil
}

// onlyParameters refuses query parameters that are not known, and repeated ones.
func onlyParameters(u *url.URL, known ...string) error {
	query := u.Query()
	for _, name := range slices.Sorted(maps.Keys(query)) {
		if !slices.Contains(known, name) {
			if len(known) == 0 {
				return fmt.Errorf("unknown parameter %s; %s:// has none", name, u.Scheme)
			}
			return fmt.Errorf("unknown parameter %s; there are %s", name, strings.Join(known, ", "))
		}
		if len(query[name]) > 1 {
			return fmt.Errorf("the parameter %s stands twice", name)
		}
	}
	return nil
}
