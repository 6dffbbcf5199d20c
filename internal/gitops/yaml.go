package gitops

import (
	"regexp"
	"strconv"

	"sigs.k8s.io/kustomize/kyaml/yaml"
)

// items are the elements of a list, or the one thing that stands in its place.
func items(n *yaml.Node) []*yaml.Node {
	if n = meant(n); n == nil {
		return nil
	}
	if n.Kind != yaml.SequenceNode {
		return []*yaml.Node{n}
	}
	var all []*yaml.Node
	for _, item := range n.Content {
		all = append(all, meant(item))
	}
	return all
}

// field is a field of an object, through aliases and merges; nil if it has none.
func field(n *yaml.Node, name string) *yaml.Node { return fieldWithin(n, name, 8) }

// fieldWithin follows merges only so deep: one may hold itself.
func fieldWithin(n *yaml.Node, name string, merges int) *yaml.Node {
	if n = meant(n); n == nil || n.Kind != yaml.MappingNode {
		return nil
	}
	var merged *yaml.Node
	for i := 0; i+1 < len(n.Content); i += 2 {
		switch n.Content[i].Value {
		case name:
			return meant(n.Content[i+1])
		case "<<":
			for _, from := range items(n.Content[i+1]) {
				if merges == 0 {
					return nil
				}
				if found := fieldWithin(from, name, merges-1); found != nil && merged == nil {
					merged = found
				}
			}
		}
	}
	return merged
}

// meant is what an alias stands for.
func meant(n *yaml.Node) *yaml.Node {
	for n != nil && n.Kind == yaml.AliasNode {
		n = n.Alias
	}
	return n
}

func scalar(n *yaml.Node, name string) string {
	if v := field(n, name); v != nil {
		return v.Value
	}
	return ""
}

var yamlLine = regexp.MustCompile(`^(?:error converting YAML to JSON: )?yaml: (?:line (\d+): )?`)

// yamlProblem takes the line out of what the YAML parser says.
func yamlProblem(file string, err error) Problem {
	text := err.Error()
	p := Problem{Place{File: file}, "no YAML: " + text[len(yamlLine.FindString(text)):]}
	if m := yamlLine.FindStringSubmatch(text); len(m) > 1 {
		p.Line, _ = strconv.Atoi(m[1])
	}
	return p
}
