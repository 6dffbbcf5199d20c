package main

import (
	"encoding/xml"
	"io"
	"strings"
	"testing"
)

func TestAScreenKeepsItsTextAndColours(t *testing.T) {
	svg := draw("plain \x1b[1;32mready\x1b[0m <end>\n\x1b[2mdim\x1b[22m\x1b[91mred\x1b[39m\n\n", 40)
	for _, want := range []string{">plain <", "&lt;end&gt;",
		`<tspan x="60" textLength="40" fill="#3fb950" font-weight="bold">ready<`,
		`opacity="0.6">dim<`, `fill="#ffa198">red<`} {
		if !strings.Contains(svg, want) {
			t.Errorf("lacks %s:\n%s", want, svg)
		}
	}
	if n := strings.Count(svg, "<text "); n != 2 {
		t.Errorf("%d lines, want 2: empty ones at the end are no part of the picture", n)
	}
	for d := xml.NewDecoder(strings.NewReader(svg)); ; {
		if _, err := d.Token(); err == io.EOF {
			break
		} else if err != nil {
			t.Fatal(err)
		}
	}
}
