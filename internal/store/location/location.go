// Package location checks the URLs of stores, apart from package store, which links each system's client.
package location

import (
	"fmt"
	"maps"
	"net/url"
	"path"
	"regexp"
	"slices"
	"strings"

	"github.com/ephemeral-castle/castle/internal/secret"
)

// The schemes of stores, with an example of each.
const (
	s3       = "s3://bucket/folder?region=eu-central-1"
	file     = "file:///srv/castle"
	postgres = "postgres://host/database"
)

var examples = map[string]string{"s3": s3, "file": file, "postgres": postgres, "postgresql": postgres}

// credential matches the names of query parameters that hold credentials in some system's URLs.
var credential = regexp.MustCompile(`(?i)passw|secret|token|credential|access_?key|account_?key|^sig$`)

// Parse returns the URL of a store, or why a text is none. It contacts nothing. The error repeats no secret.
func Parse(text string) (*url.URL, error) {
	all := "Write one of " + strings.Join([]string{s3, file, postgres}, ", ")
	u, err := url.Parse(text)
	if err == nil {
		_, err = url.ParseQuery(u.RawQuery)
	}
	if err != nil || u.Fragment != "" { // its text repeats the URL, and may cut a password in two
		return nil, &secret.ExposedError{Message: "this cannot be parsed as a URL, or has a part after #, " +
			"which no store uses; write special characters as %XX. " + all}
	}
	example := examples[u.Scheme]
	if exposed := exposed(u, example == postgres); exposed != "" {
		return nil, &secret.ExposedError{Message: fmt.Sprintf("everybody who can read this URL sees its %s. "+
			"Remove the %[1]s; castle takes credentials from the usual environment of each system, such as "+
			"PGPASSWORD", exposed)}
	}
	shown := (&url.URL{Scheme: u.Scheme, Host: u.Host, Path: u.Path}).String()
	switch {
	case example == "":
		return nil, fmt.Errorf("%q has an unknown scheme. %s", shown, all)
	case example == file && (u.Host != "" || len(path.Clean(u.Path)) < 2):
		return nil, fmt.Errorf("%q names no folder. Write %s, with three slashes", shown, example)
	case example == s3 && u.Host == "":
		return nil, fmt.Errorf("%q names no bucket. Write %s", shown, example)
	}
	return u, nil
}

// exposed says which credential a URL holds; empty if none.
func exposed(u *url.URL, mayHaveUser bool) string {
	if _, has := u.User.Password(); has {
		return "password"
	}
	if u.User != nil && !mayHaveUser {
		return "user or key"
	}
	for _, name := range slices.Sorted(maps.Keys(u.Query())) {
		if credential.MatchString(name) || secret.LikelyName(name) {
			return "parameter " + name
		}
	}
	return ""
}
