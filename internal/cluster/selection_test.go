package cluster

import (
	"errors"
	"slices"
	"strings"
	"testing"
)

func TestSelectionFiltersStagesAndLayers(t *testing.T) {
	places := []StageRef{
		{"infisical", "secrets"}, {"keys", "secrets"}, {"machines", "platform"},
		{"metallb", "networking"}, {"address-pool", "networking"}, {"longhorn", "storage"},
	}
	for _, c := range []struct {
		name      string
		selection Selection
		want      []string
	}{
		{"nothing said selects all", Selection{}, []string{"infisical", "keys", "machines", "metallb",
			"address-pool", "longhorn"}},
		{"a stage", Selection{Only: []string{"keys"}}, []string{"keys"}},
		{"a layer is all its stages", Selection{Only: []string{"networking"}},
			[]string{"metallb", "address-pool"}},
		{"from a stage in the middle of a layer", Selection{From: "address-pool"},
			[]string{"address-pool", "longhorn"}},
		{"up to a layer takes all of it", Selection{To: "networking"},
			[]string{"infisical", "keys", "machines", "metallb", "address-pool"}},
		{"from and to", Selection{From: "platform", To: "metallb"}, []string{"machines", "metallb"}},
	} {
		t.Run(c.name, func(t *testing.T) {
			chosen, err := c.selection.Filter(places)
			if err != nil {
				t.Fatal(err)
			}
			var got []string
			for i, p := range places {
				if chosen[i] {
					got = append(got, p.Name)
				}
			}
			if !slices.Equal(got, c.want) {
				t.Errorf("got %v, want %v", got, c.want)
			}
		})
	}
}

func TestSelectionRefusesUnknownNames(t *testing.T) {
	places := []StageRef{{"keys", "secrets"}, {"metallb", "networking"}}
	for _, c := range []struct {
		selection Selection
		words     string
	}{
		{Selection{Only: []string{"moat"}},
			`--only: no stage or layer is called "moat"; there are secrets, keys, networking, metallb`},
		{Selection{From: "moat"}, "--from"},
		{Selection{From: "metallb", To: "keys"}, "selects no stage"},
	} {
		_, err := c.selection.Filter(places)
		var usage *UsageError
		if !errors.As(err, &usage) || !strings.Contains(err.Error(), c.words) {
			t.Errorf("%v: got %v, want a usage error with %q", c.selection, err, c.words)
		}
	}
}
