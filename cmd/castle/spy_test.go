//go:build integration

package main

import (
	"bytes"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"sync"

	"github.com/rogpeppe/go-internal/testscript"
)

// spy reads the command line of every process, again and again, as anybody on
// the machine could, and looks for a secret there.
type spy struct {
	secret []byte
	stop   chan struct{}
	all    sync.WaitGroup

	mu    sync.Mutex
	seen  []string       // command lines that hold the secret
	looks map[string]int // how often a program was looked at, by its name
}

type spyKey struct{}

// spying acts for the scripts:
//
//	spy on SECRET     starts looking
//	spy off           fails if the secret was seen, or Terraform never was
//	spy files DIR     fails if a file below DIR holds the secret that others may
//	                  read, or that is a log, a journal or a diagnosis
func spying(ts *testscript.TestScript, neg bool, args []string) {
	if neg || len(args) == 0 {
		ts.Fatalf("usage: spy on SECRET|off|files DIR")
	}
	held, _ := ts.Value(spyKey{}).(*spy)
	switch args[0] {
	case "on":
		held.secret, held.stop, held.looks = []byte(args[1]), make(chan struct{}), map[string]int{}
		ts.Defer(held.end)
		held.all.Go(held.look)
	case "off":
		held.end()
		if len(held.seen) > 0 {
			ts.Fatalf("the secret is on a command line: %s", strings.Join(held.seen, "; "))
		}
		if held.looks["terraform"] == 0 || held.looks["castle"] == 0 {
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
	if bytes.Contains(argv, s.secret) {
		s.seen = append(s.seen, string(bytes.ReplaceAll(argv, []byte{0}, []byte{' '})))
	}
}

func (s *spy) files(ts *testscript.TestScript, dir string) error {
	held := 0
	err := filepath.WalkDir(dir, func(path string, d fs.DirEntry, err error) error {
		if err != nil || !d.Type().IsRegular() {
			return err
		}
		data, err := os.ReadFile(path)
		if err != nil || !bytes.Contains(data, s.secret) {
			return err
		}
		held++
		info, err := d.Info()
		if err != nil {
			return err
		}
		if info.Mode().Perm()&0o077 != 0 {
			ts.Fatalf("%s holds the secret and is %o", path, info.Mode().Perm())
		}
		if strings.HasSuffix(path, ".log") || strings.HasSuffix(path, ".jsonl") ||
			strings.Contains(path, "/diagnosis/") {
			ts.Fatalf("%s holds the secret", path)
		}
		return nil
	})
	if held == 0 {
		ts.Fatalf("no file below %s holds the secret, not even a state: it was not planted", dir)
	}
	return err
}
