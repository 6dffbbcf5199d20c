package drawing_test

import (
	"strings"
	"testing"

	"github.com/ephemeral-castle/castle/internal/cli"
	"github.com/ephemeral-castle/castle/internal/drawing"
)

// nasty is text that each of the formats would take for its own.
const nasty = "a \"b\" <c> & `d` #e; |f| \\g \\N ]h[ {i}\nend"

func TestTextIsQuoted(t *testing.T) {
	d := drawing.Drawing{
		Title: nasty, Notes: []string{nasty},
		Groups: []drawing.Group{{Name: nasty, Nodes: []drawing.Node{
			{Name: nasty, Lines: []drawing.Line{{Text: nasty}}, Hint: nasty, Label: nasty}, {Name: "end"},
		}}},
		Edges: []drawing.Edge{{From: nasty, To: "end", Hint: nasty}},
	}
	var dot, mermaid, svg strings.Builder
	if err := d.WriteDot(&dot); err != nil {
		t.Fatal(err)
	}
	if err := d.WriteMermaid(&mermaid); err != nil {
		t.Fatal(err)
	}
	if err := d.WriteSVG(&svg); err != nil {
		t.Fatal(err)
	}
	want := `  "a \"b\" <c> & ` + "`d`" + ` #e; |f| \\g \\N ]h[ {i}\nend" -> "end" [`
	if !strings.Contains(dot.String(), want) {
		t.Errorf("no %s in\n%s", want, dot.String())
	}
	want = `    n0["a #quot;b#quot; #lt;c#gt; #amp; #96;d#96; #35;e; |f| \g \N ]h[ {i}<br/>end<br/>`
	if !strings.Contains(mermaid.String(), want) {
		t.Errorf("no %s in\n%s", want, mermaid.String())
	}
	if lines := strings.Split(mermaid.String(), "\n"); lines[2] != "flowchart LR" {
		t.Errorf("a comment that goes on in a further line: %q", lines[:3])
	}
	read(t, svg.String()) // well-formed
}

// spread is a drawing with everything in it: groups beside and below one another, and edges inside a group.
// Other edges pass groups and nodes, lead to lines, and go back to an earlier node in the list.
func spread() drawing.Drawing {
	node := func(name, note string, lines ...string) drawing.Node {
		n := drawing.Node{Name: name, Note: note, Hint: name}
		if len(lines) > 0 {
			n.Label = "some gates"
		}
		for _, l := range lines {
			n.Lines = append(n.Lines, drawing.Line{Text: l})
		}
		return n
	}
	edge := func(from, to string) drawing.Edge { return drawing.Edge{From: from, To: to, Hint: from + to} }
	return drawing.Drawing{
		Title: "everything",
		Notes: []string{strings.Repeat("a note that is longer than the drawing is wide ", 12)},
		Groups: []drawing.Group{
			{Name: "first", Nodes: []drawing.Node{node("a", "1s"), node("b", ""), node("c", "")}},
			{Name: "a group with a name that is longer than its node",
				Nodes: []drawing.Node{node("d", "20m00s", "one", "two", "three")}},
			{Name: "left",
				Nodes: []drawing.Node{node("f", "", "one"),
					node("e", "", "a line that is longer than the title", "two"), node("g", "", "one")}},
			{Name: "right",
				Nodes: []drawing.Node{node("h", "3s", strings.Fields(strings.Repeat("line ", 20))...),
					node("i", "")}},
			{Name: "alone", Nodes: []drawing.Node{node("j", "")}},
			{Name: "last", Nodes: []drawing.Node{node("k", "", "one", "two"),
				node("l", "", "early", "late")}},
		},
		Edges: []drawing.Edge{
			edge("a", "d"), edge("b", "d"), edge("a", "e"), edge("a", "g"), edge("a", "l"), edge("c", "k"),
			edge("d", "e"), edge("d", "f"), edge("d", "g"), edge("d", "h"), edge("d", "i"), edge("d", "k"),
			edge("d", "l"),
			edge("e", "f"), edge("f", "g"), edge("e", "g"), edge("e", "l"), edge("k", "l"),
			{From: "h", To: "l", Line: "late", Style: drawing.Dashed},
			{From: "g", To: "l", Line: "late", Style: drawing.Dashed, Marked: true},
		},
		Legend: []drawing.Entry{{Text: "so"}, {Text: strings.Repeat("and so ", 20)},
			{Text: strings.Repeat("and not so ", 20)}},
	}
}

func TestAnSVGIsLegible(t *testing.T) {
	many := drawing.Drawing{Title: "many"}
	for g := range strings.FieldsSeq("g1 g2 g3 g4") {
		group := drawing.Group{Name: g}
		for n := range strings.FieldsSeq("n1 n2 n3 n4 n5") {
			for _, other := range many.Groups {
				for _, from := range other.Nodes {
					many.Edges = append(many.Edges, drawing.Edge{From: from.Name, To: g + n})
				}
			}
			group.Nodes = append(group.Nodes, drawing.Node{Name: g + n, Label: "x"})
		}
		many.Groups = append(many.Groups, group)
	}
	one := drawing.Group{Name: "g", Nodes: []drawing.Node{{Name: "n"}}}
	for _, d := range []drawing.Drawing{spread(), many, {Title: "nothing"},
		{Title: "one", Groups: []drawing.Group{one}}} {
		t.Run(d.Title, func(t *testing.T) {
			var out strings.Builder
			if err := d.WriteSVG(&out); err != nil {
				t.Fatal(err)
			}
			p := read(t, out.String())
			p.checkLegible(t)
			if len(p.paths) != len(d.Edges) {
				t.Errorf("%d edges drawn, want %d", len(p.paths), len(d.Edges))
			}
			var again strings.Builder
			if err := d.WriteSVG(&again); err != nil || again.String() != out.String() {
				t.Errorf("a second drawing differs from the first: %v", err)
			}
		})
	}
}

// TestTheClustersAreLegible draws the clusters of this repository.
func TestTheClustersAreLegible(t *testing.T) {
	for _, cluster := range []string{"blue", "mini"} {
		t.Run(cluster, func(t *testing.T) {
			var out, errs strings.Builder
			args := []string{"graph", cluster, "-o", "svg", "-C", "../..", "--state-dir", t.TempDir()}
			if code := cli.Main("test", args, strings.NewReader(""), &out, &errs); code != 0 {
				t.Fatalf("exit code %d: %s", code, errs.String())
			}
			p := read(t, out.String())
			if len(p.boxes) < 10 || len(p.paths) < 20 {
				t.Fatalf("%d nodes and %d edges: is this all?", len(p.boxes), len(p.paths))
			}
			p.checkLegible(t)
		})
	}
}
