package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
)

const (
	typedClusters = 20
	typedRounds   = 11 // at least: they are short
)

// typed measures what a person types often, inside a rehearsal: on a live cluster, beside others with the
// same records. The lab starts this program once more, with the file for its measures.
func (b *bench) typed(ctx context.Context) error {
	self, err := os.Executable()
	if err != nil {
		return err
	}
	file := filepath.Join(b.dir, rootsTyped+".json")
	rounds := fmt.Sprint(max(b.options.rounds, typedRounds))
	fmt.Fprintf(os.Stderr, "bench: %s: creating %s in the lab\n", rootsTyped, shownCluster)
	_, _, err = run(ctx, ".", os.Environ(), b.programs.castle, "rehearse", shownCluster, "--", self,
		"-typed", file, "-rounds", rounds, "-bin", filepath.Dir(b.programs.castle))
	if err != nil {
		return err
	}
	text, err := os.ReadFile(file)
	if err != nil {
		return err
	}
	measures := map[string][]measure{}
	if err := json.Unmarshal(text, &measures); err != nil {
		return err
	}
	for phase, all := range measures {
		b.samples[key{rootsTyped, phase, castleTool}] = all
	}
	return nil
}

// measureTyped creates the cluster of the rehearsal around it, copies it, and writes its measures to a file.
func (o options) measureTyped(ctx context.Context) error {
	castle, env := filepath.Join(o.bin, "castle"), os.Environ()
	if _, _, err := run(ctx, ".", env, castle, "create", shownCluster); err != nil {
		return err
	}
	if err := copyClusters("clusters", os.Getenv("CASTLE_STATE_DIR")); err != nil {
		return err
	}
	measures := map[string][]measure{}
	for range o.rounds {
		for phase, args := range map[string][]string{
			phaseList:     {"list"},
			phaseStatus:   {"status", shownCluster},
			phaseComplete: {"__complete", "create", shownCluster, "--only", ""},
		} {
			m, _, err := run(ctx, ".", env, append([]string{castle}, args...)...)
			if err != nil {
				return err
			}
			measures[phase] = append(measures[phase], m)
		}
	}
	text, err := json.Marshal(measures)
	if err != nil {
		return err
	}
	return os.WriteFile(o.measures, text, 0o600)
}

// copyClusters leaves typedClusters clusters in the rehearsal's copy of the repository: the shown one, and
// copies of it with copies of its state.
func copyClusters(repository, state string) error {
	others, err := os.ReadDir(repository)
	if err != nil {
		return err
	}
	for _, o := range others {
		if o.Name() != shownCluster {
			err = errors.Join(err, os.RemoveAll(filepath.Join(repository, o.Name())))
		}
	}
	for i := range typedClusters - 1 {
		for _, root := range []string{repository, state} {
			from, to := filepath.Join(root, shownCluster), filepath.Join(root, fmt.Sprintf("c%03d", i))
			err = errors.Join(err, os.CopyFS(to, os.DirFS(from)))
		}
	}
	return err
}
