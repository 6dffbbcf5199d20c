package hcloud

import (
	"regexp"
	"slices"
	"strings"
)

const labelPart = `[A-Za-z0-9]([A-Za-z0-9._-]{0,61}[A-Za-z0-9])?`

var (
	labelKey   = regexp.MustCompile(`^([a-z0-9]([a-z0-9.-]{0,251}[a-z0-9])?/)?` + labelPart + `$`)
	labelValue = regexp.MustCompile(`^(` + labelPart + `)?$`)
	requireSet = regexp.MustCompile(`^(\S+)\s+(in|notin)\s*\(([^()]*)\)$`)
)

// checkLabels returns an error if labels are not as Hetzner documents them.
func checkLabels(labels *map[string]string) error {
	if labels == nil {
		return nil
	}
	for key, value := range *labels {
		switch {
		case strings.HasPrefix(key, "hetzner.cloud/"):
			return invalid("labels", "label key prefix 'hetzner.cloud/' is reserved")
		case !labelKey.MatchString(key):
			return invalid("labels", "label key "+key+" is invalid")
		case !labelValue.MatchString(value):
			return invalid("labels", "label value "+value+" is invalid")
		}
	}
	return nil
}

// selector is a list of requirements that must all hold.
type selector []func(map[string]string) bool

func (s selector) matches(labels map[string]string) bool {
	return !slices.ContainsFunc(s, func(fits func(map[string]string) bool) bool { return !fits(labels) })
}

// parseSelector reads a label selector: k, !k, k=v, k==v, k!=v, k in (a,b), k notin (a,b), joined by commas.
func parseSelector(text string) (selector, error) {
	var all selector
	for _, part := range splitSelector(text) {
		fits := requirement(strings.TrimSpace(part))
		if fits == nil {
			return nil, invalid("label_selector", "invalid label selector")
		}
		all = append(all, fits)
	}
	return all, nil
}

// splitSelector cuts at the commas outside of parentheses.
func splitSelector(text string) []string {
	if strings.TrimSpace(text) == "" {
		return nil
	}
	var parts []string
	depth, from := 0, 0
	for i, r := range text {
		switch {
		case r == '(':
			depth++
		case r == ')':
			depth--
		case r == ',' && depth == 0:
			parts, from = append(parts, text[from:i]), i+1
		}
	}
	return append(parts, text[from:])
}

// requirement reads one condition; nil if it is none.
func requirement(text string) func(map[string]string) bool {
	if m := requireSet.FindStringSubmatch(text); m != nil && labelKey.MatchString(m[1]) {
		values := strings.Split(strings.ReplaceAll(m[3], " ", ""), ",")
		return func(labels map[string]string) bool {
			value, is := labels[m[1]]
			return (is && slices.Contains(values, value)) == (m[2] == "in")
		}
	}
	for _, operator := range []string{"!=", "==", "="} {
		key, value, found := strings.Cut(text, operator)
		if !found {
			continue
		}
		if !labelKey.MatchString(key) || !labelValue.MatchString(value) {
			return nil
		}
		return func(labels map[string]string) bool {
			have, is := labels[key]
			return (is && have == value) != (operator == "!=")
		}
	}
	key, absent := strings.CutPrefix(text, "!")
	if !labelKey.MatchString(key) {
		return nil
	}
	return func(labels map[string]string) bool {
		_, is := labels[key]
		return is != absent
	}
}
