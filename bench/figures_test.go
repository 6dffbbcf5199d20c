package main

import (
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"
)

func TestMedian(t *testing.T) {
	for _, c := range []struct {
		values []float64
		want   float64
	}{
		{nil, 0},
		{[]float64{7}, 7},
		{[]float64{9, 1, 5}, 5},
		{[]float64{4, 1, 100, 2}, 3},
	} {
		before := slices.Clone(c.values)
		if got := median(c.values); got != c.want {
			t.Errorf("median of %v: %v, want %v", c.values, got, c.want)
		}
		if !slices.Equal(c.values, before) {
			t.Errorf("median has sorted the rounds: %v, were %v", c.values, before)
		}
	}
}

// measured returns samples whose wall clocks are in seconds.
func measured(roots, phase string, seconds map[string][]float64) samples {
	s := samples{}
	for tool, all := range seconds {
		for _, x := range all {
			k := key{roots, phase, tool}
			s[k] = append(s[k], measure{Wall: time.Duration(x * float64(time.Second))})
		}
	}
	return s
}

func TestRatiosDivideMediansOfTheSameCommand(t *testing.T) {
	s := measured(rootsPlugins, phaseCreate, map[string][]float64{
		castleTool: {3, 1, 100}, shellTool: {2, 2, 2}, terragruntTool: {4, 50, 6},
	})
	for k, m := range measured(rootsData, phaseCreate, map[string][]float64{shellTool: {1}}) {
		s[k] = m // without castle: no ratio
	}
	want := []ratio{{rootsPlugins, phaseCreate, shellTool, 1.5},
		{rootsPlugins, phaseCreate, terragruntTool, 0.5}}
	if got := s.ratios(); !slices.Equal(got, want) {
		t.Errorf("got %v, want %v", got, want)
	}
}

func TestCompareFailsAboveAFifth(t *testing.T) {
	at := func(value float64) []ratio { return []ratio{{rootsData, phaseCreate, shellTool, value}} }
	name := at(0)[0].name()
	for _, c := range []struct {
		recorded, now float64
		worse         bool
	}{
		{1, 1.2, false},
		{1, 1.21, true},
		{1, 0.1, false},
		{0.01, 0.015, false}, // milliseconds: within the margin
		{0.01, 0.03, true},
	} {
		worse, err := compare(map[string]float64{name: c.recorded}, at(c.now))
		if err != nil || len(worse) > 0 != c.worse {
			t.Errorf("%v after %v: worse %v (%v), want %v", c.now, c.recorded, worse, err, c.worse)
		}
	}
	if _, err := compare(map[string]float64{"another": 1}, at(1)); err == nil {
		t.Error("a comparison of nothing has succeeded")
	}
}

func TestRecordedResultsAreCompared(t *testing.T) {
	dir := t.TempDir()
	fast := measured(rootsPlugins, phaseDestroy,
		map[string][]float64{castleTool: {1}, shellTool: {2}, terragruntTool: {2}})
	slow := measured(rootsPlugins, phaseDestroy,
		map[string][]float64{castleTool: {1.3}, shellTool: {2}, terragruntTool: {2}})
	if err := fast.check(dir); err == nil || !strings.Contains(err.Error(), "make bench") {
		t.Errorf("nothing recorded: %v", err)
	}
	if err := fast.write(dir, machine{}, options{}); err != nil {
		t.Fatal(err)
	}
	if err := fast.check(dir); err != nil {
		t.Errorf("the same again: %v", err)
	}
	err := slow.check(dir)
	line := "plugins destroy castle/terragrunt: 0.650, recorded 0.500"
	if err == nil || !strings.Contains(err.Error(), line) {
		t.Errorf("castle is slower by 30 %%: %v", err)
	}
	page, err := os.ReadFile(filepath.Join(dir, "RESULTS.md"))
	if err != nil {
		t.Fatal(err)
	}
	row := "| destroy with plugins, all contacted, castle / Terragrunt | ≤ 0.65 | 0.5 | met |"
	if !strings.Contains(string(page), row) {
		t.Errorf("RESULTS.md lacks %q:\n%s", row, page)
	}
}

func TestTargetsSayWhatIsMet(t *testing.T) {
	for _, c := range []struct {
		value float64
		want  string
	}{{0, "not measured"}, {0.65, "met"}, {0.66, "**not met**"}} {
		if got := (target{limit: 0.65, value: c.value}).verdict(); got != c.want {
			t.Errorf("%v: %s, want %s", c.value, got, c.want)
		}
	}
	s := samples{}
	s[key{rootsWide, phaseCreate, castleTool}] = []measure{
		{Own: time.Second, Children: 20 * time.Second, Memory: 64e6}}
	for _, tt := range targets(s, 300) {
		switch tt.text {
		case "create of 300, castle's own CPU / its children's":
			if tt.value != 5 {
				t.Errorf("own CPU: %v %%, want 5", tt.value)
			}
		case "create of 300, castle's memory":
			if tt.value != 64 {
				t.Errorf("memory: %v MB, want 64", tt.value)
			}
		}
	}
}
