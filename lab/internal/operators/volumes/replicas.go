package volumes

import (
	"context"
	"errors"
	"os"
	"slices"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/rand"
)

// volume takes the steps of a volume: it follows its user, its replicas fail and are rebuilt.
func (s *state) volume(ctx context.Context, v *volume) error {
	if v.DeletionTimestamp != nil {
		return s.delete(ctx, v)
	}
	was, before, e := *v, map[*replica]replica{}, s.engineOf(v)
	var wasEngine *engine
	if e != nil {
		copied := *e
		wasEngine = &copied
	}
	for _, r := range s.of(v.Name) {
		before[r] = *r
	}
	s.follows(v, s.persistent)
	errs := []error{s.initRestore(v), s.attach(ctx, v)}
	runs := s.host(v.Status.CurrentNodeID).runs() // the engine
	if v.Status.CurrentNodeID == "" {
		for _, r := range s.of(v.Name) {
			r.Spec.DesireState, r.Status.CurrentState = "stopped", "stopped"
		}
	} else if runs {
		errs = append(errs, s.run(v))
	}
	errs = append(errs, s.evict(ctx, v), s.replenish(ctx, v), s.restore(ctx, v, e))
	intact, failed := 0, 0
	for _, r := range s.of(v.Name) {
		if r.intact() {
			intact++
		} else if r.Spec.FailedAt != "" {
			failed++
		}
	}
	switch {
	case intact == 0 && failed > 0:
		v.Status.Robustness = "faulted"
	case v.Status.CurrentNodeID == "" || !runs:
		v.Status.Robustness = "unknown"
	case intact < int(v.Spec.NumberOfReplicas):
		v.Status.Robustness = "degraded"
	default:
		v.Status.Robustness = "healthy"
	}
	s.detached(v)
	if of := s.backupVolumeOf(v.Name); !v.Status.RestoreRequired && of != nil {
		v.Status.LastBackup, v.Status.LastBackupAt = of.Status.LastBackupName, of.Status.LastBackupAt
	} else if of == nil {
		v.Status.LastBackup, v.Status.LastBackupAt = "", ""
	}
	errs = append(errs, s.engine(ctx, v, wasEngine, e))
	for _, r := range s.of(v.Name) {
		if old, known := before[r]; known {
			errs = append(errs, save(ctx, s.w, "replicas", &old, r))
		}
	}
	return errors.Join(append(errs, save(ctx, s.w, "volumes", &was, v))...)
}

// delete lets a volume go, with its engine and replicas. Its snapshots follow.
func (s *state) delete(ctx context.Context, v *volume) error {
	errs := []error{remove(ctx, s.w, "engines", s.namespace, engineOf(v.Name)),
		remove(ctx, s.w, "volumeattachments", s.namespace, v.Name)}
	for _, r := range s.of(v.Name) {
		errs = append(errs, s.drop(ctx, r))
	}
	return errors.Join(append(errs, s.release(ctx, "volumes", v))...)
}

// run lets the replicas of an attached volume fail, start and be rebuilt.
func (s *state) run(v *volume) error {
	now := s.w.Now().UTC().Format(time.RFC3339)
	start := func(r *replica) {
		r.Spec.DesireState, r.Status.CurrentState = "running", "running"
		r.Status.InstanceManagerName = managerOf(r.Spec.NodeID)
		r.Annotations = map[string]string{process: string(s.host(r.Spec.NodeID).manager.UID)}
	}
	own, isNew := s.of(v.Name), true
	for _, r := range own {
		isNew = isNew && r.Spec.HealthyAt == "" && r.Spec.FailedAt == ""
	}
	var intact []*replica
	for _, r := range own {
		h := s.host(r.Spec.NodeID)
		switch {
		case isNew && h.runs(): // the volume is empty: there is nothing to copy
			if err := os.MkdirAll(s.contents.head(r), 0o700); err != nil {
				return err
			}
			r.Spec.HealthyAt = now
			start(r)
		case r.intact() && h.runs() && !exists(s.contents.head(r)): // its disk was lost
			r.Spec.FailedAt, r.Spec.DesireState, r.Status.CurrentState = now, "stopped", "stopped"
		case r.intact() && h.runs() && r.Status.CurrentState == "stopped":
			start(r)
		case r.intact() && (!h.runs() || r.Annotations[process] != string(h.manager.UID)):
			r.Spec.FailedAt, r.Spec.DesireState, r.Status.CurrentState = now, "stopped", "stopped"
		}
		if r.intact() {
			intact = append(intact, r)
		}
	}
	if v.Status.RestoreRequired && len(intact) == 0 {
		return nil // what a restore has left is never salvaged
	}
	for _, r := range own {
		if r.intact() || !s.host(r.Spec.NodeID).runs() {
			s.w.Restart("rebuild " + r.Name)
			continue
		}
		// Without an intact replica the newest failed one is salvaged.
		lasts := rebuilds
		if len(intact) == 0 {
			lasts = salvages
		}
		if s.lastFailed(v) == r.Name && len(intact) == 0 || len(intact) > 0 {
			if s.w.Passed("rebuild "+r.Name, lasts) && !(r.Spec.FailedAt != "" && s.degraded.Holds()) {
				if len(intact) > 0 {
					if err := s.contents.copyTo(r, intact[0]); err != nil {
						return err
					}
				}
				r.Spec.HealthyAt, r.Spec.FailedAt = now, ""
				start(r)
			}
			return nil // one after the other
		}
	}
	return nil
}

// process is the annotation of a replica that runs: the UID of the Pod that it runs in.
const process = "lab.castle/process"

// lastFailed is the replica of a volume that failed last, of those that can run and have their data.
func (s *state) lastFailed(v *volume) string {
	var last *replica
	for _, r := range s.of(v.Name) {
		if s.host(r.Spec.NodeID).runs() && exists(s.contents.head(r)) &&
			(last == nil || r.Spec.FailedAt > last.Spec.FailedAt) {
			last = r
		}
	}
	if last == nil {
		return ""
	}
	return last.Name
}

// moves reports whether a replica has to leave its node: somebody has requested it, or the node is cordoned
// and the drain policy moves replicas.
func (s *state) moves(h *host, r *replica) bool {
	if h == nil || h.evicts() {
		return h != nil
	}
	return h.cordoned() && (s.policy == movesAll || s.policy == movesLast && r.intact() && !s.safe(r))
}

// evict moves the replicas of a volume that have to leave their nodes, where another node takes them.
func (s *state) evict(ctx context.Context, v *volume) error {
	for _, r := range s.of(v.Name) {
		r.Spec.EvictionRequested = s.moves(s.host(r.Spec.NodeID), r)
		to := s.free(v.Name)
		if !r.Spec.EvictionRequested || to == "" {
			s.w.Restart("evict " + r.Name)
			continue
		}
		if !s.w.Passed("evict "+r.Name, rebuilds) {
			continue
		}
		if err := s.place(ctx, v, to, r.intact()); err != nil {
			return err
		}
		return s.drop(ctx, r)
	}
	return nil
}

// replenish replaces a replica whose node is gone, or down for long, and makes those that a volume lacks.
func (s *state) replenish(ctx context.Context, v *volume) error {
	own := s.of(v.Name)
	for _, r := range own {
		h := s.host(r.Spec.NodeID)
		isGone := h == nil || h.kube == nil
		if r.intact() || r.Spec.FailedAt == "" || h.runs() {
			s.w.Restart("replenish " + r.Name)
			continue
		}
		if to := s.free(v.Name); to != "" && (isGone || s.w.Passed("replenish "+r.Name, replenishes)) {
			if err := s.place(ctx, v, to, false); err != nil {
				return err
			}
			return s.drop(ctx, r)
		}
	}
	if to := s.free(v.Name); to != "" && len(own) < int(v.Spec.NumberOfReplicas) {
		return s.place(ctx, v, to, false)
	}
	return nil
}

// place makes a replica of a volume on a node. An intact one is a copy that was made on the way.
func (s *state) place(ctx context.Context, v *volume, node string, isIntact bool) error {
	r := &replica{
		TypeMeta: typeOf("Replica"),
		ObjectMeta: metav1.ObjectMeta{Name: v.Name + "-r-" + rand.String(8), Namespace: s.namespace,
			Labels:          map[string]string{"longhornvolume": v.Name, "longhorn.io/node": node},
			OwnerReferences: ownedBy(v)},
		Spec:   replicaSpec{VolumeName: v.Name, NodeID: node, DesireState: "stopped"},
		Status: replicaStatus{CurrentState: "stopped"},
	}
	if isIntact {
		r.Spec.HealthyAt = s.now()
		if err := s.fill(r); err != nil {
			return err
		}
	}
	s.replicas = append(s.replicas, r)
	return create(ctx, s.w, "replicas", r)
}

// fill gives a replica the data of an intact one; the first one of a volume has none.
func (s *state) fill(r *replica) error {
	for _, from := range s.of(r.Spec.VolumeName) {
		if from.intact() && exists(s.contents.head(from)) {
			return s.contents.copyTo(r, from)
		}
	}
	return os.MkdirAll(s.contents.head(r), 0o700)
}

func (s *state) drop(ctx context.Context, r *replica) error {
	s.replicas = slices.DeleteFunc(s.replicas, func(one *replica) bool { return one == r })
	return remove(ctx, s.w, "replicas", s.namespace, r.Name)
}

func ownedBy(v *volume) []metav1.OwnerReference {
	return []metav1.OwnerReference{{APIVersion: apiVersion, Kind: "Volume", Name: v.Name, UID: v.UID}}
}
