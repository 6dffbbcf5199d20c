package state

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"path/filepath"
	"slices"

	"github.com/ephemeral-castle/castle/internal/atomicfile"
	"github.com/ephemeral-castle/castle/internal/event"
	"github.com/ephemeral-castle/castle/internal/ownfile"
	"github.com/ephemeral-castle/castle/internal/secret"
)

// Archived is a stage that a destroy or a nuke has removed, in archive/<run>-<stage>.
type Archived struct {
	Run, Stage, Path string
}

func archive(d *Dir) string { return filepath.Join(d.path, "archive") }

func archived(d *Dir, run, stage string) Archived {
	return Archived{run, stage, filepath.Join(archive(d), run+"-"+stage)}
}

// Archives returns all archived stages.
func Archives(d *Dir) (all []Archived, err error) {
	names, err := folder(archive(d))
	for _, name := range names {
		if run := runID.FindString(name); run != "" && len(name) > len(run)+1 {
			all = append(all, archived(d, run, name[len(run)+1:]))
		}
	}
	return all, err
}

// ArchiveWhole moves everything of the stage to the archive, its secrets too: objects of it may still exist,
// and nothing else records them. The stage is then unknown.
func ArchiveWhole(s *Stage, run string) error {
	if err := atomicfile.MkdirPrivate(archive(s.dir)); err != nil {
		return err
	}
	if err := s.dir.Rename(s.Dir(), archived(s.dir, run, s.name).Path); err != nil {
		return err
	}
	return errors.Join(atomicfile.SyncDir(archive(s.dir)), atomicfile.SyncDir(s.dir.stages()))
}

// Archive removes a stage that is proved gone. The archive keeps none of its secrets: the record stays
// without preflights, and the state without values.
func Archive(s *Stage, run string) error {
	a := archived(s.dir, run, s.name)
	err := atomicfile.MkdirPrivate(a.Path)
	for name, data := range remains(s.Dir()) {
		if err == nil {
			err = atomicfile.Write(filepath.Join(a.Path, name), data)
		}
	}
	if err = errors.Join(err, atomicfile.SyncDir(archive(s.dir))); err != nil {
		return err
	}
	return s.Remove()
}

// Whole reports whether the archived stage has more than Archive leaves.
func (a Archived) Whole() (bool, error) {
	names, err := folder(a.Path)
	files := remains(a.Path)
	for _, name := range names {
		data, unread := ownfile.ReadFile(filepath.Join(a.Path, name))
		if unread != nil || files[name] == nil || !bytes.Equal(data, files[name]) {
			return true, err
		}
	}
	return false, err
}

// remains returns the files that an archive keeps of a stage's folder. None is unreadable.
func remains(dir string) map[string][]byte {
	files := map[string][]byte{}
	if rec, err := (Document[Record]{path: filepath.Join(dir, "record.json")}).load(); err == nil {
		rec.Preflights, rec.Adopts = nil, nil // their values include tokens
		if data, err := json.MarshalIndent(rec, "", "  "); err == nil {
			files["record.json"], files["record.json.copy"] = Seal(data), Seal(data)
		}
	}
	if data, err := ownfile.ReadFile(filepath.Join(dir, stateName)); err == nil {
		if data, err = withoutValues(data); err == nil {
			files[stateName] = data
		}
	}
	return files
}

// identifying are the attributes that name an object in its system.
var identifying = []string{"id", "name", "namespace", "node_name", "vm_id"}

// archivedState is a state with what an archive keeps of it. It lacks providers' private data.
type archivedState struct {
	Version   int    `json:"version"`
	Terraform string `json:"terraform_version,omitempty"`
	Serial    uint64 `json:"serial"`
	Lineage   string `json:"lineage"`
	Outputs   map[string]struct {
		Value     any  `json:"value"`
		Sensitive bool `json:"sensitive"`
	} `json:"outputs"`
	Resources []struct {
		Module    string             `json:"module,omitempty"`
		Mode      string             `json:"mode"`
		Type      string             `json:"type"`
		Name      string             `json:"name"`
		Provider  string             `json:"provider"`
		Instances []archivedInstance `json:"instances"`
	} `json:"resources"`
}

type archivedInstance struct {
	IndexKey      any             `json:"index_key,omitempty"`
	Status        string          `json:"status,omitempty"`
	Deposed       string          `json:"deposed,omitempty"`
	SchemaVersion int             `json:"schema_version"`
	Attributes    map[string]any  `json:"attributes"`
	Sensitive     json.RawMessage `json:"sensitive_attributes,omitempty"`
}

// withoutValues returns a state with nothing but the addresses of its resources, and the attributes that name
// their objects. Terraform marks in a state what the configuration calls sensitive, but not all that the
// schema of a provider does: no other value counts as harmless.
func withoutValues(data []byte) ([]byte, error) {
	var s archivedState
	if err := json.Unmarshal(data, &s); err != nil {
		return nil, err
	}
	secrets := &secret.Masker{}
	for _, output := range s.Outputs {
		if output.Sensitive {
			secrets.Add(texts(output.Value)...)
		}
	}
	clear(s.Outputs)
	var all []*archivedInstance
	for _, r := range s.Resources {
		for i := range r.Instances {
			if all = append(all, &r.Instances[i]); r.Mode != "managed" {
				r.Instances[i].Attributes = nil
			}
		}
	}
	for _, i := range all {
		i.dropMarked(secrets)
	}
	for _, i := range all {
		i.dropValues(secrets)
	}
	return json.MarshalIndent(s, "", "  ")
}

// dropMarked drops the attributes that the state marks as sensitive, and adds their values to secrets.
func (i *archivedInstance) dropMarked(secrets *secret.Masker) {
	var marked [][]struct{ Value any }
	if len(i.Sensitive) > 0 && json.Unmarshal(i.Sensitive, &marked) != nil {
		i.Attributes = nil
	}
	for _, path := range marked {
		for _, step := range path[:min(1, len(path))] {
			name := fmt.Sprint(step.Value)
			secrets.Add(texts(i.Attributes[name])...)
			delete(i.Attributes, name)
		}
	}
	i.Sensitive = nil
}

// dropValues keeps only the attributes that name the object. It drops an id that repeats another attribute,
// such as the result of random_string.
func (i *archivedInstance) dropValues(secrets *secret.Masker) {
	kept := map[string]any{}
	for _, name := range identifying {
		value := i.Attributes[name]
		switch value.(type) {
		case string, float64:
			text := fmt.Sprint(value)
			if secrets.Hide(text) == text && !(name == "id" && i.repeats(value)) {
				kept[name] = value
			}
		}
	}
	i.Attributes = kept
}

func (i *archivedInstance) repeats(id any) bool {
	for name, value := range i.Attributes {
		if value == id && !slices.Contains(identifying, name) {
			return i.Attributes["name"] != id
		}
	}
	return false
}

// texts returns the strings in a value.
func texts(value any) (all []string) {
	switch v := value.(type) {
	case string:
		all = append(all, v)
	case []any:
		for _, one := range v {
			all = append(all, texts(one)...)
		}
	case map[string]any:
		for _, one := range v {
			all = append(all, texts(one)...)
		}
	}
	return all
}

// OnDisk lists what stays of the cluster on this disk, if castle keeps so many runs; all if zero.
func OnDisk(d *Dir, runs int) (all []event.KeptPath, err error) {
	forGood, untilPruned := "you delete it", fmt.Sprintf("there are %d newer runs", runs)
	if runs == 0 {
		untilPruned = forGood
	}
	add := func(path, holds, until string, secrets bool) {
		all = append(all, event.KeptPath{Path: path, Holds: holds, Until: until, Secrets: secrets})
	}
	names, err := folder(d.path)
	for _, name := range names {
		path := filepath.Join(d.path, name)
		switch name {
		case "archive":
			add(path, "addresses and ids of stages that are gone", untilPruned, false)
		case "runs":
			add(path, "journals, logs, diagnoses and receipts", untilPruned, false)
		case "layout", "lock", "recreate.json", "recreate.json.copy", "restore.json", "restore.json.copy",
			"births.json", "births.json.copy", "store.json", "store.lock", removedFile:
			add(path, "castle's own record", forGood, false)
		case "backups":
			add(path, "backups of etcd, with every Secret of Kubernetes", forGood, true)
		case "diverged":
			add(path, "changes of a run that had lost the lock of the store", forGood, true)
		// They follow, and a receipt replaces the proofs.
		case "stages", "proved.json", "proved.json.copy", "proved.jsonl":
		default:
			add(path, "access to the cluster, or what castle does not know", forGood, true)
		}
	}
	stages, unread := folder(d.stages())
	for _, name := range stages {
		add(d.Stage(name).Dir(), "the state of a stage, its inputs and copies", "it is destroyed", true)
	}
	archives, unlisted := Archives(d)
	err = errors.Join(err, unread, unlisted)
	for _, a := range archives {
		if whole, unread := a.Whole(); whole || unread != nil {
			add(a.Path, "the state of a stage whose objects may still exist", forGood, true)
		}
	}
	return all, err
}
