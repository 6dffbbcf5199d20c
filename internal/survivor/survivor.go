// Package survivor defines the data of a cluster that outlives it. castle saves it before the cluster ends,
// and the next cluster of the same name is born with it. A survives block in cluster.hcl declares it. Its
// types live with the system that keeps the data. A type triggers, waits and proves; how data are saved and
// restored is the system's own matter.
package survivor

import (
	"cmp"
	"context"
	"crypto/rand"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"slices"
	"strings"
	"time"

	"github.com/zclconf/go-cty/cty"

	"github.com/ephemeral-castle/castle/internal/gate"
)

// Type is one kind of survives block.
type Type = gate.BlockType[Survivor]

// Survivor is data of one cluster, bound to known arguments. Its methods only read, unless they say
// otherwise. A method that names no cluster needs none.
type Survivor interface {
	// Saves lists the saves in the object store that are of this cluster, the newest first. A save counts
	// once its data are complete there.
	Saves(ctx context.Context) ([]Save, error)
	// Path is where the birth with an id saves.
	Path(birth string) string
	// Options are those of a restore from a set: exactly up to the save, or what was written after it, too.
	Options(s Save, set string, exactly bool) string
	// Prove reads in the object store whether all data of a save are there. The error names what lacks.
	Prove(ctx context.Context, s Save) (Proof, error)
	// Announce writes to the object store that a birth saves there from now on.
	Announce(ctx context.Context, b Birth) error
	// Restore makes what has to be there before the stage is applied, and reports what it waits for. It
	// changes the cluster, may be repeated, and does nothing once the data are in use.
	Restore(ctx context.Context, b Birth, report func(string)) error
	// Live describes the object in the cluster; nil if the API has proved that there is none, or only a part.
	Live(ctx context.Context) (*Living, error)
	// InUse reports whether applications can have changed the data. It is false only if the API has proved
	// that there is no object, or that its restore is not complete.
	InUse(ctx context.Context) (bool, error)
	// Freeze ends every write, and reports whether something may have been written until then. Thaw permits
	// writes again. Both change the cluster, and may be repeated.
	Freeze(ctx context.Context) (bool, error)
	Thaw(ctx context.Context) error
	// Save saves what was written until now, and returns when the object store has it all. frozen says that
	// nothing can be written meanwhile: then the save also records what Restored compares.
	Save(ctx context.Context, b Birth, frozen bool) (*Save, error)
	// Restored returns nil once the object in the cluster has the data of its birth, and saves its own.
	Restored(ctx context.Context, b Birth) error
}

// Living is an object as the cluster has it.
type Living struct {
	Birth         string // the id of the birth that saves it; empty: none does
	Path          string // where it saves
	From, Options string // of its restore; empty: it was none
}

// Proof is what Prove has found.
type Proof struct {
	Set string // what a restore begins with
	Gap string // the first part after the save that lacks although there are later ones; empty: none
}

// Save is data in an object store. Its document is written by castle last of all, beside the data.
type Save struct {
	ID      string    `json:"id"`
	Cluster string    `json:"cluster"` // tazlab/proxmox
	Name    string    `json:"name"`    // the label of the block
	Birth   string    `json:"birth"`   // the id of the birth that has saved it
	Path    string    `json:"path"`    // where the data are
	Time    time.Time `json:"time"`
	Frozen  bool      `json:"frozen"` // nothing was written after it
	By      string    `json:"by"`     // the machine that saved it
	Release string    `json:"release"`
	// Position is where in its log the save ends, in the terms of the type. Without one castle has found the
	// data of a cluster that ended before castle saved it: they end somewhere after Time.
	Position map[string]string `json:"position"`
	Bytes    int64             `json:"bytes"`
	Tables   []Table           `json:"tables"`
	Volumes  []Volume          `json:"volumes,omitempty"`
}

// Table is what castle compares of a table after a restore.
type Table struct {
	Name string `json:"name"`
	Rows int64  `json:"rows"`
	Sum  string `json:"sum"` // of the checksums of all rows
}

// Volume is a saved volume of Longhorn, with what its claim is made from and castle compares after a restore.
type Volume struct {
	Namespace    string            `json:"namespace"`
	PVC          string            `json:"pvc"`
	Labels       map[string]string `json:"labels,omitempty"` // of the claim
	Requested    string            `json:"requested"`        // such as 10Gi
	AccessModes  []string          `json:"access_modes"`
	StorageClass string            `json:"storage_class"`
	Mode         string            `json:"mode"`    // Filesystem or Block
	FSType       string            `json:"fs_type"` // ext4
	Reclaim      string            `json:"reclaim"` // Delete or Retain
	Name         string            `json:"name"`    // of Longhorn's volume
	Bytes        int64             `json:"bytes"`   // its size
	Replicas     int64             `json:"replicas"`
	Backup       string            `json:"backup"` // its id
	Digest       string            `json:"digest"` // of the offsets and checksums of its blocks
}

// Birth is how a cluster's data began. It is decided once in the life of a cluster.
type Birth struct {
	ID      string    `json:"id"`
	Cluster string    `json:"cluster"` // tazlab/proxmox
	Name    string    `json:"name"`    // the label of the block
	Time    time.Time `json:"time"`
	// Life identifies the cluster in which the object lives: another one has another birth. Empty: not known.
	Life string `json:"life,omitempty"`
	// Path is where this birth saves.
	Path string `json:"path"`
	From *Save  `json:"from"` // nil: the data are new
	// Options tell the restore how far to go.
	Options string `json:"options,omitempty"`
	// Restored is when castle has proved that the data of From were there; what is in use since may differ.
	Restored time.Time `json:"restored,omitzero"`
	// Frozen: castle has ended all writes, and nobody has permitted them since.
	Frozen bool `json:"frozen,omitempty"`
	// Saved is the proved save since which nothing was written; nil unless Frozen.
	Saved *Save `json:"saved,omitempty"`
}

// Births are the births of a cluster's data by the label of their blocks.
type Births map[string]Birth

// Born makes a birth of the data of a block. now tells births apart, and path is where each of them saves.
func Born(cluster, name string, path func(birth string) string, now time.Time) Birth {
	id := now.UTC().Format("20060102t150405z")
	return Birth{ID: id, Cluster: cluster, Name: name, Time: now.UTC(), Path: path(id)}
}

// NewSave makes a save of what a birth has at this moment.
func NewSave(b Birth, frozen bool) (*Save, error) {
	self, err := os.Hostname()
	now := time.Now().UTC()
	return &Save{ID: now.Format("20060102-150405-") + strings.ToLower(rand.Text()[:4]), Cluster: b.Cluster,
		Name: b.Name, Birth: b.ID, Path: b.Path, Time: now, Frozen: frozen, By: self, Tables: []Table{}}, err
}

// Value is what survives.<label> is in an expression: birth (new or restore), path, and of a restored one
// from, the path of the save, save, its id, and the options of the restore. Of a birth without an id, which
// castle has not decided, only the first is known.
func (b Birth) Value() cty.Value {
	birth, from := "new", Save{}
	if b.From != nil {
		birth, from = "restore", *b.From
	}
	text := func(text string) cty.Value {
		if b.ID == "" {
			return cty.UnknownVal(cty.String)
		}
		return cty.StringVal(text)
	}
	return cty.ObjectVal(map[string]cty.Value{"birth": cty.StringVal(birth), "path": text(b.Path),
		"from": text(from.Path), "save": text(from.ID), "options": text(b.Options)})
}

// Sort orders saves, the newest first.
func Sort(saves []Save) {
	slices.SortFunc(saves, func(a, b Save) int {
		return cmp.Or(b.Time.Compare(a.Time), cmp.Compare(b.ID, a.ID))
	})
}

// Proved reports whether castle has saved and proved it, and not only found it.
func (s Save) Proved() bool { return s.Position != nil || s.Volumes != nil }

// String describes a save to a person.
func (s Save) String() string {
	return fmt.Sprintf("save %s of %s", s.ID, s.Time.UTC().Format("2006-01-02 15:04:05 UTC"))
}

// BirthArgument is the argument of the gate of data that holds their birth; it stands in no file.
const BirthArgument = "birth"

// Encode returns a birth as an argument of a gate.
func (b Birth) Encode() cty.Value {
	text, err := json.Marshal(b)
	if err != nil {
		return cty.UnknownVal(cty.String)
	}
	return cty.StringVal(string(text))
}

// GateType returns the gate of a type of data, which opens once Restored returns nil.
func GateType(t Type) gate.Type {
	return gate.Type{
		Name: "data", Summary: "the cluster has the data with which it was to be born, and saves its own",
		Attributes: t.Attributes, Kubernetes: true,
		New: func(name string, target gate.Target, v gate.Values) (gate.Gate, error) {
			var b Birth
			if err := json.Unmarshal([]byte(v.String(BirthArgument)), &b); err != nil {
				return gate.Gate{}, errors.New("it is not decided how the data begin: castle create decides")
			}
			data, err := t.New(name, target, v)
			if err != nil {
				return gate.Gate{}, err
			}
			check := func(ctx context.Context) error { return data.Restored(ctx, b) }
			return gate.Gate{Name: name, Check: check}, nil
		},
	}
}
