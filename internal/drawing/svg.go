package drawing

import (
	"fmt"
	"html"
	"io"
	"slices"
	"strings"
)

const margin = 20.0

// style belongs to the drawing. It brings its own background, so that it is legible on any page, and turns
// dark where the reader prefers that.
const style = `
.drawing { font-family: ui-monospace, "DejaVu Sans Mono", Menlo, Consolas, monospace; }
.drawing .page { fill: #ffffff; } .drawing .group { fill: #f3f4f6; stroke: #d1d5db; }
.drawing .box { fill: #ffffff; stroke: #6b7280; } .drawing text { fill: #1f2937; }
.drawing .soft { fill: #4b5563; } .drawing .edge { fill: none; stroke: #6b7280; stroke-width: 1.4; }
.drawing .thin { stroke-width: 0.7; } .drawing .dotted { stroke-dasharray: 1.5 3.5; ` +
	`stroke-linecap: round; } .drawing .dashed { stroke-dasharray: 7 4; }
.drawing .tip { fill: #6b7280; } ` +
	`.drawing .edge.marked, .drawing .box.marked { stroke: #c2410c; stroke-width: 2.4; }
.drawing .tip.marked, .drawing text.marked { fill: #c2410c; }
@media (prefers-color-scheme: dark) {
.drawing .page { fill: #0d1117; } .drawing .group { fill: #161b22; stroke: #30363d; }
.drawing .box { fill: #0d1117; stroke: #8b949e; } .drawing text { fill: #e6edf3; }
.drawing .soft { fill: #a5aeb8; } .drawing .edge { stroke: #8b949e; } .drawing .tip { fill: #8b949e; }
.drawing .edge.marked, .drawing .box.marked { stroke: #fb923c; } ` +
	`.drawing .tip.marked, .drawing text.marked { fill: #fb923c; }
}
`

// svg is a picture that is being written.
type svg struct{ strings.Builder }

// WriteSVG draws the drawing.
func (d Drawing) WriteSVG(w io.Writer) error {
	l := arrange(d)
	l.place()
	var pic svg
	width := max(l.width, textWidth(d.Title, titleSize+2), 640)
	top := margin + 1.5*titleSize + 8
	below := top + l.height + 24
	foot, end := d.foot(width, below)
	fmt.Fprintf(&pic, `<svg xmlns="http://www.w3.org/2000/svg" class="drawing" role="img" width="%[1]s" `+
		`height="%[2]s" viewBox="0 0 %[1]s %[2]s">`,
		px(width+2*margin), px(end+margin))
	fmt.Fprintf(&pic, "\n<title>%s</title>\n<style>%s</style>\n", html.EscapeString(d.Title), style)
	fmt.Fprintf(&pic, "<rect class=\"page\" width=\"100%%\" height=\"100%%\" rx=\"8\"/>\n")
	pic.text(margin, margin+titleSize, titleSize+2, "", "bold", d.Title)
	fmt.Fprintf(&pic, "<g transform=\"translate(%s %s)\">\n", px(margin), px(top))
	for _, r := range l.ranks {
		for _, b := range r.blocks {
			pic.group(b)
		}
	}
	for _, marked := range []bool{false, true} { // what stands out lies on top
		for _, r := range l.routes {
			if r.edge.Marked == marked {
				pic.edge(l, r)
			}
		}
	}
	for _, g := range d.Groups {
		for _, n := range g.Nodes {
			pic.node(l.nodes[n.Name])
		}
	}
	pic.WriteString("</g>\n")
	pic.WriteString(foot)
	pic.WriteString("</svg>\n")
	_, err := io.WriteString(w, pic.String())
	return err
}

func (p *svg) group(b *block) {
	if b.group == nil {
		return
	}
	fmt.Fprintf(p, "<rect class=\"group\" x=\"%s\" y=\"%s\" width=\"%s\" height=\"%s\" rx=\"8\"/>\n", px(b.x),
		px(b.y), px(b.w), px(b.h))
	p.text(b.x+groupSide, b.y+groupTop-10, titleSize, "soft", "normal", b.group.Name)
}

func (p *svg) node(c *cell) {
	n, x, w := c.node, c.column.x, nodeWidth(c.node)
	fmt.Fprintf(p, "<g><title>%s</title>\n", html.EscapeString(n.Hint))
	fmt.Fprintf(p, "<rect class=\"box%s\" x=\"%s\" y=\"%s\" width=\"%s\" height=\"%s\" rx=\"5\"/>\n",
		mark(n.Marked), px(x), px(c.y), px(w), px(c.h))
	base := c.y + titleHeight/2 + titleSize*0.35
	p.text(x+nodePadding, base, titleSize, "", "bold", n.Name)
	if n.Note != "" {
		p.text(x+w-nodePadding-textWidth(n.Note, titleSize), base, titleSize, mark(n.Marked),
			"normal", n.Note)
	}
	for i, l := range n.Lines {
		class := "soft"
		if l.Deferred {
			class = ""
		}
		p.text(x+nodePadding, c.line(i)+lineSize*0.35, lineSize, class, "normal", l.Text)
	}
	p.WriteString("</g>\n")
	if n.Label != "" && len(c.next) > 0 {
		p.text(x+w+labelGap, c.port()-5, lineSize, "soft", "normal", n.Label)
	}
}

// line is the height of the middle of a node's line.
func (c *cell) line(i int) float64 { return c.y + titleHeight + (float64(i)+0.5)*lineHeight }

// edge draws a line through the columns of its route, bent only between them.
func (p *svg) edge(l *layout, r route) {
	first, last := r.cells[0], r.cells[len(r.cells)-1]
	x, y := first.column.x+nodeWidth(first.node), first.port()
	var path strings.Builder
	fmt.Fprintf(&path, "M%s %s", px(x), px(y))
	for i, c := range r.cells[1:] {
		before := r.cells[i]
		fmt.Fprintf(&path, "H%s", px(l.right(before, c)))
		from, to := l.right(before, c), c.column.x
		end := c.port()
		if c == last {
			end, to = r.end(), to-6 // the tip
		}
		middle := px((from + to) / 2)
		fmt.Fprintf(&path, "C%s %s %s %s %s %s", middle, px(y), middle, px(end), px(to), px(end))
		y = end
	}
	kind := []string{"", " thin", " dotted", " dashed"}[r.edge.Style] + mark(r.edge.Marked)
	fmt.Fprintf(p, "<g><title>%s</title><path class=\"edge%s\" d=\"%s\"/>", html.EscapeString(r.edge.Hint),
		kind, path.String())
	fmt.Fprintf(p, "<path class=\"tip%s\" d=\"M%s %sl-8 -4v8z\"/></g>\n", mark(r.edge.Marked),
		px(last.column.x), px(y))
}

// right is where a line leaves a cell's column for the next one; a block's last column, at the rank's end.
func (l *layout) right(c, next *cell) float64 {
	if c.block == next.block {
		return c.column.x + c.column.w
	}
	for _, r := range l.ranks {
		if slices.Contains(r.blocks, c.block) {
			return r.x + r.w
		}
	}
	return c.column.x + c.column.w
}

// end is the height at which the edge reaches its target.
func (r route) end() float64 {
	target := r.cells[len(r.cells)-1]
	for i, l := range target.node.Lines {
		if r.edge.Line != "" && l.Text == r.edge.Line {
			return target.line(i)
		}
	}
	return target.port()
}

// foot is the legend and the notes, and where they end.
func (d Drawing) foot(width, y float64) (string, float64) {
	var p svg
	const sample = 34.0
	x := margin
	for _, e := range d.Legend {
		w := sample + 8 + textWidth(e.Text, lineSize) + 24
		if x > margin && x+w > margin+width {
			x, y = margin, y+20
		}
		fmt.Fprintf(&p, "<path class=\"edge%s%s\" d=\"M%s %sh%s\"/>\n",
			[]string{"", " thin", " dotted", " dashed"}[e.Style], mark(e.Marked), px(x), px(y), px(sample))
		p.text(x+sample+8, y+lineSize*0.35, lineSize, "soft", "normal", e.Text)
		x += w
	}
	if len(d.Legend) > 0 {
		y += 26
	}
	for _, note := range d.Notes {
		for _, line := range wrap(note, int(width/(lineSize*advance))) {
			p.text(margin, y, lineSize, "", "normal", line)
			y += lineHeight + 2
		}
	}
	return p.String(), y - lineHeight
}

// wrap breaks a text between words.
func wrap(s string, columns int) []string {
	var lines []string
	line := ""
	for word := range strings.FieldsSeq(s) {
		if line != "" && len([]rune(line+" "+word)) > columns {
			lines, line = append(lines, line), ""
		}
		line = strings.TrimSpace(line + " " + word)
	}
	return append(lines, line)
}

func (p *svg) text(x, y, size float64, class, weight, s string) {
	fmt.Fprintf(p, "<text class=\"%s\" x=\"%s\" y=\"%s\" font-size=\"%s\" font-weight=\"%s\">%s</text>\n",
		strings.TrimSpace(class), px(x), px(y), px(size), weight, html.EscapeString(s))
}

func mark(marked bool) string {
	if marked {
		return " marked"
	}
	return ""
}

// px writes a length with at most one decimal.
func px(v float64) string { return strings.TrimSuffix(fmt.Sprintf("%.1f", v), ".0") }
