// Package planfile owns the file in which a reviewed plan is saved: what was
// planned for each stage, what that depended on, and Terraform's own plans.
//
// It is a zip archive, so that a file that was cut short or altered is noticed:
// manifest.json first, then one plan for each stage of which Terraform is to
// change something. Terraform's plans hold the values of all variables in clear.
// So the file is for its owner alone, written whole or not at all, and refused
// where others can read it.
package planfile

import (
	"archive/zip"
	"bytes"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"slices"
	"time"

	"github.com/ephemeral-castle/castle/internal/atomicfile"
	"github.com/ephemeral-castle/castle/internal/state"
)

// Extension ends the name of every plan file, so that one line of .gitignore
// keeps them all out of Git.
const Extension = ".castleplan"

// format is the version of the file's format that this package reads and writes.
const format = 1

const manifest = "manifest.json"

// Plan is what a file holds.
type Plan struct {
	Format   int       `json:"format"`
	Cluster  string    `json:"cluster"`         // blue/proxmox
	Castle   string    `json:"castle"`          // the version that planned
	StateDir string    `json:"state_directory"` // the cluster's; Terraform's plans name paths in it
	Run      string    `json:"run"`
	Made     time.Time `json:"made"`
	// Facts are what all stages depend on: the configuration and Terraform.
	Facts  *state.Fingerprint `json:"facts"`
	Stages []Stage            `json:"stages"`
}

// Stage is the plan of one stage.
type Stage struct {
	Name  string `json:"name"`
	State string `json:"state"` // as `castle plan` said
	// Facts are what the stage's plan depends on, as digests.
	Facts   *state.Fingerprint `json:"facts"`
	Changes []Change           `json:"changes,omitempty"`
	Saved   []byte             `json:"-"` // Terraform's own plan; nil if there is none to be applied
}

// Change is what was planned for one resource.
type Change struct {
	Address string `json:"address"`
	Action  string `json:"action"`
}

// Stage returns the plan of a stage, or nil.
func (p *Plan) Stage(name string) *Stage {
	i := slices.IndexFunc(p.Stages, func(s Stage) bool { return s.Name == name })
	if i < 0 {
		return nil
	}
	return &p.Stages[i]
}

// Write replaces the file at path and returns its digest.
func Write(path string, p *Plan) (digest string, err error) {
	p.Format = format
	var data bytes.Buffer
	archive := zip.NewWriter(&data)
	add := func(name string, content []byte) error {
		// As it is: Terraform's plans are compressed already.
		w, err := archive.CreateHeader(&zip.FileHeader{Name: name, Method: zip.Store})
		if err == nil {
			_, err = w.Write(content)
		}
		return err
	}
	text, err := json.MarshalIndent(p, "", "  ")
	if err != nil {
		return "", err
	}
	err = add(manifest, text)
	for _, s := range p.Stages {
		if s.Saved != nil {
			err = errors.Join(err, add(saved(s.Name), s.Saved))
		}
	}
	if err := errors.Join(err, archive.Close()); err != nil {
		return "", err
	}
	return digestOf(data.Bytes()), atomicfile.Write(path, data.Bytes())
}

// Read reads a file and returns its digest, too.
func Read(path string) (p *Plan, digest string, err error) {
	data, err := readPrivate(path)
	if err != nil {
		return nil, "", err
	}
	if p, err = parse(data); err != nil {
		return nil, "", fmt.Errorf("%s: not a plan saved by `castle plan --plan-out`, or damaged: %w", path, err)
	}
	if p.Format != format {
		return nil, "", fmt.Errorf("%s has format %d, and this castle reads format %d; plan again", path, p.Format, format)
	}
	return p, digestOf(data), nil
}

// readPrivate reads a file that others cannot.
func readPrivate(path string) (data []byte, err error) {
	f, err := os.Open(path)
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, f.Close()) }()
	info, err := f.Stat()
	if err != nil {
		return nil, err
	}
	if mode := info.Mode().Perm(); mode&0o077 != 0 {
		return nil, fmt.Errorf("%s holds secrets and is readable by others (mode %04o); run chmod 600 %s", path, mode, path)
	}
	return io.ReadAll(f)
}

func parse(data []byte) (*Plan, error) {
	archive, err := zip.NewReader(bytes.NewReader(data), int64(len(data)))
	if err != nil {
		return nil, err
	}
	files := map[string][]byte{}
	for _, f := range archive.File {
		if files[f.Name], err = content(f); err != nil {
			return nil, fmt.Errorf("%s: %w", f.Name, err)
		}
	}
	p := &Plan{}
	if err := json.Unmarshal(files[manifest], p); err != nil {
		return nil, fmt.Errorf("%s: %w", manifest, err)
	}
	for i, s := range p.Stages {
		p.Stages[i].Saved = files[saved(s.Name)]
	}
	return p, nil
}

// content reads a file of the archive, whose checksum must be right.
func content(f *zip.File) (data []byte, err error) {
	r, err := f.Open()
	if err != nil {
		return nil, err
	}
	data, err = io.ReadAll(r)
	return data, errors.Join(err, r.Close())
}

func saved(stage string) string { return "stages/" + stage + ".tfplan" }

func digestOf(data []byte) string {
	sum := sha256.Sum256(data)
	return hex.EncodeToString(sum[:])
}
