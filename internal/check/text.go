package check

import "strings"

// oneLine makes a sentence's part of a text of several lines.
func oneLine(s string) string { return strings.TrimSuffix(strings.Join(strings.Fields(s), " "), ".") }

// plural says "node a" or "nodes a, b".
func plural(noun string, all []string) string {
	if len(all) > 1 {
		noun += "s"
	}
	return noun + " " + strings.Join(all, ", ")
}
