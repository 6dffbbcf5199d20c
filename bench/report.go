package main

import (
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"
)

// results is results.json: what RESULTS.md shows, for `-compare`.
type results struct {
	Machine machine
	Rounds  map[string]int // of each roots
	Ratios  map[string]float64
	Cases   []entry
}

// An entry is one command with its measures, in the order of the rounds.
type entry struct {
	Roots, Phase, Tool string
	Measures           []measure
}

// A target is a limit that castle shall keep, and what was measured; nothing was if value is 0.
type target struct {
	text         string
	limit, value float64
	unit         string
}

func (t target) verdict() string {
	switch {
	case t.value == 0:
		return "not measured"
	case t.value <= t.limit:
		return "met"
	}
	return "**not met**"
}

func (t target) format(x float64) string {
	if x == 0 {
		return "–"
	}
	return fmt.Sprintf("%.3g%s", x, t.unit)
}

// targets of the issue, in its order.
func targets(s samples, wide int) []target {
	at := func(roots, phase, peer string) float64 {
		for _, r := range s.ratios() {
			if r.Roots == roots && r.Phase == phase && r.Peer == peer {
				return r.Value
			}
		}
		return 0
	}
	big := s.of(key{rootsWide, phaseCreate, castleTool})
	share := 0.0
	if big.Children > 0 {
		share = 100 * float64(big.Own) / float64(big.Children)
	}
	// The same time for each unit, however many there are, is 1.
	linear := 0.0
	if many := s.of(key{rootsThousand, phaseCreate, castleTool}); big.Wall > 0 {
		linear = float64(many.Wall) / float64(thousandCopies*len(shape)) / (float64(big.Wall) / float64(wide))
	}
	command := func(phase string) time.Duration { return s.of(key{rootsCommands, phase, castleTool}).Wall }
	typed := func(phase string) time.Duration { return s.of(key{rootsTyped, phase, castleTool}).Wall }
	const mb = 1e6
	return []target{
		{"create with plugins, castle / shell", 0.75, at(rootsPlugins, phaseCreate, shellTool), ""},
		{"create with plugins, castle / Terragrunt", 0.65, at(rootsPlugins, phaseCreate, terragruntTool), ""},
		{"destroy with plugins, all contacted, castle / Terragrunt", 0.65,
			at(rootsPlugins, phaseDestroy, terragruntTool), ""},
		{"destroy with plugins, objects in the cluster not contacted, castle / Terragrunt", 0.4,
			at(rootsCluster, phaseDestroy, terragruntTool), ""},
		{"one of six with plugins changed, castle / Terragrunt", 0.25,
			at(rootsPlugins, phaseChanged, terragruntTool), ""},
		{"nothing to do with plugins, gates included, castle / Terragrunt", 0.03,
			at(rootsPlugins, phaseUnchanged, terragruntTool), ""},
		{fmt.Sprintf("create of %d, castle's own CPU / its children's", wide), 4, share, " %"},
		{fmt.Sprintf("create of %d, castle's memory", wide), 80, float64(big.Memory) / mb, " MB"},
		{fmt.Sprintf("create of %d, time for each, beside that of %d", thousandCopies*len(shape), wide), 1.1,
			linear, ""},
		{"`castle check` of 100 clusters", 2, command(phaseCheckAll).Seconds(), " s"},
		{"`castle check blue`", 0.3, command(phaseCheckBlue).Seconds(), " s"},
		{"`castle version`", 20, 1000 * command(phaseVersion).Seconds(), " ms"},
		{"`castle list` of 20 clusters", 60, 1000 * typed(phaseList).Seconds(), " ms"},
		{"`castle status` of a live blue", 0.6, typed(phaseStatus).Seconds(), " s"},
		{"completion of the stages of blue", 80, 1000 * typed(phaseComplete).Seconds(), " ms"},
	}
}

// markdown is RESULTS.md.
func markdown(m machine, s samples, o options) string {
	var b strings.Builder
	b.WriteString("# Results\n\n`make bench` wrote this page. The [README](README.md) says what is " +
		"measured and how.\n\n")
	m.write(&b)
	b.WriteString("\n## Targets\n\nMedians; less is better.\n\n| | target | measured | |\n" +
		"| --- | --- | --- | --- |\n")
	for _, t := range targets(s, o.copies*len(shape)) {
		fmt.Fprintf(&b, "| %s | ≤ %s | %s | %s |\n", t.text, t.format(t.limit), t.format(t.value),
			t.verdict())
	}
	b.WriteString("\n## Measures\n\nWall clock: median (least to most). CPU: the tool's own process, " +
		"in brackets the kernel's\npart of it, and its children. Memory: the peak of the tool's own " +
		"process.\n\n" +
		"| roots | phase | tool | rounds | wall | castle / it | own CPU | children's CPU | castle / it | " +
		"memory |\n| --- | --- | --- | --- | --- | --- | --- | --- | --- | --- |\n")
	byName := map[string]float64{}
	for _, r := range s.ratios() {
		byName[r.name()] = r.Value
	}
	for _, e := range s.entries() {
		k := key{e.Roots, e.Phase, e.Tool}
		middle := s.of(k)
		beside, work := "", ""
		if value, ok := byName[ratio{Roots: k.Roots, Phase: k.Phase, Peer: k.Tool}.name()]; ok {
			beside = fmt.Sprintf("%.3f", value)
			castle := s.of(key{k.Roots, k.Phase, castleTool})
			work = fmt.Sprintf("%.3f", float64(castle.Own+castle.Children)/
				float64(max(middle.Own+middle.Children, tick)))
		}
		least, most := extremes(e.Measures)
		fmt.Fprintf(&b, "| %s | %s | %s | %d | %s (%s to %s) | %s | %s | %s | %s | %s |\n", e.Roots,
			e.Phase, e.Tool, len(e.Measures), seconds(middle.Wall), seconds(least), seconds(most), beside,
			fmt.Sprintf("%s (%s)", seconds(middle.Own), seconds(middle.Kernel)), seconds(middle.Children),
			work, megabytes(middle.Memory))
	}
	return b.String()
}

func extremes(all []measure) (least, most time.Duration) {
	byWall := func(a, b measure) int { return int(a.Wall - b.Wall) }
	return slices.MinFunc(all, byWall).Wall, slices.MaxFunc(all, byWall).Wall
}

func seconds(d time.Duration) string { return fmt.Sprintf("%.3f s", d.Seconds()) }

// megabytes shows a peak of memory; 0 is unknown.
func megabytes(n int64) string {
	if n == 0 {
		return "–"
	}
	return fmt.Sprintf("%.0f MB", float64(n)/1e6)
}

// entries are the measures in the order in which a reader expects them.
func (s samples) entries() (all []entry) {
	rank := func(names []string, name string) int { return slices.Index(names, name) }
	for k, measures := range s {
		all = append(all, entry{k.Roots, k.Phase, k.Tool, measures})
	}
	slices.SortFunc(all, func(a, b entry) int {
		return slices.Compare(
			[]int{rank(allRoots, a.Roots), rank(allPhases, a.Phase), rank(allTools, a.Tool)},
			[]int{rank(allRoots, b.Roots), rank(allPhases, b.Phase), rank(allTools, b.Tool)})
	})
	return all
}

// write records the results in dir.
func (s samples) write(dir string, m machine, o options) error {
	r := results{Machine: m, Rounds: map[string]int{}, Ratios: map[string]float64{}, Cases: s.entries()}
	for _, one := range s.ratios() {
		r.Ratios[one.name()] = one.Value
	}
	for _, e := range r.Cases {
		r.Rounds[e.Roots] = len(e.Measures)
	}
	text, err := json.MarshalIndent(r, "", "  ")
	if err != nil {
		return err
	}
	return tree{"results.json": string(text) + "\n", "RESULTS.md": markdown(m, s, o)}.write(dir)
}

// check compares the ratios with the recorded ones in dir.
func (s samples) check(dir string) error {
	file := filepath.Join(dir, "results.json")
	text, err := os.ReadFile(file)
	if errors.Is(err, fs.ErrNotExist) {
		return fmt.Errorf("%w; `make bench` writes it", err)
	}
	var r results
	if err == nil {
		err = json.Unmarshal(text, &r)
	}
	if err != nil {
		return fmt.Errorf("%s: %w", file, err)
	}
	for _, one := range s.ratios() {
		fmt.Printf("%-45s %.3f, recorded %.3f\n", one.name(), one.Value, r.Ratios[one.name()])
	}
	worse, err := compare(r.Ratios, s.ratios())
	if err != nil {
		return fmt.Errorf("%s: %w", file, err)
	}
	if len(worse) > 0 {
		return fmt.Errorf("worse by more than a fifth than %s records:\n  %s", file,
			strings.Join(worse, "\n  "))
	}
	return nil
}
