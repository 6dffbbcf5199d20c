package drawing_test

import (
	"encoding/xml"
	"fmt"
	"regexp"
	"strconv"
	"strings"
	"testing"
	"unicode/utf8"
)

// picture holds the parts of an SVG that a reader sees.
type picture struct {
	width, height float64
	texts, boxes  []area
	paths         [][]point
}

type point struct{ x, y float64 }

type area struct {
	what        string
	x, y, to, b float64 // left, top, right, bottom
}

func (a area) overlaps(o area) bool { return a.x < o.to && o.x < a.to && a.y < o.b && o.y < a.b }

// holds leaves out the rim, where lines begin and end; lengths are rounded.
func (a area) holds(p point) bool {
	const rim = 0.2
	return a.x+rim < p.x && p.x < a.to-rim && a.y+rim < p.y && p.y < a.b-rim
}

// read parses an SVG of this package.
func read(t *testing.T, svg string) picture {
	t.Helper()
	var p picture
	var shift []point
	at := point{}
	attr := func(e xml.StartElement, name string) string {
		for _, a := range e.Attr {
			if a.Name.Local == name {
				return a.Value
			}
		}
		return ""
	}
	number := func(e xml.StartElement, name string) float64 {
		v, err := strconv.ParseFloat(attr(e, name), 64)
		if err != nil {
			t.Fatalf("%s of %s: %v", name, e.Name.Local, err)
		}
		return v
	}
	for d := xml.NewDecoder(strings.NewReader(svg)); ; {
		token, err := d.Token()
		if token == nil {
			break
		}
		if err != nil {
			t.Fatalf("%v in\n%s", err, svg)
		}
		if end, ok := token.(xml.EndElement); ok && end.Name.Local == "g" {
			at, shift = shift[len(shift)-1], shift[:len(shift)-1]
		}
		e, ok := token.(xml.StartElement)
		if !ok {
			continue
		}
		class := strings.Fields(attr(e, "class") + " -")[0]
		switch {
		case e.Name.Local == "svg":
			p.width, p.height = number(e, "width"), number(e, "height")
		case e.Name.Local == "g":
			shift = append(shift, at)
			var by point
			if _, err := fmt.Sscanf(attr(e, "transform"), "translate(%f %f)", &by.x, &by.y); err == nil {
				at.x, at.y = at.x+by.x, at.y+by.y
			}
		case e.Name.Local == "rect" && class == "box":
			x, y := number(e, "x")+at.x, number(e, "y")+at.y
			p.boxes = append(p.boxes, area{"box", x, y, x + number(e, "width"), y + number(e, "height")})
		case e.Name.Local == "path" && class == "edge" && strings.Contains(attr(e, "d"), "C"):
			p.paths = append(p.paths, points(t, attr(e, "d"), at))
		case e.Name.Local == "text":
			inner, err := d.Token()
			if err != nil {
				t.Fatal(err)
			}
			text := string(inner.(xml.CharData))
			size, x, y := number(e, "font-size"), number(e, "x")+at.x, number(e, "y")+at.y
			p.texts = append(p.texts,
				area{text, x, y - 0.75*size, x + 0.602*size*float64(utf8.RuneCountInString(text)),
					y + 0.2*size})
		}
	}
	return p
}

var pathPart = regexp.MustCompile(`[MHC][^MHC]*`)

// points walks along a path in small steps.
func points(t *testing.T, d string, shift point) []point {
	t.Helper()
	var all []point
	var at point
	for _, part := range pathPart.FindAllString(d, -1) {
		var v []float64
		for f := range strings.FieldsSeq(part[1:]) {
			n, err := strconv.ParseFloat(f, 64)
			if err != nil {
				t.Fatal(err)
			}
			v = append(v, n)
		}
		from := at
		c1, c2 := from, from
		switch part[0] {
		case 'M':
			at = point{v[0], v[1]}
			continue
		case 'H':
			at.x = v[0]
			c2 = at
		case 'C':
			c1, c2, at = point{v[0], v[1]}, point{v[2], v[3]}, point{v[4], v[5]}
		}
		for i := range 201 {
			s := float64(i) / 200
			mix := func(a, b, c, e float64) float64 {
				return (1-s)*(1-s)*(1-s)*a + 3*(1-s)*(1-s)*s*b + 3*(1-s)*s*s*c + s*s*s*e
			}
			all = append(all,
				point{mix(from.x, c1.x, c2.x, at.x) + shift.x, mix(from.y, c1.y, c2.y, at.y) + shift.y})
		}
	}
	return all
}

// checkLegible fails the test where something lies on a text, a line runs behind a
// node, or something lies outside the picture.
func (p picture) checkLegible(t *testing.T) {
	t.Helper()
	page := area{"page", 0, 0, p.width, p.height}
	for i, a := range p.texts {
		if !page.holds(point{a.x, a.y}) || !page.holds(point{a.to, a.b}) {
			t.Errorf("%q lies outside the page: %+v", a.what, a)
		}
		for _, b := range p.texts[i+1:] {
			if a.overlaps(b) {
				t.Errorf("%q and %q overlap: %+v, %+v", a.what, b.what, a, b)
			}
		}
	}
	for i, a := range p.boxes {
		for _, b := range p.boxes[i+1:] {
			if a.overlaps(b) {
				t.Errorf("two boxes overlap: %+v, %+v", a, b)
			}
		}
	}
	for i, path := range p.paths {
		before := 0.0
		for _, at := range path {
			for _, a := range append(p.texts, p.boxes...) {
				if a.holds(at) {
					t.Fatalf("edge %d crosses %q: %+v, %+v", i, a.what, at, a)
				}
			}
			if at.x < before-0.01 || !page.holds(at) {
				t.Fatalf("edge %d turns back or leaves the page at %+v", i, at)
			}
			before = at.x
		}
	}
}
