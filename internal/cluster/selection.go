package cluster

import (
	"fmt"
	"slices"
	"strings"

	"github.com/ephemeral-castle/castle/internal/config"
)

// Selection narrows a command to some stages. Each entry is a stage's or a
// layer's name; a layer stands for all its stages. The zero value selects all.
type Selection struct {
	Only     []string // exactly these
	From, To string   // everything from this one on, up to this one, in the order of layers
}

// String repeats the selection as its flags, for messages.
func (s Selection) String() string {
	var flags []string
	for _, name := range s.Only {
		flags = append(flags, "--only "+name)
	}
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
		found := Match(places, name)
		if len(found) == 0 {
			return nil, UnknownStage("--only", name, places)
		}
		for _, i := range found {
			chosen[i] = true
		}
	}
	if s.From != "" {
		found := Match(places, s.From)
		if len(found) == 0 {
			return nil, UnknownStage("--from", s.From, places)
		}
		for i := range found[0] {
			chosen[i] = false
		}
	}
	if s.To != "" {
		found := Match(places, s.To)
		if len(found) == 0 {
			return nil, UnknownStage("--to", s.To, places)
		}
		for i := found[len(found)-1] + 1; i < len(places); i++ {
			chosen[i] = false
		}
	}
	if !slices.Contains(chosen, true) && len(places) > 0 {
		return nil, &UsageError{Message: fmt.Sprintf("%s selects no stage", s)}
	}
	return chosen, nil
}

// Match returns the indexes of the stages that a stage's or layer's name selects.
func Match(places []StageRef, name string) []int {
	var found []int
	for i, p := range places {
		if p.Name == name || p.Layer == name {
			found = append(found, i)
		}
	}
	return found
}

// UnknownStage returns the *UsageError for a name that selects no stage.
func UnknownStage(flag, name string, places []StageRef) error {
	var names []string
	for _, p := range places {
		for _, n := range []string{p.Layer, p.Name} {
			if !slices.Contains(names, n) {
				names = append(names, n)
			}
		}
	}
	return &UsageError{Message: fmt.Sprintf("%s: no stage or layer is called %q; there are %s%s",
		flag, name, strings.Join(names, ", "), config.DidYouMean(name, names))}
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
