// Package drawing draws a graph whose nodes lie in groups, from left to right: as SVG, or as text for
// Graphviz or Mermaid. A node is a box with a title and lines below it; its outgoing edges carry its label.
// An edge may end at a line instead of the node. Marked nodes and edges stand out.
package drawing

// Drawing is a graph. Between groups, edges lead from an earlier to a later one.
type Drawing struct {
	Title  string
	Notes  []string // below the drawing
	Groups []Group
	Edges  []Edge
	Legend []Entry // the meanings of the styles
}

// Group is a group of nodes.
type Group struct {
	Name  string
	Nodes []Node
}

// Node is one box.
type Node struct {
	Name   string // unique; its title, and its name in edges
	Note   string // beside the title
	Lines  []Line
	Hint   string // a tooltip
	Label  string // of every edge from here
	Marked bool
}

// Line is one line of text in a node.
type Line struct {
	Text     string
	Deferred bool // drawn in the style Dashed
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
