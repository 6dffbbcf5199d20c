package cluster

import (
	"slices"
	"strings"

	"github.com/siderolabs/gen/xslices"

	"github.com/ephemeral-castle/castle/internal/config"
	"github.com/ephemeral-castle/castle/internal/syntax"
)

// Selection narrows a command to some stages. Each entry is a stage's or a
// layer's name; a layer stands for all its stages. The zero value selects all.
type Selection struct {
	Only     []string // exactly these
	From, To string   // everything from this one on, up to this one, in the order of layers
}

// String repeats the selection as its flags, for messages.
func (s Selection) String() string {
	flags := xslices.Map(s.Only, func(name string) string { return "--only " + name })
	if s.From != "" {
		flags = append(flags, "--from "+s.From)
	}
	if s.To != "" {
		flags = append(flags, "--to "+s.To)
	}
	return strings.Join(flags, " ")
}

// All reports whether the selection contains every stage.
func (s Selection) All() bool { return len(s.Only) == 0 && s.From == "" && s.To == "" }

// StageRef names a stage, configured or recorded, and its layer.
type StageRef struct{ Name, Layer string }

// Filter returns, for each of places in their order, whether it is selected. An unknown name is a
// *UsageError that lists the known ones and suggests the nearest.
func (s Selection) Filter(places []StageRef) ([]bool, error) {
	chosen := make([]bool, len(places))
	for i := range chosen {
		chosen[i] = len(s.Only) == 0
	}
	for _, name := range s.Only {
		found, err := Find("--only", name, places)
		if err != nil {
			return nil, err
		}
		for _, i := range found {
			chosen[i] = true
		}
	}
	if s.From != "" {
		found, err := Find("--from", s.From, places)
		if err != nil {
			return nil, err
		}
		clear(chosen[:found[0]])
	}
	if s.To != "" {
		found, err := Find("--to", s.To, places)
		if err != nil {
			return nil, err
		}
		clear(chosen[found[len(found)-1]+1:])
	}
	if !slices.Contains(chosen, true) && len(places) > 0 {
		return nil, Usagef("%s selects no stage", s)
	}
	return chosen, nil
}

// Find returns the indexes of the stages that a stage's or layer's name selects, at least one.
func Find(flag, name string, places []StageRef) ([]int, error) {
	var found []int
	var names []string
	for i, p := range places {
		if p.Name == name || p.Layer == name {
			found = append(found, i)
		}
		for _, n := range []string{p.Layer, p.Name} {
			if !slices.Contains(names, n) {
				names = append(names, n)
			}
		}
	}
	if len(found) == 0 {
		return nil, Usagef("%s: no stage or layer is called %q; there are %s%s", flag, name,
			strings.Join(names, ", "), syntax.DidYouMean(name, names))
	}
	return found, nil
}

// FindOne returns the index of the one stage that a stage's or layer's name selects.
func FindOne(flag, name string, places []StageRef) (int, error) {
	found, err := Find(flag, name, places)
	if err != nil {
		return 0, err
	}
	if len(found) == 1 {
		return found[0], nil
	}
	names := xslices.Map(found, func(i int) string { return places[i].Name })
	return 0, Usagef("layer %s has several stages; name one: %s", name, strings.Join(names, ", "))
}

// Refs returns the references of configured stages.
func Refs(stages []*config.Stage) []StageRef {
	places := make([]StageRef, len(stages))
	for i, s := range stages {
		places[i] = StageRef{s.Name, s.Layer}
	}
	return places
}

// Stages returns the selected ones of a cluster's stages.
func (s Selection) Stages(all []*config.Stage) ([]*config.Stage, error) {
	chosen, err := s.Filter(Refs(all))
	if err != nil {
		return nil, err
	}
	var selected []*config.Stage
	for i, st := range all {
		if chosen[i] {
			selected = append(selected, st)
		}
	}
	return selected, nil
}
