package fleet

import (
	"fmt"
	"regexp"
	"slices"
	"strings"
)

// Selector chooses clusters by their labels, as the selectors of Kubernetes do. All its terms must hold.
type Selector []term

// term is one condition on a label: key=value, key!=value, key or !key.
type term struct {
	key, value string
	differs    bool // != or !
	exists     bool // key alone: any value
}

// label matches a key and a value of labels; a value may be empty.
var label = regexp.MustCompile(`^[A-Za-z0-9]([A-Za-z0-9_./-]{0,61}[A-Za-z0-9])?$`)

// ParseSelector reads a selector such as "env=staging,site!=rome". An empty one matches every cluster.
func ParseSelector(text string) (Selector, error) {
	if strings.TrimSpace(text) == "" {
		return nil, nil
	}
	var all Selector
	for part := range strings.SplitSeq(text, ",") {
		t := term{}
		key, value, compares := strings.Cut(part, "=")
		if compares {
			key, t.differs = strings.CutSuffix(key, "!")
		} else {
			key, t.differs = strings.CutPrefix(strings.TrimSpace(key), "!")
			t.exists = true
		}
		t.key, t.value = strings.TrimSpace(key), strings.TrimSpace(value)
		if !label.MatchString(t.key) || t.value != "" && !label.MatchString(t.value) {
			return nil, fmt.Errorf("selector %q: %q is no condition; write key=value, key!=value, key or "+
				"!key, separated by commas", text, strings.TrimSpace(part))
		}
		all = append(all, t)
	}
	return all, nil
}

// Matches reports whether labels fulfil every term. A label that is absent differs from every value.
func (s Selector) Matches(labels map[string]string) bool {
	return !slices.ContainsFunc(s, func(t term) bool {
		value, has := labels[t.key]
		return (has && (t.exists || value == t.value)) == t.differs
	})
}

// String writes the selector in the form that ParseSelector reads.
func (s Selector) String() string {
	var parts []string
	for _, t := range s {
		not := map[bool]string{true: "!"}[t.differs]
		if t.exists {
			parts = append(parts, not+t.key)
		} else {
			parts = append(parts, t.key+not+"="+t.value)
		}
	}
	return strings.Join(parts, ",")
}
