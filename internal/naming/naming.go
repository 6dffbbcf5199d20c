// Package naming holds the rule for the names of clusters, platforms, layers and stages. They become folders,
// host names, tags, environment names and words of shell lines, so the rule is that of the strictest: a label
// of RFC 1123, which Kubernetes and Proxmox require of a machine's name. A label has at most 63 characters;
// 40 leave room for what the names of machines add to the cluster's, such as "-control-plane-10".
package naming

import (
	"errors"
	"fmt"
	"regexp"
)

// Rule describes the rule within a sentence.
const Rule = "at most 40 lower-case letters, digits and hyphens, a letter or digit first and last"

var suitable = regexp.MustCompile(`^[a-z0-9]([a-z0-9-]{0,38}[a-z0-9])?$`)

// Error reports a name that breaks the rule.
type Error struct {
	Name  string
	Place string // the folder, key or argument that has the name; empty: the name itself
	Fix   string // what to do
}

func (e *Error) Error() string {
	where := ""
	if e.Place != "" {
		where = fmt.Sprintf("%q: ", e.Place)
	}
	return fmt.Sprintf("%s%q is no name for castle, which requires %s; %s", where, e.Name, Rule, e.Fix)
}

// Suits reports whether a name keeps the rule.
func Suits(name string) bool { return suitable.MatchString(name) }

// Check returns an *Error for each name that breaks the rule. place has the names; fix says what to do.
func Check(place, fix string, all ...string) error {
	var wrong error
	for _, name := range all {
		if !Suits(name) {
			wrong = errors.Join(wrong, &Error{Name: name, Place: place, Fix: fix})
		}
	}
	return wrong
}
