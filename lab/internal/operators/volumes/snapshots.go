package volumes

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"os"
	"slices"
	"strconv"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/ephemeral-castle/castle/lab/internal/operators/cluster"
)

// finalizer holds an object until its controller has done what its deletion needs.
const finalizer = "longhorn.io"

// release lets an object go that is being deleted.
func (s *state) release(ctx context.Context, plural string, o metav1.Object) error {
	var left []any
	for _, one := range o.GetFinalizers() {
		if one != finalizer {
			left = append(left, one)
		}
	}
	_, err := patch(ctx, s.w.Untyped.Resource(Resource(plural)).Namespace(s.namespace), o.GetName(), "",
		map[string]any{"metadata": map[string]any{"finalizers": left}})
	return cluster.Unless(err, apierrors.IsNotFound)
}

// The types of attachment tickets, beside "csi-attacher" and "longhorn-api". Their controllers attach a
// volume that nobody uses, and let it go.
const (
	bySnapshot = "snapshot-controller"
	byBackup   = "backup-controller"
	byRestore  = "volume-restore-controller"
)

// attaches asks for the attachment of a volume while a controller needs its engine.
func (s *state) attaches(volume, kind, name string) {
	id := kind + "-" + name
	s.wanted[volume] = append(s.wanted[volume], ticket{ID: id, Type: kind})
}

// running are the intact replicas of a volume that its engine reads and writes; none while it does not run.
func (s *state) running(v *volume) (all []*replica) {
	if v.Status.State != "attached" || !s.host(v.Status.CurrentNodeID).runs() {
		return nil
	}
	for _, r := range s.of(v.Name) {
		if r.intact() && r.Status.CurrentState == "running" && exists(s.contents.head(r)) {
			all = append(all, r)
		}
	}
	return all
}

// snapshot takes the steps of a snapshot (snapshot_controller.go): it is taken by the engine, and is ready
// once the engine reports it.
func (s *state) snapshot(ctx context.Context, sn *snapshot) error {
	v := s.volumeOf(sn.Spec.Volume)
	if sn.DeletionTimestamp != nil {
		return s.deleteSnapshot(ctx, sn, v)
	}
	if v == nil {
		return nil
	}
	was, running := *sn, s.running(v)
	known := len(running) > 0 && exists(s.contents.snapshot(running[0], sn.Name))
	switch {
	case sn.Spec.CreateSnapshot && sn.Status.CreationTime == "" && !known:
		s.attaches(v.Name, bySnapshot, sn.Name)
		if len(running) == 0 || v.Status.RestoreRequired {
			sn.Status.Error = fmt.Sprintf(
				"failed to take snapshot because the volume engine %v is not running. "+
					"Waiting for the volume to be attached",
				engineOf(v.Name),
			)
			break
		}
		for _, r := range running {
			if err := s.contents.take(r, sn.Name); err != nil {
				return err
			}
		}
		sn.Status.RequestedTime = s.now()
	case known:
		if err := s.describe(sn, v, running[0]); err != nil {
			return err
		}
	case len(running) > 0:
		sn.Status.Error = "lost track of the corresponding snapshot info inside volume engine"
		sn.Status.ReadyToUse = false
	}
	return save(ctx, s.w, "snapshots", &was, sn)
}

// describe sets the status of a snapshot to what the engine knows of it.
func (s *state) describe(sn *snapshot, v *volume, r *replica) error {
	is := &sn.Status
	is.CreationTime = cmp.Or(is.CreationTime, is.RequestedTime, s.now())
	is.UserCreated, is.Labels = true, sn.Spec.Labels
	is.Parent, is.Children = "", map[string]bool{}
	chain := s.chain(v.Name)
	if at := slices.Index(chain, sn); at < 0 || at == len(chain)-1 {
		is.Children["volume-head"] = true
	} else {
		is.Children[chain[at+1].Name] = true
	}
	if at := slices.Index(chain, sn); at > 0 {
		is.Parent = chain[at-1].Name
	}
	since := is.Parent
	if since != "" && !exists(s.contents.snapshot(r, since)) {
		since = ""
	}
	changed, err := source{s.contents, r, sn.Name}.Changed(since)
	if err != nil {
		return err
	}
	is.Size = int64(len(changed)) * blockSize
	is.RestoreSize, _ = strconv.ParseInt(v.Spec.Size, 10, 64)
	if is.ReadyToUse = sn.DeletionTimestamp == nil && !is.MarkRemoved; is.ReadyToUse {
		is.Error = ""
	}
	return nil
}

// chain are the snapshots of a volume in the order in which they were taken.
func (s *state) chain(volume string) (all []*snapshot) {
	for _, sn := range s.snapshots {
		if sn.Spec.Volume == volume && sn.Status.RequestedTime != "" {
			all = append(all, sn)
		}
	}
	slices.SortStableFunc(all, func(a, b *snapshot) int {
		return cmp.Or(cmp.Compare(a.Status.RequestedTime, b.Status.RequestedTime),
			a.CreationTimestamp.Compare(b.CreationTimestamp.Time))
	})
	return all
}

// deleteSnapshot removes a snapshot from the replicas. The newest one cannot be merged into the volume's
// head:
// it stays, marked as removed, until there is a newer one.
func (s *state) deleteSnapshot(ctx context.Context, sn *snapshot, v *volume) error {
	if v == nil || v.DeletionTimestamp != nil || sn.Spec.CreateSnapshot && sn.Status.RequestedTime == "" {
		return s.release(ctx, "snapshots", sn)
	}
	was := *sn
	if sn.Status.MarkRemoved && sn.Status.Children["volume-head"] {
		if chain := s.chain(v.Name); len(chain) > 0 && chain[len(chain)-1] == sn {
			return nil
		}
	}
	s.attaches(v.Name, bySnapshot, sn.Name)
	running := s.running(v)
	if len(running) == 0 {
		return nil
	}
	if !sn.Status.MarkRemoved {
		sn.Status.MarkRemoved, sn.Status.ReadyToUse = true, false
		if exists(s.contents.snapshot(running[0], sn.Name)) {
			if err := s.describe(sn, v, running[0]); err != nil {
				return err
			}
			return save(ctx, s.w, "snapshots", &was, sn)
		}
	}
	var errs []error
	for _, r := range running {
		errs = append(errs, os.RemoveAll(s.contents.snapshot(r, sn.Name)))
	}
	return errors.Join(append(errs, s.release(ctx, "snapshots", sn))...)
}

// now is the time as Longhorn writes it.
func (s *state) now() string { return s.w.Now().UTC().Format(time.RFC3339) }

func (s *state) volumeOf(name string) *volume {
	for _, v := range s.volumes {
		if v.Name == name {
			return v
		}
	}
	return nil
}
