package cli

import (
	"fmt"
	"os"
	"strings"
	"unicode/utf8"

	"golang.org/x/term"

	"github.com/ephemeral-castle/castle/internal/castle"
)

// indent is where what a stage waits for begins.
const indent = 33

// columns is how wide a text may be: as the terminal, else wide.
func (a *app) columns() int {
	if f, ok := a.stdout.(*os.File); ok {
		if width, _, err := term.GetSize(int(f.Fd())); err == nil && width > 2*indent {
			return width
		}
	}
	return 120
}

// graphText is the graph for a terminal: a paragraph for each layer, in it each
// stage with what it waits for, and the gates that what comes after waits for.
func graphText(g *castle.Graph, columns int) string {
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
		head := fmt.Sprintf("%s %-20s %8s", mark, s.Name, took(s.Seconds))
		for _, line := range graphLines(g, s) {
			for _, part := range broken(line, columns-indent) {
				fmt.Fprintln(&b, strings.TrimRight(fmt.Sprintf("%-*s%s", indent, head, part), " "))
				head = ""
			}
		}
		if head != "" {
			fmt.Fprintln(&b, strings.TrimRight(head, " "))
		}
	}
	fmt.Fprintln(&b)
	for _, line := range graphRun(g) {
		fmt.Fprintln(&b, strings.Join(broken(line, columns), "\n"))
	}
	if g.Run != nil {
		fmt.Fprintln(&b, "* on the critical path")
	}
	return b.String()
}

// graphLines says what a stage waits for, and what waits for it has to wait for.
func graphLines(g *castle.Graph, s castle.GraphStage) []string {
	var values, ordered, connected, early []string
	late := map[string][]string{}
	for _, e := range g.Edges {
		switch {
		case e.To != s.Name:
		case e.Late != "":
			late[e.Late] = append(late[e.Late], e.From)
		default:
			if carries(e) {
				values = append(values, e.From)
			}
			if e.Needs {
				ordered = append(ordered, e.From)
			}
			if e.Connection {
				connected = append(connected, e.From)
			}
		}
	}
	for _, gate := range s.Gates {
		if !gate.Late {
			early = append(early, gate.Name)
		}
	}
	var lines []string
	add := func(what string, names []string) {
		if len(names) > 0 {
			lines = append(lines, what+" "+strings.Join(names, ", "))
		}
	}
	add("connects to", connected)
	add("reads", values)
	add("needs", ordered)
	add("gates", early)
	for _, gate := range s.Gates {
		if gate.Late {
			text := "judged late: " + gate.Name
			if s.GateSeconds != nil {
				text += " " + took(s.GateSeconds)
			}
			add(text+", after", late[gate.Name])
		}
	}
	return lines
}

// carries reports whether values flow along an edge beside those that castle
// itself connects with.
func carries(e castle.GraphEdge) bool {
	for _, v := range e.Values {
		if v != "platform.kubeconfig" && v != "platform.talosconfig" {
			return true
		}
	}
	return false
}

// broken breaks a text between words; what follows the first line is set in a little.
func broken(s string, columns int) []string {
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
