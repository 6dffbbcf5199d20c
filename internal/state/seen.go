package state

import (
	"fmt"
	"slices"
	"strings"
)

// Seen identifies the state that castle last saw. Until castle runs Terraform again, it stays the same.
type Seen struct {
	Serial   uint64 `json:"serial"`
	Lineage  string `json:"lineage"`
	SHA256   string `json:"sha256"`
	Changing bool   `json:"changing,omitempty"` // Terraform may have changed it since
}

func seenOf(s *Stage) Document[Seen] { return StageDocument[Seen](s, "seen") }

// BeginChange records that Terraform may change the state from now on, until the next snapshot. Before the
// first snapshot there is no state that castle has seen, and nothing to record.
func BeginChange(s *Stage) error {
	seen, err := seenOf(s).Value()
	if err != nil || seen.Changing || seen.Lineage == "" {
		return err
	}
	seen.Changing = true
	return seenOf(s).Write(seen)
}

// checkSeen refuses a state that is readable, but that no run can have left: one with other content, of
// another lineage, or without resources that it had.
func checkSeen(s *Stage, st *State) error {
	seen, err := seenOf(s).Value()
	if err != nil || seen.Changing || seen.Lineage == "" || seen.SHA256 == st.SHA256 {
		return err
	}
	newest, err := s.Copies().Newest()
	if err != nil {
		return err
	}
	var lost []string
	if newest != nil {
		for _, res := range newest.State.Managed() {
			if !st.Has(res.Address) && !res.Deposed {
				lost = append(lost, res.Address)
			}
		}
	}
	var difference string
	switch {
	case len(lost) > 0:
		difference = "it lacks " + strings.Join(slices.Compact(lost), ", ")
	case st.Lineage != seen.Lineage:
		difference = fmt.Sprintf("its lineage is %q and was %q", st.Lineage, seen.Lineage)
	case st.Serial < seen.Serial:
		difference = fmt.Sprintf("its serial is %d and was %d", st.Serial, seen.Serial)
	case st.Serial == seen.Serial:
		difference = "it has the same serial and other content"
	default: // another Terraform has changed it
		return nil
	}
	return s.withFix(&UnreadableError{
		Path: s.StatePath(), State: st,
		Reason: fmt.Errorf("no run has changed it since castle last saw it (%s), and %s",
			seenOf(s).path, difference),
	})
}
