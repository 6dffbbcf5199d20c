package review

import (
	"archive/zip"
	"bytes"
	"crypto/sha256"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"maps"
	"os"
	"slices"
	"strings"
	"time"

	"github.com/ephemeral-castle/castle/internal/atomicfile"
	"github.com/ephemeral-castle/castle/internal/state"
	"github.com/ephemeral-castle/castle/internal/state/commits"
	"github.com/ephemeral-castle/castle/internal/terraform"
)

const (
	// Extension ends the name of every plan file: one line of .gitignore excludes them all.
	Extension = ".castleplan"

	format   = 1 // the version of the file's format that castle reads and writes
	manifest = "manifest.json"
)

// SavedPlan is the content of the file of a saved plan: a zip archive of manifest.json and one Terraform
// plan for each stage to change. Those hold the values of all variables in clear, so the file is private,
// unless it is encrypted for the recipients of the states.
type SavedPlan struct {
	Format   int                `json:"format"`
	Cluster  string             `json:"cluster"`         // blue/proxmox
	Castle   string             `json:"castle"`          // the version that planned
	StateDir string             `json:"state_directory"` // Terraform's plans contain paths in it
	Run      string             `json:"run"`
	Made     time.Time          `json:"made"`
	Facts    *state.Fingerprint `json:"facts"` // the inputs of all stages
	Stages   []SavedStage       `json:"stages"`

	Path   string `json:"-"`
	Digest string `json:"-"` // SHA-256 of the file
}

// SavedStage is the plan of one stage.
type SavedStage struct {
	Name    string             `json:"name"`
	State   string             `json:"state"`             // as `castle plan` prints it
	Facts   *state.Fingerprint `json:"facts"`             // digests of the inputs of the stage's plan
	Changes []Change           `json:"changes,omitempty"` // without attributes
	Saved   []byte             `json:"-"`                 // Terraform's own plan; nil without changes
	Digest  string             `json:"sha256,omitempty"`  // of Saved
}

// Unlisted returns the changes that Terraform's own plan has and the list lacks, or has and the plan lacks.
// castle adopts and restores beside Terraform.
func (s *SavedStage) Unlisted(stored []terraform.Change) (lines []string) {
	count := map[string]int{}
	add := func(n int, address, action string) {
		count[strings.TrimSpace(Change{Address: address, Action: action}.String())] += n
	}
	for _, c := range stored {
		add(1, c.Address, c.Action)
	}
	for _, c := range s.Changes {
		if c.Action != Restore {
			add(-1, c.Address, strings.Replace(c.Action, "adopt", "create", 1))
		}
	}
	maps.DeleteFunc(count, func(_ string, n int) bool { return n == 0 })
	return slices.Sorted(maps.Keys(count))
}

// Stage returns the plan of a stage, or nil.
func (p *SavedPlan) Stage(name string) *SavedStage {
	for i := range p.Stages {
		if p.Stages[i].Name == name {
			return &p.Stages[i]
		}
	}
	return nil
}

// Write replaces the file at p.Path and sets the digest.
func (p *SavedPlan) Write(e commits.Encryption) error {
	p.Format = format
	for i := range p.Stages {
		if s := &p.Stages[i]; s.Saved != nil {
			s.Digest = digestOf(s.Saved)
		}
	}
	var data bytes.Buffer
	archive := zip.NewWriter(&data)
	text, err := json.MarshalIndent(p, "", "  ")
	add := func(name string, content []byte) {
		// Stored: Terraform's plans are compressed already.
		w, createErr := archive.CreateHeader(&zip.FileHeader{Name: name, Method: zip.Store})
		if createErr == nil {
			_, createErr = w.Write(content)
		}
		err = errors.Join(err, createErr)
	}
	add(manifest, text)
	for _, s := range p.Stages {
		if s.Saved != nil {
			add(entryName(s.Name), s.Saved)
		}
	}
	if err = errors.Join(err, archive.Close()); err != nil {
		return err
	}
	content, err := e.Seal(p.Path, data.Bytes())
	if err != nil {
		return err
	}
	p.Digest = digestOf(content)
	return atomicfile.WriteMode(p.Path, content, 0o600)
}

// ReadSavedPlan reads a file.
func ReadSavedPlan(path string, e commits.Encryption) (*SavedPlan, error) {
	content, err := readPrivate(path)
	if err != nil {
		return nil, err
	}
	data, err := e.Unseal(path, content)
	if _, foreign := errors.AsType[*commits.IdentityError](err); foreign {
		return nil, err
	}
	var p *SavedPlan
	if err == nil {
		p, err = parse(data)
	}
	if err != nil {
		return nil, fmt.Errorf("%s: not a plan saved by `castle plan --plan-out`, or damaged: %w", path, err)
	}
	if p.Format != format {
		return nil, fmt.Errorf("%s: format %d, this castle reads format %d; plan again",
			path, p.Format, format)
	}
	p.Path, p.Digest = path, digestOf(content)
	return p, nil
}

// readPrivate refuses a file in clear that others can read.
func readPrivate(path string) ([]byte, error) {
	f, err := os.Open(path)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	info, err := f.Stat()
	if err != nil {
		return nil, err
	}
	data, err := io.ReadAll(f)
	if err != nil {
		return nil, err
	}
	if mode := info.Mode().Perm(); mode&0o077 != 0 && !commits.IsSealed(data) {
		return nil, fmt.Errorf("%s holds secrets and is readable by others (mode %04o); run chmod 600 %s",
			path, mode, path)
	}
	return data, nil
}

func parse(data []byte) (*SavedPlan, error) {
	archive, err := zip.NewReader(bytes.NewReader(data), int64(len(data)))
	if err != nil {
		return nil, err
	}
	for _, f := range archive.File { // or a damaged size would be allocated
		if f.UncompressedSize64 > uint64(len(data)) {
			return nil, fmt.Errorf("%s: %d bytes do not fit into the file", f.Name, f.UncompressedSize64)
		}
	}
	p := &SavedPlan{}
	text, err := fs.ReadFile(archive, manifest) // with its checksum
	if err == nil {
		err = json.Unmarshal(text, p)
	}
	if err != nil {
		return nil, fmt.Errorf("%s: %w", manifest, err)
	}
	for i := range p.Stages {
		s := &p.Stages[i]
		if s.Saved, err = fs.ReadFile(archive, entryName(s.Name)); err != nil &&
			!errors.Is(err, fs.ErrNotExist) {
			return nil, fmt.Errorf("%s: %w", entryName(s.Name), err)
		}
		if s.Digest != "" && s.Digest != digestOf(s.Saved) {
			return nil, fmt.Errorf("%s: not the plan that was saved", entryName(s.Name))
		}
	}
	return p, nil
}

func entryName(stage string) string { return "stages/" + stage + ".tfplan" }

func digestOf(data []byte) string { return fmt.Sprintf("%x", sha256.Sum256(data)) }
