package drawing

import (
	"cmp"
	"math"
	"slices"
	"unicode/utf8"
)

// Sizes, in pixels.
const (
	titleSize = 13
	lineSize  = 11
	advance   = 0.62 // a character's width in its size: a little more than any monospaced font has

	titleHeight = 24.0 // of a node's title; its ends of edges are at the middle
	lineHeight  = 15.0
	laneHeight  = 8.0
	nodePadding = 8.0
	rowGap      = 16.0
	bend        = 56.0 // between columns: there edges bend
	groupTop    = 28.0 // for its name
	groupSide   = 14.0
	groupGap    = 18.0
	labelGap    = 8.0
)

func textWidth(s string, size float64) float64 {
	return float64(utf8.RuneCountInString(s)) * size * advance
}

// nodeWidth is the width of a node's box.
func nodeWidth(n *Node) float64 {
	w := textWidth(n.Name, titleSize)
	if n.Note != "" {
		w += textWidth("  "+n.Note, titleSize)
	}
	for _, l := range n.Lines {
		w = max(w, textWidth(l.Text, lineSize))
	}
	return w + 2*nodePadding
}

func (c *cell) size() (w, h float64) {
	if c.node == nil {
		return 0, laneHeight
	}
	w, h = nodeWidth(c.node), titleHeight
	if len(c.node.Lines) > 0 {
		h += float64(len(c.node.Lines))*lineHeight + nodePadding/2
	}
	if c.node.Label != "" && len(c.next) > 0 {
		w += textWidth(c.node.Label, lineSize) + 2*labelGap
	}
	return w, h
}

// port is the height at which edges reach and leave the cell.
func (c *cell) port() float64 {
	if c.node == nil {
		return c.y + c.h/2
	}
	return c.y + titleHeight/2
}

// place positions all cells. Sweeps from left to right and back move each cell to the mean height of its
// neighbours (the barycentre). place keeps the order in which the edges bend least.
func (l *layout) place() {
	l.stack()
	best, order := l.cost(), l.order()
	for sweep := range 8 {
		if sweep%2 == 0 {
			for _, r := range l.ranks {
				r.sort(func(c *cell) []*cell { return c.left })
				l.stack()
			}
		} else {
			for _, r := range slices.Backward(l.ranks) {
				r.sort(func(c *cell) []*cell { return c.next })
				l.stack()
			}
		}
		if cost := l.cost(); cost < best {
			best, order = cost, l.order()
		}
	}
	l.restore(order)
	l.stack()
}

// sort orders the rank by the mean height of neighbours. A cell without neighbours stays.
func (r *rank) sort(neighbours func(*cell) []*cell) {
	mean := func(cells []*cell, otherwise float64) float64 {
		sum, n := 0.0, 0
		for _, c := range cells {
			for _, other := range neighbours(c) {
				sum, n = sum+other.port(), n+1
			}
		}
		if n == 0 {
			return otherwise
		}
		return sum / float64(n)
	}
	for _, b := range r.blocks {
		for _, col := range b.columns {
			slices.SortStableFunc(col.cells, func(x, y *cell) int {
				return cmp.Compare(mean([]*cell{x}, x.port()), mean([]*cell{y}, y.port()))
			})
		}
	}
	height := map[*block]float64{}
	for _, b := range r.blocks {
		var cells []*cell
		for _, col := range b.columns {
			for _, c := range col.cells {
				outside := slices.DeleteFunc(slices.Clone(neighbours(c)), func(n *cell) bool {
					return n.block == b
				})
				if len(outside) > 0 {
					cells = append(cells, c)
				}
			}
		}
		height[b] = mean(cells, b.y+b.h/2)
	}
	slices.SortStableFunc(r.blocks, func(x, y *block) int { return cmp.Compare(height[x], height[y]) })
}

// cost returns the total vertical distance of all edges; crossing edges go far.
func (l *layout) cost() float64 {
	sum := 0.0
	for _, r := range l.routes {
		for i, c := range r.cells[1:] {
			sum += math.Abs(c.port() - r.cells[i].port())
		}
	}
	return sum
}

type order struct {
	blocks [][]*block
	cells  map[*column][]*cell
}

func (l *layout) order() order {
	o := order{cells: map[*column][]*cell{}}
	for _, r := range l.ranks {
		o.blocks = append(o.blocks, slices.Clone(r.blocks))
		for _, b := range r.blocks {
			for _, col := range b.columns {
				o.cells[col] = slices.Clone(col.cells)
			}
		}
	}
	return o
}

func (l *layout) restore(o order) {
	for i, r := range l.ranks {
		r.blocks = o.blocks[i]
	}
	for col, cells := range o.cells {
		col.cells = cells
	}
}

// stack gives everything its place in the present order.
func (l *layout) stack() {
	l.height, l.width = 0, 0
	heights := make([]float64, len(l.ranks))
	for i, r := range l.ranks {
		r.x, r.w = l.width, 0
		for j, b := range r.blocks {
			b.measure()
			r.w = max(r.w, b.w)
			heights[i] += b.h
			if j > 0 {
				heights[i] += groupGap
			}
		}
		l.width = r.x + r.w + bend
		l.height = max(l.height, heights[i])
	}
	l.width = max(0, l.width-bend)
	for i, r := range l.ranks {
		y := (l.height - heights[i]) / 2
		for _, b := range r.blocks {
			b.settle(r.x, y)
			y += b.h + groupGap
		}
	}
}

func (b *block) measure() {
	b.w, b.h = 0, 0
	for _, col := range b.columns {
		col.w = 0
		for _, c := range col.cells {
			w, h := c.size()
			col.w, c.h = max(col.w, w), h
		}
		b.w += col.w + bend
		b.h = max(b.h, col.height())
	}
	b.w -= bend
	if b.group != nil {
		b.w += 2 * groupSide
		b.w = max(b.w, textWidth(b.group.Name, titleSize)+2*groupSide)
		b.h += groupTop + groupSide
	}
}

func (col *column) height() float64 {
	h := -rowGap
	for _, c := range col.cells {
		h += c.h + rowGap
	}
	return h
}

// settle puts the block at its place; each column stands in its middle.
func (b *block) settle(x, y float64) {
	b.x, b.y = x, y
	top, inner := y, b.h
	if b.group != nil {
		x, top, inner = x+groupSide, y+groupTop, b.h-groupTop-groupSide
	}
	for _, col := range b.columns {
		col.x = x
		at := top + (inner-col.height())/2
		for _, c := range col.cells {
			c.y = at
			at += c.h + rowGap
		}
		x += col.w + bend
	}
}
