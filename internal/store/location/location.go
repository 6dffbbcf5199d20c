// Package location checks the URLs of stores. It is apart from package store, which links the client of each
// system.
package location

import (
	"errors"
	"fmt"
	"net/url"
	"slices"
	"strings"

	"github.com/ephemeral-castle/castle/internal/secret"
)

// schemes are the schemes of stores, with an example of each.
var schemes = []struct{ name, example string }{
	{"s3", "s3://bucket/folder?region=eu-central-1"}, {"file", "file:///srv/castle"},
	{"postgres", "postgres://host/database"},
}

// Check returns why a URL cannot be that of a store. It contacts nothing.
func Check(text string) error {
	var names, examples []string
	for _, s := range schemes {
		names, examples = append(names, s.name), append(examples, s.example)
	}
	all := "Write one of " + strings.Join(examples, ", ")
	u, err := url.Parse(text)
	if err != nil { // its text may quote a password
		return errors.New("this is no URL. " + all)
	}
	if _, has := u.User.Password(); has {
		return &secret.ExposedError{Message: "a URL with a password is visible to everybody who can read " +
			"it. Remove the password; castle takes credentials from the usual environment of each system, " +
			"such as PGPASSWORD"}
	}
	for name := range u.Query() {
		if secret.LikelyName(name) {
			return &secret.ExposedError{Message: fmt.Sprintf("a URL with %s is visible to everybody who can "+
				"read it. Remove that; castle takes credentials from the usual environment of each system",
				name)}
		}
	}
	i := slices.Index(names, u.Scheme)
	switch {
	case i < 0:
		return fmt.Errorf("%q has an unknown scheme. %s", text, all)
	case u.Scheme == "file" && (u.Host != "" || len(u.Path) < 2):
		return fmt.Errorf("%q names no folder. Write %s, with three slashes", text, examples[i])
	case u.Scheme != "file" && u.Scheme != "postgres" && u.Host == "": // PGHOST may name the host
		return fmt.Errorf("%q is not complete. Write %s", text, examples[i])
	}
	return nil
}
