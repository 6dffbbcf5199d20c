package plan

import (
	"bytes"
	"errors"
	"io/fs"

	"github.com/ephemeral-castle/castle/internal/cluster"
	"github.com/ephemeral-castle/castle/internal/config"
	"github.com/ephemeral-castle/castle/internal/run"
	"github.com/ephemeral-castle/castle/internal/state"
)

// CodeChange reports that a stage's module differs from the applied one: castle was upgraded, or somebody
// changed it.
type CodeChange struct {
	Stage  string   `json:"stage"`
	Layer  string   `json:"layer"`
	Source string   `json:"source"` // networking/metallb
	Castle string   `json:"castle"` // the version that applied it
	Files  []string `json:"files"`  // that differ; empty if the applied module is not recorded
}

// codeChange compares a stage's module with the applied one; nil if they are equal or none was recorded.
func codeChange(c *cluster.Cluster, s *config.Stage) (*CodeChange, error) {
	dir := c.Dir.Stage(s.Name)
	rec, err := dir.Record()
	if errors.Is(err, fs.ErrNotExist) || err == nil && rec.Module == "" {
		return nil, nil
	}
	if err != nil {
		return nil, err
	}
	now, err := state.Digest(s.Module)
	if err != nil || now == rec.Module {
		return nil, err
	}
	change := &CodeChange{
		Stage: s.Name, Layer: s.Layer, Source: s.Source, Castle: rec.Castle, Files: []string{},
	}
	applied, _, err := run.RecordedModule(dir)
	if errors.Is(err, fs.ErrNotExist) {
		return change, nil
	}
	if err == nil {
		change.Files, err = differingFiles(applied, s.Module)
	}
	return change, err
}

// differingFiles lists the files that differ or exist in only one of two modules.
func differingFiles(applied, now fs.FS) ([]string, error) {
	names := []string{}
	err := fs.WalkDir(now, ".", func(name string, d fs.DirEntry, err error) error {
		if err != nil || d.IsDir() {
			return err
		}
		data, err := fs.ReadFile(now, name)
		if err != nil {
			return err
		}
		if was, err := fs.ReadFile(applied, name); err != nil || !bytes.Equal(was, data) {
			names = append(names, name)
		}
		return nil
	})
	return names, errors.Join(
		err,
		fs.WalkDir(applied, ".", func(name string, d fs.DirEntry, err error) error {
			if err != nil || d.IsDir() || name == run.KeptInputs {
				return err
			}
			if _, err := fs.Stat(now, name); errors.Is(err, fs.ErrNotExist) {
				names = append(names, name)
			}
			return nil
		}),
	)
}
