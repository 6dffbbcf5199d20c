package store

import (
	"cmp"
	"context"
	"fmt"
	"maps"
	"net/url"
	"regexp"
	"slices"
	"strings"
)

// URLError reports that a store's URL cannot be used. Its text holds nothing of the URL that may be secret.
type URLError struct {
	URL     string // without user, password and query; empty if it cannot be parsed
	Problem string
}

func (e *URLError) Error() string {
	return fmt.Sprintf("store %s: %s", cmp.Or(e.URL, "URL"), e.Problem)
}

// secretParameter matches the names of query parameters that hold credentials in some system's URLs.
var secretParameter = regexp.MustCompile(`(?i)passw|secret|token|credential|access_?key|account_?key|^sig$`)

// openFunc returns a backend for a URL without credentials.
type openFunc func(ctx context.Context, u *url.URL) (backend, error)

// schemes returns what opens the URLs of each scheme.
func schemes() map[string]openFunc {
	return map[string]openFunc{"s3": openS3, "file": openFolder,
		"postgres": openPostgres, "postgresql": openPostgres}
}

// Open returns the store at a URL: s3://, file:// or postgres://. Credentials come from each system's usual
// environment only; a URL that holds some is an error. Open makes no request. The error is a *URLError.
func Open(ctx context.Context, raw string) (Store, error) {
	u, err := url.Parse(raw)
	if err != nil { // its text repeats the URL, and may cut a password in two
		return nil, &URLError{Problem: "it cannot be parsed; write special characters as %XX"}
	}
	shown := (&url.URL{Scheme: u.Scheme, Host: u.Host, Path: u.Path}).String()
	if err := holdsSecret(u); err != "" {
		return nil, &URLError{URL: shown, Problem: err}
	}
	opener, known := schemes()[u.Scheme]
	if !known {
		return nil, &URLError{URL: shown,
			Problem: "it must begin with s3://, file:// or postgres://"}
	}
	b, err := opener(ctx, u)
	if err != nil {
		return nil, &URLError{URL: shown, Problem: err.Error()}
	}
	return &retried{url: raw, backend: b, limit: limit}, nil
}

// holdsSecret says which credentials a URL holds; empty if none.
func holdsSecret(u *url.URL) string {
	if _, has := u.User.Password(); has {
		return "it holds a password; give that in the environment or a password file of the system"
	}
	if u.User != nil && u.Scheme != "postgres" && u.Scheme != "postgresql" {
		return "it holds a user or key; give that in the environment of the system"
	}
	if u.Fragment != "" {
		return "it has a part after #, which no store uses"
	}
	for _, name := range slices.Sorted(maps.Keys(u.Query())) {
		if secretParameter.MatchString(name) {
			return "the parameter " + name + " holds a credential; give that in the environment of the system"
		}
	}
	return ""
}

// onlyParameters refuses query parameters that are not known, and repeated ones.
func onlyParameters(u *url.URL, known ...string) error {
	query, err := url.ParseQuery(u.RawQuery)
	if err != nil {
		return fmt.Errorf("its query cannot be parsed")
	}
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
