package graph_test

import (
	"errors"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/ephemeral-castle/castle/internal/graph"
)

func TestCriticalPath(t *testing.T) {
	tests := []struct {
		name   string
		nodes  string
		needs  map[string]string
		weight map[string]int
		want   string
		length int
	}{
		{name: "nothing", want: ""},
		{name: "one node", nodes: "a", weight: map[string]int{"a": 3}, want: "a", length: 3},
		{name: "nothing weighs anything", nodes: "a b", needs: map[string]string{"b": "a"}, want: ""},
		{
			name: "the heavier of two arms", nodes: "a b c d",
			needs:  map[string]string{"b": "a", "c": "a", "d": "b c"},
			weight: map[string]int{"a": 1, "b": 2, "c": 5, "d": 1}, want: "a c d", length: 7,
		},
		{
			name: "many light nodes outweigh a heavy one", nodes: "x a b c",
			needs:  map[string]string{"b": "a", "c": "b"},
			weight: map[string]int{"x": 5, "a": 2, "b": 2, "c": 2}, want: "a b c", length: 6,
		},
		{
			name: "it may end before the last node", nodes: "a b c",
			needs:  map[string]string{"c": "a"},
			weight: map[string]int{"a": 1, "b": 9, "c": 1}, want: "b", length: 9,
		},
		{
			name: "what weighs nothing is passed through, but does not begin it", nodes: "a b c d",
			needs:  map[string]string{"b": "a", "c": "b", "d": "c"},
			weight: map[string]int{"b": 2, "d": 2}, want: "b c d", length: 4,
		},
		{
			name: "of equal arms the first", nodes: "a b c d",
			needs:  map[string]string{"b": "a", "c": "a", "d": "b c"},
			weight: map[string]int{"a": 1, "b": 2, "c": 2, "d": 1}, want: "a b d", length: 4,
		},
		{
			name: "in whatever order the nodes are given", nodes: "d c b a",
			needs:  map[string]string{"b": "a", "c": "a", "d": "b c"},
			weight: map[string]int{"a": 1, "b": 2, "c": 5, "d": 1}, want: "a c d", length: 7,
		},
		{
			name: "what is not a node weighs nothing", nodes: "a b",
			needs:  map[string]string{"b": "a outside"},
			weight: map[string]int{"a": 1, "b": 1, "outside": 100}, want: "a b", length: 2,
		},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			needs := func(n string) []string { return strings.Fields(tt.needs[n]) }
			weight := func(n string) time.Duration { return time.Duration(tt.weight[n]) * time.Second }
			path, length, err := graph.CriticalPath(strings.Fields(tt.nodes), needs, weight)
			if err != nil || !slices.Equal(path, strings.Fields(tt.want)) ||
				length != time.Duration(tt.length)*time.Second {
				t.Errorf("got %q, %s, %v; want %q, %ds", path, length, err, tt.want, tt.length)
			}
		})
	}
}

func TestCriticalPathNamesACycle(t *testing.T) {
	needs := func(n string) []string { return map[string][]string{"a": {"b"}, "b": {"a"}}[n] }
	_, _, err := graph.CriticalPath([]string{"a", "b"}, needs, func(string) time.Duration {
		return time.Second
	})
	if cycle := new(graph.CycleError[string]); !errors.As(err, &cycle) {
		t.Errorf("got %v", err)
	}
}
