// Package longhorn keeps Longhorn's volumes alive over the end of their cluster: those of a namespace's
// claims, in Longhorn's backup target. Longhorn saves and restores. castle stops what uses the volumes
// (claims.go), has Longhorn back them up and restore them (objects.go), and reads in the bucket itself
// whether every block is there (blocks.go). A restored volume is backed up once more before anything uses it:
// its blocks have to be those of the save.
package longhorn

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"regexp"
	"strings"
	"time"

	"github.com/zclconf/go-cty/cty"
	"k8s.io/apimachinery/pkg/api/resource"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/util/validation"

	"github.com/ephemeral-castle/castle/internal/gate"
	"github.com/ephemeral-castle/castle/internal/kube/client"
	"github.com/ephemeral-castle/castle/internal/store"
	"github.com/ephemeral-castle/castle/internal/survivor"
	"github.com/ephemeral-castle/castle/internal/survivor/bucket"
)

// Type is the type of a survives block: volumes of Longhorn with a backup target in S3.
func Type() survivor.Type {
	attributes := bucket.Attributes("the path of Longhorn's backup target in it, such as \"/longhorn\"")
	attributes["namespace"] = bucket.Required("the namespace whose claims' volumes survive")
	attributes["selector"] = gate.Attribute{Type: cty.String,
		Help:  "labels of the claims, such as \"app in (a, b)\"; without it, all of the namespace",
		Valid: func(v cty.Value) error { _, err := labels.Parse(v.AsString()); return err }}
	return survivor.Type{
		Name: "longhorn", Summary: "volumes of Longhorn, in its backup target in a bucket",
		Kubernetes: true, Attributes: attributes, Layer: "storage",
		New: func(name string, target gate.Target, v gate.Values) (survivor.Survivor, error) {
			return newVolumes(name, target, v)
		},
	}
}

// volumes are the volumes of one block.
type volumes struct {
	name                string // of the gate or block, for messages
	target              gate.Target
	namespace, selector string
	path                string // of the backup target, in the bucket
	url                 string // of the backup target, without a last slash
	documents           *bucket.Documents
}

// TargetOf is the URL of the backup target that a block names, without a last slash; empty if one is unknown.
func TargetOf(v gate.Values) string {
	if !v.Has("bucket") || !v.Has("region") || !v.Has("path") {
		return ""
	}
	return "s3://" + v.String("bucket") + "@" + v.String("region") + v.String("path")
}

func newVolumes(name string, target gate.Target, v gate.Values) (*volumes, error) {
	bound := &volumes{name: name, target: target, namespace: v.String("namespace"),
		selector: v.String("selector"), path: v.String("path"), url: TargetOf(v)}
	var err error
	label := name[strings.LastIndex(name, ".")+1:] // of the gate or block
	bound.documents, err = bucket.New(name, v, bound.path+"/castle/"+label, bound.valid)
	return bound, err
}

// names matches the names of what castle makes in Longhorn.
var names = regexp.MustCompile(`^castle-[a-z0-9-]+$`)

// nameOf is the name of the Snapshot and the Backup of a volume, within a save or a birth.
func nameOf(id, volume string) string {
	sum := sha256.Sum256([]byte(volume))
	return "castle-" + id + "-" + hex.EncodeToString(sum[:4])
}

// valid refuses a document that castle has not written so.
func (v *volumes) valid(s survivor.Save) error {
	if s.Path != v.path || len(s.Volumes) == 0 {
		return fmt.Errorf("it names no volumes in %s", v.path)
	}
	for _, of := range s.Volumes {
		_, err := resource.ParseQuantity(of.Requested)
		for _, name := range []string{of.Name, of.PVC} {
			if problems := validation.IsDNS1123Subdomain(name); err == nil && len(problems) > 0 {
				err = fmt.Errorf("%q: %s", name, problems[0])
			}
		}
		switch {
		case err != nil:
			return err
		case of.Namespace != v.namespace:
			return fmt.Errorf("it has claims of namespace %q, and the block names %s", of.Namespace,
				v.namespace)
		case !names.MatchString(of.Backup) || of.Bytes <= 0 || !checksums.MatchString(of.Digest):
			return fmt.Errorf("what it records of volume %s is not complete", of.Name)
		}
	}
	return nil
}

// Saves lists the documents of saves.
func (v *volumes) Saves(ctx context.Context) (all []survivor.Save, err error) {
	return all, v.documents.Within(func(in store.Store) (err error) {
		all, err = v.documents.Saves(ctx, in)
		survivor.Sort(all)
		return err
	})
}

// Path is the same for all births: Longhorn names each backup apart and stores a block by its checksum, so
// that a birth adds to what earlier ones have saved, and overwrites nothing.
func (v *volumes) Path(string) string { return v.path }

// Options are none: a backup is restored as a whole.
func (v *volumes) Options(survivor.Save, string, bool) string { return "" }

// Announce writes the document of a birth.
func (v *volumes) Announce(ctx context.Context, b survivor.Birth) error {
	return v.documents.Announce(ctx, b)
}

// Prove reads the backups of all volumes of a save.
func (v *volumes) Prove(ctx context.Context, s survivor.Save) (survivor.Proof, error) {
	return survivor.Proof{}, eachOf(s.Volumes, func(of *survivor.Volume) error {
		is, err := v.read(ctx, of.Name, of.Backup)
		if err == nil && is.digest != of.Digest {
			err = fmt.Errorf("backup %s of volume %s has other blocks than the save", of.Backup, of.Name)
		}
		return err
	})
}

// read reads a backup in the bucket, all of which has to be there.
func (v *volumes) read(ctx context.Context, name, backup string) (c content, err error) {
	err = v.documents.Within(func(in store.Store) (err error) {
		c, err = readBackup(ctx, in, folderOf(v.path, name), name, backup)
		return err
	})
	if err != nil {
		err = fmt.Errorf("backup %s of volume %s: %w", backup, name, err)
	}
	return c, err
}

// Live describes the claims. Restored ones count once all of them are there.
func (v *volumes) Live(ctx context.Context) (is *survivor.Living, err error) {
	var all []boundClaim
	err = client.Retry(ctx, v.target, func(ctx context.Context, a *client.API) (err error) {
		all, err = v.claims(ctx, a)
		return err
	})
	if err != nil || len(all) == 0 {
		return nil, err
	}
	is = &survivor.Living{}
	for _, c := range all {
		if birth := c.pv.Annotations[ofBirth]; birth != "" {
			is.Birth, is.Path = birth, v.path
		}
		if c.pv.Annotations[ofSave] != "" {
			is.From = v.path
		}
	}
	if is.From != "" && is.Birth == "" {
		return nil, nil
	}
	return is, nil
}

// InUse is false without a claim, and as long as not all claims of a restore are there.
func (v *volumes) InUse(ctx context.Context) (bool, error) {
	is, err := v.Live(ctx)
	return is != nil, err
}

// freezeTime bounds how long Pods may take to end, and Longhorn to detach their volumes.
const freezeTime = 5 * time.Minute

// Freeze stops all workloads that use the claims.
func (v *volumes) Freeze(ctx context.Context) (wrote bool, err error) {
	err = client.Retry(ctx, v.target, func(ctx context.Context, a *client.API) error {
		still, err := v.stop(ctx, a)
		wrote = wrote || still
		return err
	})
	if err != nil {
		return wrote, err
	}
	g := client.New(v.target, "").Gate(v.name, v.stopped)
	return wrote, gate.Wait(ctx, g, gate.Policy{Timeout: freezeTime}, gate.Listener{})
}

// Thaw starts them again.
func (v *volumes) Thaw(ctx context.Context) error {
	return client.Retry(ctx, v.target, v.start)
}

// Save backs all volumes up, and reads the backups in the bucket.
func (v *volumes) Save(ctx context.Context, b survivor.Birth, frozen bool) (*survivor.Save, error) {
	s, err := survivor.NewSave(b, frozen)
	if err != nil {
		return nil, err
	}
	if err := client.Retry(ctx, v.target, func(ctx context.Context, a *client.API) (err error) {
		s.Volumes, err = v.describe(ctx, a, b, s.ID)
		return err
	}); err != nil {
		return nil, err
	}
	upload := func(all []survivor.Volume) error {
		return v.wait(ctx, nil, func(ctx context.Context, a *client.API) error {
			t, err := v.reach(ctx, a)
			if err != nil {
				return err
			}
			return eachOf(all, func(of *survivor.Volume) error {
				return v.backUp(ctx, a, t.GetNamespace(), b.Name, of.Name, of.Backup)
			})
		})
	}
	if err := upload(s.Volumes); err != nil {
		return nil, err
	}
	for i := range s.Volumes {
		of := &s.Volumes[i]
		is, err := v.read(ctx, of.Name, of.Backup)
		if errors.Is(err, errBlock) {
			of.Backup += full
			if err = upload(s.Volumes[i : i+1]); err == nil {
				is, err = v.read(ctx, of.Name, of.Backup)
			}
		}
		if err != nil {
			return nil, err
		}
		of.Digest = is.digest
		s.Bytes += is.bytes
	}
	if err := v.documents.Write(ctx, s); err != nil {
		return nil, err
	}
	if !frozen { // else somebody may be about to restore one
		v.discard(ctx, b.Name, s) //nolint:errcheck // the next save deletes them
	}
	return s, nil
}

// eachOf calls do for all volumes, also after an error: they make progress together.
func eachOf(all []survivor.Volume, do func(*survivor.Volume) error) error {
	var errs []error
	for i := range all {
		errs = append(errs, do(&all[i]))
	}
	return errors.Join(errs...)
}
