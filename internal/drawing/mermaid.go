package drawing

import (
	"fmt"
	"io"
	"strings"
)

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
