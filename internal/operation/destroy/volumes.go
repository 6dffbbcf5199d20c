package destroy

import (
	"cmp"
	"context"
	"errors"
	"time"

	"github.com/ephemeral-castle/castle/internal/cluster"
	"github.com/ephemeral-castle/castle/internal/foreign"
	"github.com/ephemeral-castle/castle/internal/gate"
	"github.com/ephemeral-castle/castle/internal/kube"
	"github.com/ephemeral-castle/castle/internal/platform"
	"github.com/ephemeral-castle/castle/internal/run"
)

// answerTime bounds the wait for the cluster, which may be gone.
const answerTime = 10 * time.Second

// volumes lists the volumes that controllers have made for the stage's machines. The policy is Retain if the
// cluster says so, or if a volume has a mark to stay; Delete without any, if the user discards data.
func (s *Stage) volumes(ctx context.Context, c *cluster.Cluster, discards bool) (all []gate.Volume,
	err error) {
	preflights, err := s.preflights(c)
	for _, p := range preflights {
		if p.Volumes != nil && s.Record.EndsCluster && s.denied == nil && err == nil {
			all, err = p.Volumes(ctx, cluster.Known(s.state))
		}
	}
	if err != nil || len(all) == 0 {
		return nil, err
	}
	asking, stop := context.WithTimeout(ctx, answerTime)
	defer stop()
	target, unread := c.RecordedTarget()
	policies, unanswered := kube.ReclaimPolicies(asking, target)
	unread = cmp.Or(unread, unanswered, errors.New("the cluster has no PersistentVolume of it"))
	for i := range all {
		v, policy := &all[i], policies[all[i].PersistentVolume]
		switch {
		case v.Policy != gate.Retain && policy != "":
			v.Policy = policy
		case v.Policy == "" && discards:
			v.Policy = gate.Delete
		case v.Policy == "":
			v.What += ": its reclaim policy is not known: " + foreign.OneLine(unread.Error())
		}
	}
	return all, nil
}

// Volumes says of each volume of the stage's machines whether a destroy deletes it.
func (s *Stage) Volumes(ctx context.Context, c *cluster.Cluster, discards bool) (lines []string) {
	asking, stop := context.WithTimeout(ctx, 2*answerTime)
	defer stop()
	all, err := s.volumes(asking, c, discards)
	if errors.Is(err, platform.ErrRefused) { // somebody has rotated the token
		err = (&tokens{run: run.Observe(ctx, c), stages: []*Stage{s}, observes: true}).check(asking)
		if err = cmp.Or(err, s.denied); err == nil {
			all, err = s.volumes(asking, c, discards)
		}
	}
	if err != nil {
		const text = "the volumes that it deletes are not known: "
		lines = append(lines, c.Masker.Hide(text+foreign.OneLine(err.Error())))
	}
	does := map[string]string{gate.Delete: "deletes ", gate.Retain: "keeps ", "": "refuses to delete "}
	for _, v := range all {
		lines = append(lines, c.Masker.Hide(does[v.Policy]+v.What))
	}
	return lines
}

// settleVolumes records with each volume whether it stays, before anything is destroyed: when the cluster is
// gone, nobody else knows it. It refuses where nobody knows it now.
func (d *destruction) settleVolumes(ctx context.Context, s *Stage, discards bool) error {
	all, err := s.volumes(ctx, d.run.Cluster, discards)
	refused := &run.RefusedError{
		Refused: "castle cannot tell which volumes are to stay; nothing was destroyed",
		Fix:     "to delete all of them: " + d.run.Cluster.Options.CommandLine + " --discard-data"}
	for _, v := range all {
		if v.Policy == "" {
			refused.Reasons = append(refused.Reasons, v.What+"\n    - to keep it: "+v.Keep)
		}
	}
	if len(refused.Reasons) > 0 {
		return refused
	}
	// A run that is killed here has deleted nothing, and a nuke may follow: first those that are to stay.
	for _, policy := range []string{gate.Retain, gate.Delete} {
		for _, v := range all {
			if err == nil && v.Policy == policy {
				err = v.Settle(ctx, policy)
			}
		}
	}
	return err
}
