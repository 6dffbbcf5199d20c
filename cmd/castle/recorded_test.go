package main

import (
	"os"
	"path/filepath"

	"github.com/rogpeppe/go-internal/testscript"

	"github.com/ephemeral-castle/castle/internal/state"
	"github.com/ephemeral-castle/castle/internal/state/recorded"
)

// rerecord gives the recorded module of a stage another fake.json, as if it had been applied with that: what
// the fake Terraform does at a destroy.
//
//	rerecord ../waits.json ../state/blue/proxmox/stages/seed
func rerecord(ts *testscript.TestScript, neg bool, args []string) {
	if neg || len(args) != 2 {
		ts.Fatalf("usage: rerecord FILE STAGE-FOLDER")
	}
	folder := ts.MkAbs(args[1])
	module := filepath.Join(folder, "module")
	ts.Check(os.WriteFile(filepath.Join(module, "fake.json"), []byte(ts.ReadFile(args[0])), 0o600))
	platform := filepath.Dir(filepath.Dir(folder))
	cluster := filepath.Dir(platform)
	dir, err := state.Open(filepath.Dir(cluster), filepath.Base(cluster), filepath.Base(platform))
	ts.Check(err)
	stage := dir.Stage(filepath.Base(folder))
	rec, err := stage.Record()
	ts.Check(err)
	rec.Files = state.Fingerprint{}
	ts.Check(rec.Files.AddFS("", os.DirFS(module)))
	delete(rec.Files, recorded.InputsFile)
	ts.Check(stage.SetRecord(rec))
}
