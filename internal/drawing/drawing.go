// Package drawing draws a graph whose nodes lie in groups, from left to right: as
// SVG by itself, and as a text that Graphviz or Mermaid draw. It knows nothing
// of what it draws.
//
// What all three share: a node is a box with a title and lines below it; what
// leaves the node carries the node's mark; an arrow may end at one of the lines
// instead of at the node; what is marked is drawn so that it stands out.
package drawing

// Drawing is what is drawn. Edges lead from nodes to others, and between groups
// only from an earlier to a later one.
type Drawing struct {
	Title  string
	Notes  []string // below the drawing
	Groups []Group
	Edges  []Edge
	Legend []Entry // which style of edge means what
}

// Group is nodes that belong together.
type Group struct {
	Name  string
	Nodes []Node
}

// Node is one box.
type Node struct {
	Name   string // its title, and how edges name it; unlike any other node's
	Note   string // beside the title
	Lines  []Line
	Hint   string // shown when pointed at
	Label  string // what every edge from here carries
	Marked bool
}

// Line is one line of text in a node.
type Line struct {
	Text string
	Late bool // drawn in the style Dashed
}

// Edge is one arrow.
type Edge struct {
	From, To string
	Line     string // the text of the line of To where it ends; empty: at To itself
	Style    Style
	Hint     string
	Marked   bool
}

// Entry is one line of the legend.
type Entry struct {
	Style  Style
	Marked bool
	Text   string
}

// Style is how an edge is drawn.
type Style int

// The styles.
const (
	Solid Style = iota
	Thin
	Dotted
	Dashed
)
