package main

import (
	"archive/zip"
	"bytes"
	"crypto/sha256"
	"fmt"
	"io/fs"
	"os"

	"github.com/rogpeppe/go-internal/testscript"
)

// forgePlan is `forge NEW REVIEWED OTHER STAGE`: it writes the file of a saved plan that describes one plan
// and does another one: that of a stage is out of another file.
func forgePlan(ts *testscript.TestScript, neg bool, args []string) {
	if neg || len(args) != 4 {
		ts.Fatalf("usage: forge NEW REVIEWED OTHER STAGE")
	}
	reviewed, err := zip.OpenReader(ts.MkAbs(args[1]))
	ts.Check(err)
	defer reviewed.Close()
	other, err := zip.OpenReader(ts.MkAbs(args[2]))
	ts.Check(err)
	defer other.Close()
	file, err := os.OpenFile(ts.MkAbs(args[0]), os.O_CREATE|os.O_WRONLY, 0o600)
	ts.Check(err)
	w := zip.NewWriter(file)
	own := "stages/" + args[3] + ".tfplan"
	digest := func(archive fs.FS) []byte {
		data, err := fs.ReadFile(archive, own)
		ts.Check(err)
		return fmt.Appendf(nil, "%x", sha256.Sum256(data))
	}
	for _, f := range reviewed.File {
		from := &reviewed.Reader
		if f.Name == own {
			from = &other.Reader
		}
		data, err := fs.ReadFile(from, f.Name)
		ts.Check(err)
		data = bytes.ReplaceAll(data, digest(reviewed), digest(other))
		entry, err := w.CreateHeader(&zip.FileHeader{Name: f.Name, Method: zip.Store})
		ts.Check(err)
		_, err = entry.Write(data)
		ts.Check(err)
	}
	ts.Check(w.Close())
	ts.Check(file.Close())
}
