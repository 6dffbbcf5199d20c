// Package naming holds the rule for the names of clusters, platforms, layers and stages. They become folders,
// host names, tags and words of shell lines, so the rule is that of the strictest: a label of RFC 1123, which
// Kubernetes and Proxmox require of a machine's name. A label has at most 63 characters; 40 leave room for
// what a machine's name adds to the cluster's, such as "-control-plane-10".
package naming

import (
	"errors"
	"fmt"
	"regexp"
)

// Rule describes the rule within a sentence.
const Rule = "at most 40 lower-case letters, digits and hyphens, a letter or digit first and last"

var suitable = regexp.MustCompile(`^[a-z0-9]([a-z0-9-]*[a-z0-9])?$`)

// Suits reports whether a name keeps the rule.
func Suits(name string) bool { return len(name) <= 40 && suitable.MatchString(name) }

// Error reports a name that breaks the rule, in Place, and what to do.
type Error struct{ Name, Place, Fix string }

func (e *Error) Error() string {
	return fmt.Sprintf("%q: %q is no name for castle, which requires %s; %s", e.Place, e.Name, Rule, e.Fix)
}

// Check returns an *Error for each name that breaks the rule.
func Check(place, fix string, all ...string) (wrong error) {
	for _, name := range all {
		if !Suits(name) {
			wrong = errors.Join(wrong, &Error{Name: name, Place: place, Fix: fix})
		}
	}
	return wrong
}
