//go:build integration

package main

import (
	"bytes"
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"time"

	"github.com/ephemeral-castle/castle/internal/event"
)

// kill kills castle, either alone or with all processes that it has started. Alone,
// its Terraform dies of its next line of output or of the next run. With all, as in a
// power cut, files that a process was writing may be damaged.
func (k *soak) kill(a *attempt, m moment) {
	death := "alone"
	var frozen []carrier
	if k.machine == nil && k.rand.IntN(2) == 0 {
		must(k.t, a.cmd.Process.Kill())
		frozen = carriers() // they have not died of it yet
		<-a.ended
	} else {
		death = "power cut"
		must(k.t, a.cmd.Process.Signal(syscall.SIGSTOP))
		for {
			more := slices.DeleteFunc(carriers(), func(c carrier) bool {
				return slices.ContainsFunc(frozen, func(f carrier) bool { return f.pid == c.pid })
			})
			if len(more) == 0 {
				break
			}
			for _, c := range more {
				syscall.Kill(c.pid, syscall.SIGSTOP) //nolint:errcheck // it may have ended
			}
			frozen = append(frozen, more...)
		}
		must(k.t, a.cmd.Process.Kill())
		for _, c := range frozen {
			syscall.Kill(c.pid, syscall.SIGKILL) //nolint:errcheck // likewise
		}
		<-a.ended
		if !eventually(soakPatience, time.Millisecond, func() bool { return len(carriers()) == 0 }) {
			k.fail(a, "the killed processes do not end: %v", carriers())
		}
		if k.machine != nil {
			death = "machine lost"
		} else if damage := k.harm.damage(frozen); damage != "" {
			death += ": " + damage
		}
	}
	last := k.hits.kill(a, m, k.files.journal(""), frozen, death)
	k.t.Logf("%3d to go: %s killed after %s (%s), last line: %s; %s", k.kills-1, a.command,
		time.Since(a.began).Round(time.Millisecond), m.name, last, death)
}

// fill leaves castle no space from some moment on. It comes to its end by itself,
// and says why; the space is then there again.
func (k *soak) fill(command string) {
	a, m := k.start(command), k.moment(command, k.lengths[command])
	if !k.await(a, m) {
		k.complete(a)
		return
	}
	filler := filepath.Join(k.disk, "filler")
	f, err := os.Create(filler)
	must(k.t, err)
	for block := make([]byte, 4096); err == nil; {
		_, err = f.Write(block)
	}
	if !errors.Is(err, syscall.ENOSPC) {
		k.fail(a, "fill the disk: %v", err)
	}
	must(k.t, f.Close())
	after := time.Since(a.began)
	select {
	case <-a.ended:
	case <-time.After(soakPatience):
		k.fail(a, "castle %s does not end on a full disk", command)
	}
	must(k.t, os.Remove(filler))
	output, err := os.ReadFile(a.output)
	must(k.t, err)
	if a.err != nil && !bytes.Contains(output, []byte(syscall.ENOSPC.Error())) {
		k.fail(a, "castle %s does not say that the disk is full", command)
	}
	k.t.Logf("the disk is full after %s (%s): %v", after.Round(time.Millisecond), m.name, a.err)
}

// carrier is a process that some castle of this rehearsal has started.
type carrier struct {
	pid   int
	argv  string
	stage string // whose directory it works in
}

// phase is the command of a Terraform; empty for another process.
func (c carrier) phase() string {
	words := strings.Fields(c.argv)
	if len(words) < 2 || filepath.Base(words[0]) != "terraform" {
		return ""
	}
	return words[1]
}

var stageOf = regexp.MustCompile(`/stages/([^/]+)/`)

// carriers finds them by their environment; the network distinguishes rehearsals.
func carriers() (found []carrier) {
	here, err := os.Readlink("/proc/self/ns/net")
	if err != nil {
		panic(err)
	}
	dirs, err := filepath.Glob("/proc/[0-9]*")
	if err != nil {
		panic(err)
	}
	for _, dir := range dirs {
		environ, err := os.ReadFile(filepath.Join(dir, "environ"))
		if err != nil || !bytes.Contains(environ, []byte("CASTLE_RUN=")) {
			continue
		}
		if there, err := os.Readlink(filepath.Join(dir, "ns/net")); err != nil || there != here {
			continue
		}
		argv, err := os.ReadFile(filepath.Join(dir, "cmdline"))
		if err != nil {
			continue
		}
		pid, err := strconv.Atoi(filepath.Base(dir))
		if err != nil {
			continue
		}
		c := carrier{pid: pid, argv: strings.ReplaceAll(strings.TrimRight(string(argv), "\x00"), "\x00", " ")}
		for entry := range strings.SplitSeq(string(environ), "\x00") {
			if at := stageOf.FindStringSubmatch(entry); at != nil &&
				strings.HasPrefix(entry, "TF_DATA_DIR=") {
				c.stage = at[1]
			}
		}
		found = append(found, c)
	}
	return found
}

// damage leaves files as a lost write does. It changes only files that a process was
// writing at the power cut, or that no process had synced.
func (h *soakHarm) damage(frozen []carrier) string {
	type harm struct {
		name string
		do   func()
	}
	var possible []harm
	add := func(name string, do func()) { possible = append(possible, harm{name, do}) }
	cut := func(path string) {
		if info, err := os.Stat(path); err == nil && info.Size() > 0 {
			must(h.t, os.Truncate(path, h.rand.Int64N(info.Size()+1)))
		}
	}
	for _, c := range frozen {
		dir := filepath.Join(h.files.state, "stages", c.stage)
		switch c.phase() {
		case "apply", "import":
			add("torn state of "+c.stage, func() { cut(filepath.Join(dir, "terraform.tfstate")) })
			add("empty state of "+c.stage, func() {
				must(h.t, os.WriteFile(filepath.Join(dir, "terraform.tfstate"), nil, 0o600))
			})
			if path := filepath.Join(dir, "intent.jsonl"); younger(path, 100*time.Millisecond) {
				add("torn intent of "+c.stage, func() { h.tear(path) })
			}
		case "plan":
			add("half a plan of "+c.stage, func() {
				plans, err := filepath.Glob(filepath.Join(dir, "work", "*.tfplan"))
				must(h.t, err)
				for _, plan := range plans {
					must(h.t, os.WriteFile(plan, []byte("PK\x03\x04half a plan"), 0o600))
				}
			})
		}
	}
	if events := h.files.journal(""); len(events) > 0 {
		path := filepath.Join(h.files.newestRun(), "journal.jsonl")
		if last := events[len(events)-1].Kind; slices.Contains(
			[]event.Kind{event.ResourceStarted, event.Resource, event.GateClosed, event.GateOpen,
				event.Notice}, last) ||
			younger(path, 50*time.Millisecond) {
			add("torn journal", func() { h.tear(path) })
		}
	}
	add("unsynced files emptied", h.lose)
	if h.rand.IntN(3) == 0 || len(possible) == 0 {
		return ""
	}
	harmed := possible[h.rand.IntN(len(possible))]
	harmed.do()
	return harmed.name
}

func younger(path string, age time.Duration) bool {
	info, err := os.Stat(path)
	return err == nil && time.Since(info.ModTime()) < age
}

// tear cuts the last line of a file short.
func (h *soakHarm) tear(path string) {
	content, err := os.ReadFile(path)
	must(h.t, err)
	if len(content) == 0 {
		return
	}
	begin := bytes.LastIndexByte(content[:len(content)-1], '\n') + 1
	must(h.t, os.Truncate(path, int64(begin)+h.rand.Int64N(int64(len(content)-begin))))
}

// synced are the files in a work directory that castle does tell the disk to keep.
var synced = []string{".castle-files.json", "castle_override.tf", "castle.auto.tfvars.json", "castle-init"}

// lose empties files that were written a moment ago and not synced: what a stage's
// work directory consists of.
func (h *soakHarm) lose() {
	roots, err := filepath.Glob(filepath.Join(h.files.state, "stages", "*", "work"))
	must(h.t, err)
	for _, root := range roots {
		must(h.t, filepath.WalkDir(root, func(path string, d fs.DirEntry, err error) error {
			unsynced := err == nil && d.Type().IsRegular() && !slices.Contains(synced, d.Name()) &&
				younger(path, 5*time.Second)
			if unsynced && h.rand.IntN(2) == 0 {
				err = os.Truncate(path, 0)
			}
			return err
		}))
	}
}
