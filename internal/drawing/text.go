package drawing

import (
	"fmt"
	"io"
	"strings"
)

// WriteDot writes the drawing in Graphviz' language.
func (d Drawing) WriteDot(w io.Writer) error {
	var b strings.Builder
	fmt.Fprintf(&b, "digraph %s {\n", quoted(d.Title))
	notes := strings.Join(append([]string{d.Title}, d.Notes...), "\n")
	fmt.Fprintf(&b, "  graph [rankdir=LR, compound=true, fontname=\"monospace\", labelloc=b, labeljust=l, "+
		"label=%s];\n", left(notes))
	b.WriteString("  node [shape=box, style=rounded, fontname=\"monospace\", fontsize=11];\n")
	b.WriteString("  edge [fontname=\"monospace\", fontsize=9];\n")
	for _, g := range d.Groups {
		fmt.Fprintf(&b, "  subgraph %s {\n    label=%s;\n    style=\"rounded,dashed\";\n",
			quoted("cluster_"+g.Name), quoted(g.Name))
		for _, n := range g.Nodes {
			fmt.Fprintf(&b, "    %s [label=%s, tooltip=%s%s];\n", quoted(n.Name),
				left(strings.Join(n.text(), "\n")), quoted(n.Hint), dotMark(n.Marked))
		}
		b.WriteString("  }\n")
	}
	for _, e := range d.Edges {
		fmt.Fprintf(&b, "  %s -> %s [label=%s, edgetooltip=%s, labeltooltip=%[4]s, style=%s%s];\n",
			quoted(e.From), quoted(e.To), quoted(d.label(e)), quoted(e.Hint),
			[]string{"solid", "solid, penwidth=0.6", "dotted", "dashed"}[e.Style], dotMark(e.Marked))
	}
	b.WriteString("}\n")
	_, err := io.WriteString(w, b.String())
	return err
}

// text is everything that stands in a node, line by line.
func (n Node) text() []string {
	lines := []string{strings.TrimSpace(n.Name + "  " + n.Note)}
	for _, l := range n.Lines {
		lines = append(lines, l.Text)
	}
	return lines
}

// label returns an edge's label: its source's label, and the line where it ends.
func (d Drawing) label(e Edge) string {
	var parts []string
	for _, g := range d.Groups {
		for _, n := range g.Nodes {
			if n.Name == e.From && n.Label != "" {
				parts = append(parts, n.Label)
			}
		}
	}
	if e.Line != "" {
		parts = append(parts, "→ "+e.Line)
	}
	return strings.Join(parts, "\n")
}

func dotMark(marked bool) string {
	if marked {
		return ", color=\"#c2410c\", penwidth=2.5"
	}
	return ""
}

// quoted is a string of Graphviz' language. There a backslash begins an escape
// sequence such as \n, so that one that is meant itself has to be doubled.
func quoted(s string) string { return `"` + escaped(s, `\n`) + `"` }

// left is a label whose lines begin at the left.
func left(s string) string { return `"` + escaped(s, `\l`) + `\l"` }

func escaped(s, newline string) string {
	return strings.NewReplacer(`\`, `\\`, `"`, `\"`, "\r", "", "\n", newline).Replace(s)
}

// WriteMermaid writes the drawing as a Mermaid flowchart.
func (d Drawing) WriteMermaid(w io.Writer) error {
	var b strings.Builder
	fmt.Fprintf(&b, "%%%% %s\n", strings.ReplaceAll(d.Title, "\n", " "))
	for _, note := range d.Notes {
		fmt.Fprintf(&b, "%%%% %s\n", strings.ReplaceAll(note, "\n", " "))
	}
	b.WriteString("flowchart LR\n")
	// A node called "end" would end a block: nodes and groups use numbers.
	number := map[string]int{}
	var marked []string
	for i, g := range d.Groups {
		fmt.Fprintf(&b, "  subgraph g%d[%s]\n", i, mermaidText(g.Name))
		for _, n := range g.Nodes {
			number[n.Name] = len(number)
			fmt.Fprintf(&b, "    n%d[%s]\n", number[n.Name], mermaidText(strings.Join(n.text(), "\n")))
			if n.Marked {
				marked = append(marked, fmt.Sprintf("n%d", number[n.Name]))
			}
		}
		b.WriteString("  end\n")
	}
	var links []string
	for i, e := range d.Edges {
		arrow := []string{"-->", "-->", "-.->", "-.->"}[e.Style]
		if label := d.label(e); label != "" {
			arrow += "|" + mermaidText(label) + "|"
		}
		fmt.Fprintf(&b, "  n%d %s n%d\n", number[e.From], arrow, number[e.To])
		if e.Marked {
			links = append(links, fmt.Sprint(i))
		}
	}
	if len(marked) > 0 {
		fmt.Fprintf(&b, "  classDef marked stroke:#c2410c,stroke-width:3px\n  class %s marked\n",
			strings.Join(marked, ","))
	}
	if len(links) > 0 {
		fmt.Fprintf(&b, "  linkStyle %s stroke:#c2410c,stroke-width:3px\n", strings.Join(links, ","))
	}
	_, err := io.WriteString(w, b.String())
	return err
}

// mermaidText returns a label. It writes characters with a meaning in Mermaid or Markdown as entities, which
// Mermaid spells without an ampersand.
func mermaidText(s string) string {
	return `"` + strings.NewReplacer(
		"#", "#35;", `"`, "#quot;", "<", "#lt;", ">", "#gt;", "&", "#amp;", "`", "#96;",
		"\r", "", "\n", "<br/>").Replace(s) + `"`
}
