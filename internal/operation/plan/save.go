package plan

import (
	"time"

	"github.com/ephemeral-castle/castle/internal/config"
	"github.com/ephemeral-castle/castle/internal/run/review"
)

// Extension ends the names of the files that plans are saved in.
const Extension = review.Extension

// SavedPlan describes the file of a saved plan.
type SavedPlan struct {
	Path   string `json:"path"`
	SHA256 string `json:"sha256"`
	Apply  string `json:"apply"` // the command that applies it
	// Unplanned are the stages without a plan: castle plans those during the create.
	Unplanned []string `json:"unplanned"`
	// Imports are the stages that castle plans again after an import.
	Imports []string `json:"imports"`
}

// save writes the plan to a file that a create applies exactly.
func (p *planning) save(path string, plan *Plan, chosen []*config.Stage, made []plannedStage) error {
	file := &review.SavedPlan{
		Path: path, Cluster: p.run.Cluster.Name(), Castle: p.run.Cluster.Options.Version,
		StateDir: p.run.Cluster.Dir.Path(), Run: p.run.ID, Made: time.Now().UTC(),
	}
	var err error
	if file.Facts, err = review.ConfigurationFacts(p.run); err != nil {
		return err
	}
	saved := &SavedPlan{
		Path: path, Apply: p.run.Cluster.Command("create") + " --plan " + path,
		Unplanned: []string{}, Imports: []string{},
	}
	for i, s := range chosen {
		one := review.SavedStage{Name: s.Name, State: made[i].plan.State, Saved: made[i].saved}
		if one.Facts, err = review.Facts(p.run, s, review.IsPlanned(one.State)); err != nil {
			return err
		}
		for _, c := range made[i].plan.Changes {
			one.Changes = append(one.Changes, review.Change{Address: c.Address, Action: c.Action})
		}
		switch {
		case !review.IsPlanned(one.State):
			saved.Unplanned = append(saved.Unplanned, s.Name)
		case one.State == review.Changes && one.Saved == nil:
			saved.Imports = append(saved.Imports, s.Name)
		}
		file.Stages = append(file.Stages, one)
	}
	err = file.Write()
	saved.SHA256, plan.Saved = file.Digest, saved
	return err
}
