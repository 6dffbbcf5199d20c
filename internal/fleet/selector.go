package fleet

import (
	"fmt"
	"strings"

	"k8s.io/apimachinery/pkg/labels"
)

// Selector chooses clusters by their labels, as kubectl chooses objects. The zero value chooses all.
type Selector struct{ of labels.Selector }

// ParseSelector reads a selector such as "env=staging,site!=rome". An empty one matches every cluster.
func ParseSelector(text string) (Selector, error) {
	if strings.TrimSpace(text) == "" {
		return Selector{}, nil
	}
	of, err := labels.Parse(text)
	if err != nil {
		return Selector{}, fmt.Errorf("selector %q: write key=value, key!=value, key, !key or key in (a,b), "+
			"separated by commas", text)
	}
	return Selector{of}, nil
}

// All reports whether the selector chooses every cluster.
func (s Selector) All() bool { return s.of == nil || s.of.Empty() }

// Matches reports whether a cluster's labels fulfil every term. An absent label differs from every value.
func (s Selector) Matches(of map[string]string) bool { return s.All() || s.of.Matches(labels.Set(of)) }

// String writes the selector in the form that ParseSelector reads, its terms in the order of their keys.
func (s Selector) String() string {
	if s.All() {
		return ""
	}
	return s.of.String()
}
