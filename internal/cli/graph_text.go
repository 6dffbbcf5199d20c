package cli

import (
	"fmt"
	"strings"
	"unicode/utf8"

	"github.com/ephemeral-castle/castle/internal/operation/topology"
)

// indent is the column at which a stage's dependencies begin.
const indent = 33

// graphText renders a graph for a terminal: a paragraph per layer, in it each stage with
// its dependencies and gates.
func graphText(g *topology.Graph, columns int) string {
	var b strings.Builder
	layer := ""
	for _, s := range g.Stages {
		if s.Layer != layer {
			layer = s.Layer
			fmt.Fprintln(&b, layer)
		}
		mark := " "
		if s.Critical {
			mark = "*"
		}
		head := fmt.Sprintf("%s %-20s %8s", mark, s.Name, duration(s.Seconds))
		for _, line := range graphLines(g, s) {
			for _, part := range wrap(line, columns-indent) {
				fmt.Fprintln(&b, strings.TrimRight(fmt.Sprintf("%-*s%s", indent, head, part), " "))
				head = ""
			}
		}
		if head != "" {
			fmt.Fprintln(&b, strings.TrimRight(head, " "))
		}
	}
	fmt.Fprintln(&b)
	for _, line := range runSummary(g) {
		fmt.Fprintln(&b, strings.Join(wrap(line, columns), "\n"))
	}
	if g.Run != nil {
		fmt.Fprintln(&b, "* on the critical path")
	}
	return b.String()
}

// graphLines lists the dependencies of a stage by reason, and its gates.
func graphLines(g *topology.Graph, s topology.Stage) (lines []string) {
	var values, ordered, connected, gates []string
	late := map[string][]string{}
	for _, e := range g.Edges {
		switch {
		case e.To != s.Name:
			continue
		case e.Late != "":
			late[e.Late] = append(late[e.Late], e.From)
			continue
		}
		if carriesValues(e) {
			values = append(values, e.From)
		}
		if e.Needs {
			ordered = append(ordered, e.From)
		}
		if e.Connection {
			connected = append(connected, e.From)
		}
	}
	for _, gate := range s.Gates {
		if !gate.Late {
			gates = append(gates, gate.Name)
		}
	}
	add := func(what string, names []string) {
		if len(names) > 0 {
			lines = append(lines, what+" "+strings.Join(names, ", "))
		}
	}
	add("connects to", connected)
	add("reads", values)
	add("needs", ordered)
	add("gates", gates)
	for _, gate := range s.Gates {
		if gate.Late {
			text := "deferred gate " + gate.Name
			if s.GateSeconds != nil {
				text += " " + duration(s.GateSeconds)
			}
			add(text+", after", late[gate.Name])
		}
	}
	return lines
}

// carriesValues reports whether a stage reads outputs along e other than those that
// castle connects with.
func carriesValues(e topology.Edge) bool {
	for _, v := range e.Values {
		if v != "platform.kubeconfig" && v != "platform.talosconfig" {
			return true
		}
	}
	return false
}

// wrap breaks a text between words, and indents every line but the first.
func wrap(s string, columns int) []string {
	var lines []string
	line := ""
	for _, word := range strings.Split(s, " ") {
		switch {
		case line == "":
			line = word
		case utf8.RuneCountInString(line+" "+word) > columns:
			lines = append(lines, line)
			line = "  " + word
		default:
			line += " " + word
		}
	}
	return append(lines, line)
}
