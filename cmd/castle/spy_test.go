//go:build integration

package main

import (
	"bytes"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"

	"github.com/rogpeppe/go-internal/testscript"
)

// spy reads the command line of every process, again and again, as anybody on
// the machine could, and looks for secrets there.
type spy struct {
	secrets [][]byte
	stop    chan struct{}
	all     sync.WaitGroup

	mu    sync.Mutex
	seen  []string       // command lines that hold one
	looks map[string]int // how often a program was looked at, by its name
}

type spyKey struct{}

// spying acts for the scripts:
//
//	spy on SECRET…    starts looking
//	spy off           fails if a secret was seen, or Terraform never was
//	spy files DIR     fails if a file below DIR holds a secret that others may
//	                  read, or that is a log, a journal or a diagnosis
func spying(ts *testscript.TestScript, neg bool, args []string) {
	if neg || len(args) == 0 {
		ts.Fatalf("usage: spy on SECRET...|off|files DIR")
	}
	held, _ := ts.Value(spyKey{}).(*spy)
	switch args[0] {
	case "on":
		held.secrets, held.stop, held.looks = nil, make(chan struct{}), map[string]int{}
		for _, secret := range args[1:] {
			held.secrets = append(held.secrets, []byte(secret))
		}
		ts.Defer(held.end)
		held.all.Go(held.look)
	case "off":
		held.end()
		if len(held.seen) > 0 {
			ts.Fatalf("a secret is on a command line: %s", strings.Join(held.seen, "; "))
		}
		if held.looks["terraform"]+held.looks["tofu"] == 0 || held.looks["castle"] == 0 {
			ts.Fatalf("castle or terraform was never looked at: %v", held.looks)
		}
	case "files":
		ts.Check(held.files(ts, ts.MkAbs(args[1])))
	default:
		ts.Fatalf("spy: unknown %q", args[0])
	}
}

func (s *spy) end() {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.stop != nil {
		close(s.stop)
		s.stop = nil
		s.mu.Unlock()
		s.all.Wait()
		s.mu.Lock()
	}
}

func (s *spy) look() {
	s.mu.Lock()
	stop := s.stop
	s.mu.Unlock()
	for {
		select {
		case <-stop:
			return
		default:
		}
		lines, err := filepath.Glob("/proc/[0-9]*/cmdline")
		if err != nil {
			return
		}
		for _, path := range lines {
			if argv, err := os.ReadFile(path); err == nil { // a process may have ended
				s.note(argv)
			}
		}
	}
}

func (s *spy) note(argv []byte) {
	s.mu.Lock()
	defer s.mu.Unlock()
	name, _, _ := bytes.Cut(argv, []byte{0})
	s.looks[filepath.Base(string(name))]++
	if s.within(argv) {
		s.seen = append(s.seen, string(bytes.ReplaceAll(argv, []byte{0}, []byte{' '})))
	}
}

// within reports whether a text holds a secret.
func (s *spy) within(text []byte) bool {
	return slices.ContainsFunc(s.secrets, func(secret []byte) bool { return bytes.Contains(text, secret) })
}

func (s *spy) files(ts *testscript.TestScript, dir string) error {
	held := 0
	err := filepath.WalkDir(dir, func(path string, d fs.DirEntry, err error) error {
		if err != nil || !d.Type().IsRegular() {
			return err
		}
		data, err := os.ReadFile(path)
		if err != nil || !s.within(data) {
			return err
		}
		held++
		info, err := d.Info()
		if err != nil {
			return err
		}
		if info.Mode().Perm()&0o077 != 0 {
			ts.Fatalf("%s holds a secret and is %o", path, info.Mode().Perm())
		}
		if strings.HasSuffix(path, ".log") || strings.HasSuffix(path, ".jsonl") ||
			strings.Contains(path, "/diagnosis/") {
			ts.Fatalf("%s holds a secret", path)
		}
		return nil
	})
	if held == 0 {
		ts.Fatalf("no file below %s holds a secret, not even a state: none was not planted", dir)
	}
	return err
}
