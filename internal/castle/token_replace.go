package castle

import (
	"bytes"
	"encoding/json"
	"errors"
	"io/fs"
	"path/filepath"
	"slices"

	"github.com/zclconf/go-cty/cty"

	"github.com/ephemeral-castle/castle/internal/atomicfile"
	"github.com/ephemeral-castle/castle/internal/proxmox"
	"github.com/ephemeral-castle/castle/internal/state"
)

// replaceToken puts a token in the place of another one in all that was recorded:
// this run, a later one and castle nuke find it there.
func (r *destruction) replaceToken(doomed []*Doomed, old, token string) error {
	for _, d := range slices.Concat(r.all, doomed) {
		dir := r.dir.Stage(d.Record.Name)
		for i, check := range d.Record.Preflights {
			values, err := check.Decode()
			if err != nil {
				return err
			}
			if check.Type != proxmox.PreflightVMIDs || text(values["api_token"]) != old {
				continue
			}
			values["api_token"] = cty.StringVal(token)
			if d.Record.Preflights[i], err = state.NewRecordedCheck(check.Type, check.Label, values); err != nil {
				return err
			}
			if err := dir.SetRecord(d.Record); err != nil {
				return err
			}
		}
		if err := replaceInput(dir, old, token); err != nil {
			return err
		}
	}
	return nil
}

// replaceInput puts a text in the place of another one in a stage's recorded inputs.
func replaceInput(dir *state.Stage, old, replacement string) error {
	_, inputs, err := recordedModule(dir)
	if errors.Is(err, fs.ErrNotExist) || inputs == nil {
		return nil
	}
	if err != nil {
		return err
	}
	was, err := json.Marshal(old)
	if err != nil {
		return err
	}
	is, err := json.Marshal(replacement)
	if err != nil {
		return err
	}
	changed := bytes.ReplaceAll(inputs, was, is)
	if bytes.Equal(changed, inputs) {
		return nil
	}
	return atomicfile.Write(filepath.Join(recordedPath(dir), keptInputs), changed)
}
