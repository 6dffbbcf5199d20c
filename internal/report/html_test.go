package report_test

import (
	"bytes"
	"fmt"
	"reflect"
	"regexp"
	"slices"
	"strings"
	"testing"

	"golang.org/x/net/html"
)

// breakout ends each element and attribute of the page that could hold it, and starts a script.
const breakout = `'"></text></title></code></pre></style></script><script>alert(1)</script>&amp;<!-- {{.}} `

// code matches the elements and attributes in which a browser reads a text as code or as an address.
var code = regexp.MustCompile(`^(script|style|.* (style|href|src|content|on.*))$`)

// TestPageKeepsHostileTextInItsPlace fills each text of a report with markup, and again with letters. A
// browser has to build the same elements from both pages, and to show the markup as a text.
func TestPageKeepsHostileTextInItsPlace(t *testing.T) {
	harmless := strings.Repeat("x", len(breakout)) // of the same length, because the chart measures names
	got, want := nodesOfPage(t, breakout), nodesOfPage(t, harmless)
	for i := range min(len(got), len(want)) {
		if got[i] != want[i] {
			t.Fatalf("node %d is %s, want %s", i, got[i], want[i])
		}
	}
	if len(got) != len(want) {
		t.Fatalf("%d nodes, want %d", len(got), len(want))
	}
	for _, place := range []string{
		`title: "castle TEXT TEXT: TEXT after 1m31s"`, // of the page
		`title: "TEXT"`,                            // of a stage in the chart
		`text: "TEXT/TEXT"`,                        // a stage in the chart
		`rect data-hint: "TEXT/TEXT: TEXT, 30.0s"`, // a step
		`title: "TEXT/TEXT: TEXT, 30.0s"`,          // its hint without the script
		`rect data-hint: "TEXT/TEXT: gates, 2.0s\nTEXT TEXT after 12.0s"`, // gates
		`text class: "TEXT critical"`,
		`span class: "TEXT"`,
		`strong: "TEXT"`, // a cause
		`pre: "TEXT"`,    // the error, a reason, a command
		`li: "12 stages: 9 TEXT, 1 failed, 1 ready, 1 skipped"`,
		`code: "TEXT"`, // the address of a resource
	} {
		if !slices.Contains(got, place) {
			t.Errorf("the page has no node %s", place)
		}
	}
	for _, node := range got {
		name, content, _ := strings.Cut(node, ": ")
		if code.MatchString(name) && strings.Contains(content, "TEXT") {
			t.Errorf("a text of the run is a part of %s", node)
		}
	}
}

// nodesOfPage renders a report whose texts are all text, and returns the elements, attributes and texts that
// a browser makes of the page. They name the text TEXT.
func nodesOfPage(t *testing.T, text string) (nodes []string) {
	t.Helper()
	r := newReport()
	fill(reflect.ValueOf(&r).Elem(), text)
	r.Stages[0].Steps[0].Step = "gates" // only its hint lists gates
	var page bytes.Buffer
	if err := r.WriteHTML(&page); err != nil {
		t.Fatal(err)
	}
	root, err := html.Parse(&page)
	if err != nil {
		t.Fatal(err)
	}
	add := func(name, content string) {
		nodes = append(nodes, fmt.Sprintf("%s: %q", name, strings.ReplaceAll(content, text, "TEXT")))
	}
	for n := range root.Descendants() {
		switch n.Type {
		case html.TextNode:
			add(n.Parent.Data, n.Data)
		case html.ElementNode:
			add("element", n.Data)
			for _, a := range n.Attr {
				add(n.Data+" "+a.Key, a.Val)
			}
		default:
			add("other", n.Data)
		}
	}
	return nodes
}

// fill sets every string of a report, and adds it to the counts.
func fill(v reflect.Value, text string) {
	switch v.Kind() {
	case reflect.Struct:
		for i := range v.NumField() {
			if v.Type().Field(i).IsExported() {
				fill(v.Field(i), text)
			}
		}
	case reflect.Slice:
		for i := range v.Len() {
			fill(v.Index(i), text)
		}
	case reflect.Map:
		v.SetMapIndex(reflect.ValueOf(text), reflect.ValueOf(9))
	case reflect.String:
		v.SetString(text)
	}
}
