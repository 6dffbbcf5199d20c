//go:build integration

package main

import (
	"archive/zip"
	"bytes"
	"crypto/rand"
	"encoding/base64"
	"encoding/binary"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"maps"
	mathrand "math/rand/v2"
	"net/url"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"
	"unicode/utf16"

	"github.com/rogpeppe/go-internal/testscript"
	"golang.org/x/sys/unix"
)

// TestPlanted runs whole lives of a cluster with real Terraform and 200 secrets, kills some runs, and
// searches every file on the disk for the secrets: with the working copy in memory, and once on the disk,
// where the search must find them all.
func TestPlanted(t *testing.T) {
	t.Parallel()
	if _, err := exec.LookPath("terraform"); err != nil {
		t.Fatalf("this test needs terraform on PATH: %v", err)
	}
	run(t, "testdata/planted", func(env *testscript.Env) error {
		env.Values[plantedKey{}] = newPlanted()
		env.Setenv("TF_CLI_CONFIG_FILE", "")
		return inMemory(env)
	}, planting())
}

// TestLabPlanted does the same in a rehearsal, with the keys of a cluster of Talos and a backup of etcd.
func TestLabPlanted(t *testing.T) { scripts(t, "mini", "testdata/lab-planted") }

// planting are the commands of scripts that search for secrets.
func planting() map[string]func(*testscript.TestScript, bool, []string) {
	return map[string]func(*testscript.TestScript, bool, []string){"plant": plant, "unearthed": unearthed,
		"killed": killed, "logged": logged, "in-memory": func(ts *testscript.TestScript, _ bool, _ []string) {
			dir, err := os.MkdirTemp("/dev/shm", "c")
			ts.Check(err)
			ts.Defer(func() { _ = os.RemoveAll(dir) })
			ts.Setenv("XDG_RUNTIME_DIR", dir)
			ts.Setenv("CASTLE_STATE_DIR", "")
		}}
}

type plantedKey struct{}

// planted are secrets, and the search for them in all files below some folders.
type planted struct {
	roots   []string
	secrets []string
	needles map[[8]byte][]needle // by how they begin

	mu       sync.Mutex
	where    map[string]string // in which file each was found
	open     map[uint64]*os.File
	problems error
	gone     []string // files that were deleted before they could be opened
	inotify  int
	folders  map[int32]string
	ended    chan struct{}
}

func newPlanted() *planted {
	return &planted{where: map[string]string{}, open: map[uint64]*os.File{}}
}

// needle is a secret in one encoding.
type needle struct{ secret, encoding, text string }

// plant makes so many secrets, puts them into variables of Terraform, and watches $WORK and other folders
// from now on: plant COUNT FOLDER... Without a count it reads further secrets, in JSON, from the last output.
func plant(ts *testscript.TestScript, neg bool, args []string) {
	p := ts.Value(plantedKey{}).(*planted)
	if neg {
		ts.Fatalf("usage: plant [count folder...]")
	}
	if len(args) == 0 {
		var more any
		ts.Check(json.Unmarshal([]byte(ts.ReadFile("stdout")), &more))
		p.add(secretsIn(more)...)
		return
	}
	count, err := strconv.Atoi(args[0])
	ts.Check(err)
	var all []string
	for range count {
		random := make([]byte, 12)
		_, err := rand.Read(random)
		ts.Check(err)
		all = append(all, fmt.Sprintf("%x<é+/\"&%x", random[:8], random[8:])) // each encoding differs
	}
	p.add(all...)
	text, err := json.Marshal(all)
	ts.Check(err)
	ts.Setenv("TF_VAR_planted", string(text))
	p.roots = append([]string{ts.Getenv("WORK")}, args[1:]...)
	ts.Check(p.watch())
	ts.Defer(p.end)
}

// privateKey matches keys in a kubeconfig, a talosconfig and PEM; the rest of these is public.
var privateKey = regexp.MustCompile(`key(?:-data)?: (\S{40,})|PRIVATE KEY-----\n(\S{40,})`)

// secretsIn returns the secrets in a value of an output: all its strings without certificates and ids.
func secretsIn(value any) (all []string) {
	switch v := value.(type) {
	case string:
		for _, match := range privateKey.FindAllStringSubmatch(v, -1) {
			all = append(all, match[1]+match[2])
		}
		if !strings.Contains(v, "\n") && len(v) >= 16 {
			all = append(all, v)
		}
	case []any:
		for _, one := range v {
			all = append(all, secretsIn(one)...)
		}
	case map[string]any:
		for name, one := range v {
			if name != "cert" && name != "id" {
				all = append(all, secretsIn(one)...)
			}
		}
	}
	return all
}

// add adds secrets in their encodings, and those in which a secret is the middle of a longer text.
func (p *planted) add(secrets ...string) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.needles == nil {
		p.needles = map[[8]byte][]needle{}
	}
	p.secrets = append(p.secrets, secrets...)
	for _, s := range secrets {
		quoted, _ := json.Marshal(s) //nolint:errcheck // a string has no error
		var wide []byte
		for _, unit := range utf16.Encode([]rune(s)) {
			wide = binary.LittleEndian.AppendUint16(wide, unit)
		}
		encodings := map[string][]string{"plain": {s}, "hex": {hex.EncodeToString([]byte(s))},
			"HEX": {strings.ToUpper(hex.EncodeToString([]byte(s)))}, "URL": {url.QueryEscape(s)},
			"JSON": {strings.Trim(string(quoted), `"`)}, "UTF-16": {string(wide)},
			"base64":    inBase64(base64.RawStdEncoding, s),
			"base64url": inBase64(base64.RawURLEncoding, s)}
		for encoding, texts := range encodings {
			for _, text := range texts {
				begin := [8]byte([]byte(text))
				p.needles[begin] = append(p.needles[begin], needle{s, encoding, text})
			}
		}
	}
}

// inBase64 returns what of a secret is the same wherever it begins in a longer text.
func inBase64(e *base64.Encoding, secret string) (all []string) {
	for before := range 3 {
		text := e.EncodeToString([]byte(strings.Repeat("\x00", before) + secret))
		begin := []int{0, 2, 3}[before]
		all = append(all, text[begin:len(text)-2])
	}
	return all
}

// search looks for the secrets in the content of a file. Of an archive, such as a plan, it reads the files.
func (p *planted) search(path string, content []byte) {
	if archive, err := zip.NewReader(bytes.NewReader(content), int64(len(content))); err == nil {
		for _, f := range archive.File {
			if inner, err := fs.ReadFile(archive, f.Name); err == nil {
				p.search(path+" "+f.Name, inner)
			}
		}
	}
	for i := range max(0, len(content)-7) {
		for _, n := range p.needles[[8]byte(content[i:])] {
			if bytes.HasPrefix(content[i:], []byte(n.text)) {
				p.where[n.secret] = fmt.Sprintf("%s, as %s", path, n.encoding)
			}
		}
	}
}

// watch opens every file that appears below the root, so that a search also reads the deleted ones.
func (p *planted) watch() (err error) {
	if p.inotify, err = unix.InotifyInit1(unix.IN_CLOEXEC); err != nil {
		return err
	}
	p.folders, p.ended = map[int32]string{}, make(chan struct{})
	for _, root := range p.roots {
		p.enter(root)
	}
	go func() {
		defer close(p.ended)
		for buffer := make([]byte, 1<<20); ; {
			n, err := unix.Read(p.inotify, buffer)
			if errors.Is(err, unix.EINTR) {
				continue
			}
			if err != nil || !p.events(buffer[:n]) {
				p.note(err)
				return
			}
		}
	}()
	return nil
}

// events follows events of the kernel, until the file that ends the watch appears.
func (p *planted) events(all []byte) (more bool) {
	for len(all) > 0 {
		folder := int32(binary.NativeEndian.Uint32(all))
		mask, length := binary.NativeEndian.Uint32(all[4:]), binary.NativeEndian.Uint32(all[12:])
		name := string(bytes.TrimRight(all[16:16+length], "\x00"))
		all = all[16+length:]
		if mask&unix.IN_Q_OVERFLOW != 0 {
			p.note(errors.New("the kernel has lost events of files"))
		}
		if name == lastFile {
			return false
		}
		if path := filepath.Join(p.folders[folder], name); name != "" {
			p.enter(path)
		}
	}
	return true
}

const lastFile = ".last"

// enter watches a folder and what is in it, or reads a file, which it keeps open.
func (p *planted) enter(path string) {
	info, err := os.Lstat(path)
	switch {
	case err != nil:
		p.mu.Lock()
		defer p.mu.Unlock()
		p.gone = append(p.gone, path)
	case info.IsDir():
		folder, err := unix.InotifyAddWatch(p.inotify, path,
			unix.IN_CREATE|unix.IN_MOVED_TO|unix.IN_CLOSE_WRITE|unix.IN_ONLYDIR)
		if p.folders[int32(folder)] == path { //nolint:gosec // the kernel's own
			return
		}
		p.folders[int32(folder)] = path //nolint:gosec // likewise
		entries, _ := os.ReadDir(path)  //nolint:errcheck // it has gone meanwhile
		if !errors.Is(err, fs.ErrNotExist) {
			p.note(err)
		}
		for _, e := range entries {
			p.enter(filepath.Join(path, e.Name()))
		}
	case info.Mode().IsRegular():
		file, err := os.Open(path)
		if err != nil {
			return
		}
		p.mu.Lock()
		defer p.mu.Unlock()
		inode := info.Sys().(*syscall.Stat_t).Ino
		if p.open[inode] == nil {
			p.open[inode] = file
		} else {
			_ = file.Close()
		}
		p.read(p.open[inode])
	}
}

// read searches an open file, which may be deleted.
func (p *planted) read(file *os.File) {
	content, err := io.ReadAll(io.NewSectionReader(file, 0, 64<<20))
	p.problems = errors.Join(p.problems, err)
	p.search(file.Name(), content)
}

func (p *planted) note(err error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.problems = errors.Join(p.problems, err)
}

// end ends the watch, once all events before are read.
func (p *planted) end() {
	_ = os.WriteFile(filepath.Join(p.roots[0], lastFile), nil, 0o600)
	<-p.ended
	_ = unix.Close(p.inotify)
}

// unearthed asserts that the search finds every secret; with ! that it finds none.
func unearthed(ts *testscript.TestScript, neg bool, args []string) {
	if len(args) > 0 {
		ts.Fatalf("usage: unearthed")
	}
	p := ts.Value(plantedKey{}).(*planted)
	p.mu.Lock()
	defer p.mu.Unlock()
	for _, root := range p.roots {
		ts.Check(filepath.WalkDir(root, func(path string, d fs.DirEntry, err error) error {
			if err == nil && d.Type().IsRegular() {
				content, err := os.ReadFile(path)
				p.search(path, content)
				return err
			}
			return err
		}))
	}
	for _, file := range p.open {
		p.read(file)
	}
	ts.Check(p.problems)
	ts.Logf("%d secrets, %d files, %d others were gone at once, %d secrets found", len(p.secrets),
		len(p.open), len(p.gone), len(p.where))
	unsearched := slices.DeleteFunc(slices.Clone(p.gone), func(path string) bool {
		return strings.Contains(filepath.Base(path), ".castle-") // it became the file after which it is named
	})
	if neg && len(unsearched) > 0 {
		ts.Fatalf("the search has missed %q", unsearched)
	}
	if neg && len(p.where) > 0 {
		places := slices.Compact(slices.Sorted(maps.Values(p.where)))
		ts.Fatalf("%d secrets on the disk: %q", len(p.where), places)
	}
	if !neg && len(p.where) < len(p.secrets) {
		ts.Fatalf("of %d secrets the search has found %d", len(p.secrets), len(p.where))
	}
}

// logged runs castle as a service does whose output goes to a file on the disk: logged CODE ARGS...
func logged(ts *testscript.TestScript, neg bool, args []string) {
	if neg || len(args) < 2 {
		ts.Fatalf("usage: logged code args...")
	}
	shell := []string{args[0], "sh", "-c", `exec castle "$@" >>$WORK/log 2>&1`, "sh"}
	exits(ts, false, append(shell, args[1:]...))
}

// killed kills so many castles at random moments, every second time with the memory of the machine:
// killed COUNT DURATION ARGS...
func killed(ts *testscript.TestScript, neg bool, args []string) {
	if neg || len(args) < 3 {
		ts.Fatalf("usage: killed count duration args...")
	}
	count, err := strconv.Atoi(args[0])
	ts.Check(err)
	longest, err := time.ParseDuration(args[1])
	ts.Check(err)
	args = args[2:]
	ts.Check(ts.Exec("which", "castle"))
	path := strings.TrimSpace(ts.ReadFile("stdout"))
	for i := range count {
		cmd := exec.Command(path, args[1:]...)
		cmd.Dir, cmd.Env = ts.MkAbs("."), environ(ts)
		log, err := os.OpenFile(filepath.Join(ts.Getenv("WORK"), "log"),
			os.O_APPEND|os.O_CREATE|os.O_WRONLY, 0o600)
		ts.Check(err)
		cmd.Stdout, cmd.Stderr = log, log
		ts.Check(cmd.Start())
		after := mathrand.N(longest)
		ended := make(chan struct{})
		go func() {
			_ = cmd.Wait() // it is killed, or was faster
			close(ended)
		}()
		select {
		case <-ended:
		case <-time.After(after):
			_ = cmd.Process.Kill()
			<-ended
		}
		ts.Logf("%s was killed after %v", strings.Join(args, " "), after)
		ts.Check(log.Close())
		if i%2 == 1 {
			ts.Check(os.RemoveAll(filepath.Join(ts.Getenv("XDG_RUNTIME_DIR"), "castle")))
		}
	}
}
