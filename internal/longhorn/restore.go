package longhorn

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/ephemeral-castle/castle/internal/gate"
	"github.com/ephemeral-castle/castle/internal/kube/client"
	"github.com/ephemeral-castle/castle/internal/survivor"
)

// patience is how long castle waits while nothing changes. How long a backup takes depends on its size.
const patience = 10 * time.Minute

// wait waits until check returns nil, for as long as its error changes: that tells how far Longhorn is.
func (v *volumes) wait(ctx context.Context, report func(string),
	check func(context.Context, *client.API) error) error {
	g := client.New(v.target, "").Gate(v.name, check)
	once, was, since, reported := g.Check, "", time.Now(), time.Time{}
	g.Check = func(ctx context.Context) error {
		err := once(ctx)
		if err == nil || ctx.Err() != nil {
			return err
		}
		now := time.Now()
		if err.Error() != was {
			was, since = err.Error(), now
		}
		if now.Sub(since) > patience {
			return gate.Permanent(fmt.Errorf("nothing has changed for %s: %w", patience, err))
		}
		if report != nil && now.Sub(reported) > time.Minute {
			reported = now
			report(was)
		}
		return err
	}
	return gate.Wait(ctx, g, gate.Policy{Timeout: 30 * 24 * time.Hour}, gate.Listener{})
}

// describe records the volumes that a save will have, whose PersistentVolumes are of a birth from now on.
func (v *volumes) describe(ctx context.Context, a *client.API, b survivor.Birth, id string) (
	all []survivor.Volume, err error) {
	bound, err := v.claims(ctx, a)
	if err != nil {
		return nil, err
	}
	in, err := listVolumes(ctx, a)
	if err != nil {
		return nil, err
	}
	for _, c := range bound {
		is := in[c.volume]
		title := fmt.Sprintf("claim %s/%s (volume %s)", c.Namespace, c.Name, c.volume)
		size, err := strconv.ParseInt(client.Text(&is, "spec", "size"), 10, 64)
		switch {
		case c.DeletionTimestamp != nil:
			return nil, gate.Permanent(errors.New(title + " is being deleted"))
		case err != nil:
			return nil, fmt.Errorf("%s: Longhorn has no such volume", title)
		case client.True(&is, "spec", "encrypted") || client.Text(&is, "spec", "backingImage") != "" ||
			client.Text(&is, "spec", "dataEngine") == "v2":
			return nil, gate.Permanent(errors.New(title + " is encrypted, has a backing image or the data " +
				"engine v2: castle does not save such volumes; leave it out (selector)"))
		}
		if err := v.annotate(ctx, a, &c.object, b.ID); err != nil {
			return nil, err
		}
		s := survivor.Volume{Namespace: c.Namespace, PVC: c.Name, Labels: c.Labels, Name: c.volume,
			Requested: c.Spec.Resources.Requests.Storage().String(), FSType: c.pv.Spec.CSI.FSType,
			Reclaim: string(c.pv.Spec.PersistentVolumeReclaimPolicy), Mode: "Filesystem",
			Bytes: size, Replicas: client.Number(&is, 1, "spec", "numberOfReplicas"),
			Backup: nameOf(id, c.volume)}
		for _, mode := range c.Spec.AccessModes {
			s.AccessModes = append(s.AccessModes, string(mode))
		}
		if c.Spec.StorageClassName != nil {
			s.StorageClass = *c.Spec.StorageClassName
		}
		if c.Spec.VolumeMode != nil {
			s.Mode = string(*c.Spec.VolumeMode)
		}
		all = append(all, s)
	}
	if len(all) == 0 {
		err = v.none()
	}
	return all, err
}

// none is the error that there is no volume.
func (v *volumes) none() error {
	return errors.New(strings.TrimSuffix("namespace "+v.namespace+" has no claim that is bound to a volume "+
		"of Longhorn and has the labels "+v.selector, " and has the labels "))
}

// annotate records which birth saves the volume of a PersistentVolume.
func (v *volumes) annotate(ctx context.Context, a *client.API, o *client.Object, birth string) error {
	if o.GetAnnotations()[ofBirth] == birth {
		return nil
	}
	return a.Change(ctx, client.Core("persistentvolumes"), o, map[string]any{ofBirth: birth}, nil)
}

// Restore has Longhorn restore the volumes of a save whose claims are not there, proves that they have its
// blocks, and makes their claims. Nothing can use a volume before.
func (v *volumes) Restore(ctx context.Context, b survivor.Birth, report func(string)) error {
	var due []survivor.Volume
	if err := client.Retry(ctx, v.target, func(ctx context.Context, a *client.API) error {
		due = nil
		return eachOf(b.From.Volumes, func(of *survivor.Volume) error {
			there, err := v.claimed(ctx, a, *of)
			if err == nil && !there {
				due = append(due, *of)
			}
			return err
		})
	}); err != nil {
		return err
	}
	proof := func(of survivor.Volume) string { return nameOf("proof-"+b.ID, of.Name) }
	if err := v.wait(ctx, report, func(ctx context.Context, a *client.API) error {
		if len(due) == 0 {
			return nil
		}
		t, err := v.reach(ctx, a)
		if err != nil {
			return err
		}
		return eachOf(due, func(of *survivor.Volume) error {
			err := v.restored(ctx, a, t, b.From.ID, proof(*of), *of)
			if err == nil {
				err = v.backUp(ctx, a, t.GetNamespace(), b.Name, of.Name, proof(*of))
			}
			return err
		})
	}); err != nil {
		return err
	}
	for _, of := range due {
		is, err := v.read(ctx, of.Name, proof(of))
		if err != nil {
			return err
		}
		if is.digest != of.Digest {
			return fmt.Errorf("volume %s (claim %s/%s) does not have the blocks of %s: delete it in "+
				"Longhorn, and run the same command again", of.Name, of.Namespace, of.PVC, b.From)
		}
	}
	return client.Retry(ctx, v.target, func(ctx context.Context, a *client.API) error {
		return v.place(ctx, a, b, due)
	})
}

// claimed reports whether the claim of a volume exists. One with another volume is refused.
func (v *volumes) claimed(ctx context.Context, a *client.API, of survivor.Volume) (bool, error) {
	o, err := a.Get(ctx, client.Selection{Resource: client.Core("persistentvolumeclaims"),
		Namespace: of.Namespace, Name: of.PVC}, "PersistentVolumeClaim")
	if gate.KindOf(err) == gate.NotFound {
		return false, nil
	}
	if err == nil && client.Text(o, "spec", "volumeName") != of.Name {
		err = gate.Permanent(fmt.Errorf("%s exists already, and its volume is not the restored %s: what "+
			"was saved would be hidden; delete it, and whatever has made it before its data were restored",
			client.Title(o), of.Name))
	}
	return true, err
}

// place makes the namespace, and the PersistentVolumes and claims that are due. The annotation of the birth
// comes last: it tells that all are there.
func (v *volumes) place(ctx context.Context, a *client.API, b survivor.Birth, due []survivor.Volume) error {
	if _, err := ensure(ctx, a, client.Core("namespaces"), map[string]any{"apiVersion": "v1",
		"kind": "Namespace", "metadata": map[string]any{"name": v.namespace}}); err != nil {
		return err
	}
	for _, of := range due {
		o, err := ensure(ctx, a, client.Core("persistentvolumes"), persistentVolume(of, b.From.ID))
		if err != nil {
			return err
		}
		if o.GetAnnotations()[ofSave] != b.From.ID {
			return gate.Permanent(fmt.Errorf("%s exists already, and was not made for save %s: delete it",
				client.Title(o), b.From.ID))
		}
		if _, err := v.claimed(ctx, a, of); err != nil {
			return err
		}
		if _, err := ensure(ctx, a, client.Core("persistentvolumeclaims"), persistentClaim(of)); err != nil {
			return err
		}
	}
	for _, of := range b.From.Volumes {
		o, err := a.Get(ctx, client.Selection{Resource: client.Core("persistentvolumes"), Name: of.Name},
			"PersistentVolume")
		if err == nil {
			err = v.annotate(ctx, a, o, b.ID)
		}
		if err != nil {
			return err
		}
	}
	return nil
}

func persistentVolume(of survivor.Volume, save string) map[string]any {
	return map[string]any{"apiVersion": "v1", "kind": "PersistentVolume",
		"metadata": map[string]any{"name": of.Name, "annotations": map[string]any{ofSave: save,
			"pv.kubernetes.io/provisioned-by": driver}},
		"spec": map[string]any{
			"capacity":    map[string]any{"storage": of.Requested},
			"accessModes": of.AccessModes, "volumeMode": of.Mode,
			"storageClassName": of.StorageClass, "persistentVolumeReclaimPolicy": of.Reclaim,
			"claimRef": map[string]any{"apiVersion": "v1", "kind": "PersistentVolumeClaim",
				"namespace": of.Namespace, "name": of.PVC},
			"csi": map[string]any{"driver": driver, "volumeHandle": of.Name, "fsType": of.FSType},
		}}
}

func persistentClaim(of survivor.Volume) map[string]any {
	return map[string]any{"apiVersion": "v1", "kind": "PersistentVolumeClaim",
		"metadata": map[string]any{"namespace": of.Namespace, "name": of.PVC, "labels": of.Labels},
		"spec": map[string]any{
			"accessModes": of.AccessModes, "volumeMode": of.Mode, "volumeName": of.Name,
			"storageClassName": of.StorageClass,
			"resources":        map[string]any{"requests": map[string]any{"storage": of.Requested}},
		}}
}

// Restored compares the claims with their birth. Whether a volume has the blocks of the save was compared
// before its PersistentVolume was made.
func (v *volumes) Restored(ctx context.Context, b survivor.Birth) error {
	return client.Do(ctx, v.target, func(ctx context.Context, a *client.API) error {
		all, err := v.claims(ctx, a)
		if err != nil {
			return err
		}
		if len(all) == 0 {
			return &gate.Finding{Kind: gate.Waits, Err: v.none()}
		}
		if b.From != nil && b.Restored.IsZero() {
			if err := matches(all, *b.From); err != nil {
				return err
			}
		}
		in, err := listVolumes(ctx, a)
		if err != nil {
			return err
		}
		for _, c := range all {
			if is := in[c.volume]; client.Text(&is, "status", "robustness") == faulted {
				return &gate.Finding{Object: fmt.Sprintf("claim %s/%s", c.Namespace, c.Name), Text: "its " +
					"volume " + c.volume + " is faulted: it has no usable replica"}
			}
		}
		return nil
	})
}

// matches returns nil if the claims of a save are bound to its restored volumes.
func matches(all []boundClaim, s survivor.Save) error {
	for _, of := range s.Volumes {
		title := fmt.Sprintf("claim %s/%s", of.Namespace, of.PVC)
		at := slices.IndexFunc(all, func(c boundClaim) bool { return c.Name == of.PVC })
		if at < 0 {
			return waits(title, "is not bound yet")
		}
		if c := all[at]; c.volume != of.Name || c.pv.Annotations[ofSave] != s.ID {
			return gate.Permanent(fmt.Errorf("%s uses volume %s, and not %s, which castle has restored from "+
				"%s", title, c.volume, of.Name, s))
		}
	}
	return nil
}

// discard deletes the documents of saves beyond the newest, and the backups that none names any more.
func (v *volumes) discard(ctx context.Context, label string, s *survivor.Save) error {
	if err := v.documents.Prune(ctx); err != nil {
		return err
	}
	saves, err := v.Saves(ctx)
	if err != nil {
		return err
	}
	last, kept := map[string]bool{}, map[string]bool{}
	for _, of := range s.Volumes {
		last[of.Backup] = true
	}
	for _, one := range append(saves, *s) {
		for _, of := range one.Volumes {
			kept[of.Backup] = true
		}
	}
	return client.Retry(ctx, v.target, func(ctx context.Context, a *client.API) error {
		return v.prune(ctx, a, label, last, kept)
	})
}
