package drawing

import "slices"

// The layout is a layered one (Sugiyama, Tagawa and Toda, 1981) that layers groups first. A group's rank is
// its longest path of groups, so that independent groups stand below each other. The nodes inside a group
// are layered the same way, by column. Where an edge passes a column it gets a lane, an empty row as high as
// a line is thick. So no edge runs behind a node or a text: it bends only between columns. Edges from one
// node share their lanes.

// layout is where everything is.
type layout struct {
	ranks  []*rank
	routes []route
	nodes  map[string]*cell
	width  float64
	height float64
}

// rank is blocks that stand below each other.
type rank struct {
	blocks []*block
	x, w   float64
}

// block is a group, or a lane that passes the whole rank.
type block struct {
	group      *Group // nil: a lane
	columns    []*column
	x, y, w, h float64
}

type column struct {
	cells []*cell
	x, w  float64
}

// cell is one row of a column: a node, or a lane.
type cell struct {
	node       *Node // nil: a lane
	from       string
	left, next []*cell // what it is connected with in the columns before and behind
	block      *block
	column     *column
	y, h       float64
}

// route is the cells that an edge runs through, from its source to its target.
type route struct {
	edge  Edge
	cells []*cell
}

func arrange(d Drawing) *layout {
	l := &layout{nodes: map[string]*cell{}}
	home := map[string]int{} // node: its group
	for i, g := range d.Groups {
		for _, n := range g.Nodes {
			home[n.Name] = i
		}
	}
	blocks := l.addGroups(d, home)
	at := func(c *cell) (rank, column int) {
		for i, r := range l.ranks {
			if slices.Contains(r.blocks, c.block) {
				rank = i
			}
		}
		return rank, slices.Index(c.block.columns, c.column)
	}
	for _, e := range d.Edges {
		from, to := l.nodes[e.From], l.nodes[e.To]
		if from == nil || to == nil {
			continue
		}
		r := route{edge: e, cells: []*cell{from}}
		rankFrom, first := at(from)
		rankTo, last := at(to)
		if from.block == to.block {
			r.pass(from.block, first+1, last)
		} else {
			r.pass(from.block, first+1, len(from.block.columns))
			for _, between := range l.ranks[min(rankFrom+1, rankTo):rankTo] {
				r.pass(between.lane(e.From), 0, 1)
			}
			r.pass(blocks[home[e.To]], 0, last)
		}
		r.cells = append(r.cells, to)
		r.connect()
		l.routes = append(l.routes, r)
	}
	return l
}

// addGroups makes a block of every group, in its rank, with its nodes in their columns.
func (l *layout) addGroups(d Drawing, home map[string]int) []*block {
	groups := longest(len(d.Groups), func(yield func(from, to int)) {
		for _, e := range d.Edges {
			if home[e.From] < home[e.To] {
				yield(home[e.From], home[e.To])
			}
		}
	})
	var blocks []*block
	for i := range d.Groups {
		g := &d.Groups[i]
		columns := longest(len(g.Nodes), func(yield func(from, to int)) {
			named := func(name string) int {
				return slices.IndexFunc(g.Nodes, func(n Node) bool { return n.Name == name })
			}
			for _, e := range d.Edges {
				if from, to := named(e.From), named(e.To); from >= 0 && to >= 0 && from != to {
					yield(from, to)
				}
			}
		})
		b := &block{group: g}
		for j := range g.Nodes {
			for len(b.columns) <= columns[j] {
				b.columns = append(b.columns, &column{})
			}
			l.nodes[g.Nodes[j].Name] = b.add(columns[j], &cell{node: &g.Nodes[j], from: g.Nodes[j].Name})
		}
		for len(l.ranks) <= groups[i] {
			l.ranks = append(l.ranks, &rank{})
		}
		l.ranks[groups[i]].blocks = append(l.ranks[groups[i]].blocks, b)
		blocks = append(blocks, b)
	}
	return blocks
}

// longest returns for each of n nodes the length of the longest path that leads
// to it. A cycle, which there should not be, ends the search and not the program.
func longest(n int, edges func(yield func(from, to int))) []int {
	length := make([]int, n)
	for round, changed := 0, true; changed && round < n; round++ {
		changed = false
		edges(func(from, to int) {
			if length[to] <= length[from] {
				length[to], changed = length[from]+1, true
			}
		})
	}
	return length
}

func (b *block) add(at int, c *cell) *cell {
	c.block, c.column = b, b.columns[at]
	c.column.cells = append(c.column.cells, c)
	return c
}

// lane returns the lane through the rank for the edges of a node.
func (r *rank) lane(from string) *block {
	for _, b := range r.blocks {
		if b.group == nil && b.columns[0].cells[0].from == from {
			return b
		}
	}
	b := &block{columns: []*column{{}}}
	b.add(0, &cell{from: from})
	r.blocks = append(r.blocks, b)
	return b
}

// pass leads the route through the columns first to last, without last, of a block.
func (r *route) pass(b *block, first, last int) {
	for i := first; i < last; i++ {
		at := slices.IndexFunc(b.columns[i].cells, func(c *cell) bool {
			return c.node == nil && c.from == r.edge.From
		})
		if at < 0 {
			b.add(i, &cell{from: r.edge.From})
			at = len(b.columns[i].cells) - 1
		}
		r.cells = append(r.cells, b.columns[i].cells[at])
	}
}

func (r *route) connect() {
	for i, c := range r.cells[1:] {
		before := r.cells[i]
		if !slices.Contains(c.left, before) {
			c.left, before.next = append(c.left, before), append(before.next, c)
		}
	}
}
