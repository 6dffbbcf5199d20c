package cluster

import (
	"errors"
	"fmt"
	"io/fs"
	"slices"
	"strings"

	"github.com/siderolabs/gen/xslices"

	"github.com/ephemeral-castle/castle/internal/config"
	"github.com/ephemeral-castle/castle/internal/gate"
	"github.com/ephemeral-castle/castle/internal/platform"
	"github.com/ephemeral-castle/castle/internal/state"
	"github.com/ephemeral-castle/castle/internal/tfeval"
)

// CheckState refuses a state that needs a repair first: only create and destroy repair it themselves.
func (c *Cluster) CheckState(stage string) error {
	if err := c.Dir.Stage(stage).CheckState(); err != nil {
		return c.MaskError(fmt.Errorf("stage %s: %w", stage, err))
	}
	return nil
}

// Unlisted is a recorded stage that the configuration no longer lists, or lists as disabled.
type Unlisted struct {
	Stage   string `json:"stage"`
	Layer   string `json:"layer"`
	Destroy string `json:"destroy"` // the command that destroys it
}

// String describes the stage and the command that destroys it.
func (u Unlisted) String() string {
	return fmt.Sprintf("%s/%s is recorded and no longer in the configuration; a create leaves it: %s",
		u.Layer, u.Stage, u.Destroy)
}

// UnlistedStages returns the recorded stages that no create touches.
func (c *Cluster) UnlistedStages() ([]Unlisted, error) {
	places, err := c.RecordedStages("")
	if err != nil {
		return nil, err
	}
	all := []Unlisted{}
	for _, p := range places {
		if slices.ContainsFunc(c.Config.Stages, func(s *config.Stage) bool { return s.Name == p.Name }) {
			continue
		}
		command := c.Command("destroy") + " --only " + p.Name
		if rec, err := c.Dir.Stage(p.Name).Record(); err == nil && rec.Persistent {
			command += " --all"
		}
		all = append(all, Unlisted{Stage: p.Name, Layer: p.Layer, Destroy: command})
	}
	return all, nil
}

// RecordedStages returns the stages of the state directory that name selects, or all if it is empty.
func (c *Cluster) RecordedStages(name string) ([]StageRef, error) {
	names, err := c.Dir.Stages()
	if err != nil {
		return nil, err
	}
	var all []StageRef
	for _, n := range names {
		layer, err := layerOf(c, n)
		if err != nil {
			return nil, err
		}
		all = append(all, StageRef{n, layer})
	}
	rank := func(p StageRef) int { return slices.Index(config.Layers(), p.Layer) }
	slices.SortStableFunc(all, func(a, b StageRef) int { return rank(a) - rank(b) })
	switch {
	case name == "":
		return all, nil
	case len(all) == 0:
		return nil, Usagef("%s has no state of any stage", c.Name())
	}
	found, err := Find("state", name, all)
	return xslices.Map(found, func(i int) StageRef { return all[i] }), err
}

// RecordedStage returns the one recorded stage that name selects.
func (c *Cluster) RecordedStage(name string) (StageRef, error) {
	found, err := c.RecordedStages(name)
	if err != nil {
		return StageRef{}, err
	}
	i, err := FindOne("state", name, found)
	return found[i], err
}

// CheckSources refuses a cluster whose machines were created by a stage that the configuration lacks.
func (c *Cluster) CheckSources() error {
	names, err := c.Dir.Stages()
	for _, name := range names {
		rec, unread := c.Dir.Stage(name).Record()
		same := func(s *config.Stage) bool { return s.Source == rec.Source }
		if unread == nil && rec.EndsCluster && !slices.ContainsFunc(c.Config.Stages, same) {
			return Usagef("the cluster was created with %s (stage %s), which is not configured any more; "+
				"castle cannot hand its machines to another stage: destroy the cluster, and create it "+
				"again: %s", rec.Source, name, c.Command("destroy"))
		}
	}
	return err
}

// layerOf returns a stage's recorded layer, or its configured one if a killed run left no record.
func layerOf(c *Cluster, stage string) (string, error) {
	if rec, err := c.Dir.Stage(stage).Record(); !errors.Is(err, fs.ErrNotExist) {
		return rec.Layer, err
	}
	for _, s := range c.Config.Stages {
		if s.Name == stage {
			return s.Layer, nil
		}
	}
	return "", nil
}

// MaskOutputs masks a state's sensitive outputs from now on.
func (c *Cluster) MaskOutputs(st *state.State) {
	if st == nil {
		return
	}
	for _, out := range st.Outputs {
		if out.Sensitive {
			c.Masker.Add(tfeval.Strings(out.Value)...)
		}
	}
}

// MachineIDs records the identity of each machine of a stage, before Terraform creates it. The state has only
// what the provider reads at the VM id, which may be another machine.
func MachineIDs(dir *state.Stage) state.Document[[]gate.MachineID] {
	return state.StageDocument[[]gate.MachineID](dir, "machines")
}

// Borrowed records the files that a stage uses and that this state directory has not made, by the ids that
// Terraform imports. castle never deletes them.
func Borrowed(dir *state.Stage) state.Document[[]string] {
	return state.StageDocument[[]string](dir, "borrowed")
}

// BorrowedFiles returns the addresses in a stage's state of borrowed files.
func BorrowedFiles(dir *state.Stage, st *state.State) (addresses []string, err error) {
	ids, err := Borrowed(dir).Value()
	for _, k := range Known(st) {
		if slices.Contains(ids, Platforms().FileID(k)) {
			addresses = append(addresses, k.Address)
		}
	}
	return addresses, err
}

// MachineKey returns the public key from which the platform's stages derive the uuids of their machines, as a
// state directory has it now; empty if it has none, or if it cannot be read: then nothing derives from it.
func MachineKey(dir *state.Dir) string {
	names, _ := dir.Stages() //nolint:errcheck // see above
	for _, name := range names {
		st, err := dir.Stage(name).LastKnown()
		if err != nil {
			continue
		}
		if key := tfeval.Strings(st.Outputs["serviceaccount_public_key_pem"].Value); len(key) == 1 {
			return key[0]
		}
	}
	return ""
}

// MachineIDOf returns the identity of the machine at an address, or the zero value.
func MachineIDOf(ids []gate.MachineID, address string) gate.MachineID {
	for _, id := range ids {
		if id.Address == address {
			return id
		}
	}
	return gate.MachineID{}
}

// Held records the addresses that a destroy removed from the state before it verified them.
func Held(dir *state.Stage) state.Document[[]string] {
	return state.StageDocument[[]string](dir, "held")
}

// UntrackHeld removes addresses from those that a later destroy verifies.
func UntrackHeld(dir *state.Stage, addresses []string) error {
	held, err := Held(dir).Value()
	if err != nil || len(held) == 0 {
		return err
	}
	removed := func(address string) bool { return slices.Contains(addresses, address) }
	return Held(dir).Write(slices.DeleteFunc(held, removed))
}

// Owned records the datacenter objects that a destroy of the stage has to verify.
func Owned(dir *state.Stage) state.Document[[]platform.Object] {
	return state.StageDocument[[]platform.Object](dir, "owned")
}

// UntrackOwned removes objects from those that a later destroy verifies.
func UntrackOwned(dir *state.Stage, objects []platform.Object) error {
	owned, err := Owned(dir).Value()
	if err != nil || len(owned) == 0 {
		return err
	}
	return Owned(dir).Write(platform.Without(owned, objects...))
}

// Known lists the managed resources of a state, with the recorded identities of their machines. A machine
// that only the record has is listed without attributes.
func Known(st *state.State, ids ...gate.MachineID) []gate.Known {
	var all []gate.Known
	for _, res := range st.Managed() {
		all = append(all, gate.Known{
			Address: res.Address, Type: res.Type, Attributes: res.Attributes,
			MachineID: MachineIDOf(ids, res.Address),
		})
	}
	for _, id := range ids {
		if !st.Has(id.Address) {
			all = append(all, gate.Known{Address: id.Address, MachineID: id})
		}
	}
	return all
}

// Schematic is the type of a resource of Talos' provider that is in no machine: only the state has it.
const Schematic = "talos_image_factory_schematic"

// InMachines reports whether a provider's resources exist only inside the machines and end with them.
func InMachines(provider string) bool { return provider == "registry.terraform.io/siderolabs/talos" }

// Outside lists a recorded stage's resources that still exist when the machines are gone.
func Outside(rec state.Record, st *state.State) []string {
	var left []string
	for _, res := range st.Managed() {
		_, isGuest := Platforms().MachineID(res.Type, res.Attributes)
		if !isGuest && !InMachines(res.Provider) && !slices.Contains(rec.InCluster, res.Provider) {
			left = append(left, res.Address)
		}
	}
	return left
}

// ManagedMode is the mode of a resource that Terraform manages; the other is "data".
const ManagedMode = "managed"

// Datacenter is one that a stage's recorded preflight read, and the VM ids that it checked, if any.
type Datacenter struct {
	Platform platform.Platform
	Account  platform.Account
	Ids      []int
}

// Datacenters returns the datacenters of a recorded stage's machines and files.
func Datacenters(rec state.Record) ([]Datacenter, error) {
	var all []Datacenter
	for _, check := range rec.Preflights {
		p := Platforms().Of(check.Type)
		if p == nil {
			continue
		}
		values, err := check.Decode()
		if err != nil {
			return nil, err
		}
		account, ids, err := p.Account(gate.Values(values))
		if err != nil {
			return nil, err
		}
		all = append(all, Datacenter{p, account, ids})
	}
	return all, nil
}

// MachineOf describes the machine of a resource, "VM 421 on node pve, disks: scsi0 (20 GiB on local-lvm)";
// empty for another resource.
func MachineOf(typ string, attributes map[string]any) string {
	if !Platforms().IsMachine(typ) {
		return ""
	}
	machine, disks := Platforms().OfResource(typ).Describe(attributes)
	if len(disks) > 0 {
		machine += ", disks: " + strings.Join(disks, ", ")
	}
	return machine
}

// Rotation is which login roles of the database's users are in use, and how far an unfinished rotation of
// their passwords has come.
type Rotation struct {
	// Active are the roles in use, by user; without one it is the user's own.
	Active map[string]string `json:"active,omitempty"`
	// Next is Active after the unfinished rotation; nil without one.
	Next     map[string]string `json:"next,omitempty"`
	Replaced bool              `json:"replaced,omitempty"` // the state has new passwords for Next
}

// RotationOf is the document of the stage that makes the passwords. It ends with them.
func RotationOf(dir *state.Stage) state.Document[Rotation] {
	return state.StageDocument[Rotation](dir, "rotation")
}
