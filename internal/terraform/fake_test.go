package terraform

import (
	"bytes"
	"encoding/json"
	"fmt"
	"os"
	"os/signal"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"
)

// TestMain makes this binary a Terraform when it is called by that name. The fake reads its behaviour for a
// command from files beside it: <command>.out and .err are its output, .exit is its exit code, .do names a
// special behaviour. It records its calls in the file calls.
func TestMain(m *testing.M) {
	if name := filepath.Base(os.Args[0]); name == "terraform" || name == "tofu" {
		// os.Exit would take a second when the tests look for races.
		syscall.Exit(fakeTerraform(filepath.Dir(os.Args[0]), os.Args[1:]))
	}
	if os.Getenv("CASTLE_TEST_TERMINAL") != "" {
		os.Exit(execAtTerminal())
	}
	os.Exit(m.Run())
}

type call struct {
	Args []string
	Env  []string
	Dir  string
}

func fakeTerraform(home string, args []string) int {
	reply := func(name string) []byte {
		data, _ := os.ReadFile(filepath.Join(home, name)) // none is an empty one
		return data
	}
	if args[0] == "version" {
		if number, is := strings.CutPrefix(string(reply("version")), "Terraform v"); is && len(args) == 2 {
			fmt.Printf(`{"terraform_version":%q}`, number)
			_ = os.WriteFile(filepath.Join(home, "version.asked"), nil, 0o600) // a test looks for it
			return 0
		}
		os.Stdout.Write(append(reply("version"), "\non linux_amd64\n"...))
		return 0
	}
	dir, _ := os.Getwd()
	line, _ := json.Marshal(call{args, os.Environ(), dir})
	calls, err := os.OpenFile(filepath.Join(home, "calls"), os.O_APPEND|os.O_CREATE|os.O_WRONLY, 0o600)
	if err == nil {
		_, err = calls.Write(append(line, '\n'))
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 9
	}
	os.Stdout.Write(reply(args[0] + ".out"))
	os.Stderr.Write(reply(args[0] + ".err"))
	switch string(reply(args[0] + ".do")) {
	case "init":
		return fakeInit(home)
	case "wait for interrupt":
		interrupted := make(chan os.Signal, 2)
		signal.Notify(interrupted, os.Interrupt)
		fmt.Println(`{"@message":"a.b: ` +
			`Creating...","type":"apply_start","hook":{"resource":{"addr":"a.b","resource_type":"a"},` +
			`"action":"create"}}`)
		<-interrupted
		select { // a second one would be one too many
		case <-interrupted:
			fmt.Println("Two interrupts received")
		case <-time.After(300 * time.Millisecond):
			fmt.Println("Interrupted once")
		}
		return 1
	case "ignore interrupts":
		signal.Ignore(os.Interrupt)
		fmt.Println(`{"@message":"a.b: ` +
			`Creating...","type":"apply_start","hook":{"resource":{"addr":"a.b","resource_type":"a"},` +
			`"action":"create"}}`)
		select {}
	}
	code, _ := strconv.Atoi(string(reply(args[0] + ".exit")))
	return code
}

var backendPath = regexp.MustCompile(`path = "(.*)"`)

// fakeInit fails if another one is using the plugin cache, and chooses the
// backend that the override names.
func fakeInit(home string) int {
	busy := filepath.Join(os.Getenv("TF_PLUGIN_CACHE_DIR"), "busy")
	f, err := os.OpenFile(busy, os.O_CREATE|os.O_EXCL, 0o600)
	if err != nil {
		fmt.Fprintln(os.Stderr, "Error: text file busy")
		return 1
	}
	defer os.Remove(busy)
	defer f.Close()
	<-time.After(30 * time.Millisecond) // another init that does not wait comes in between
	override, err := os.ReadFile("castle_override.tf")
	if err != nil {
		return 8
	}
	path := backendPath.FindSubmatch(override)[1]
	if other, err := os.ReadFile(filepath.Join(home, "backend")); err == nil {
		path = other
	}
	state := fmt.Sprintf(`{"backend":{"type":"local","config":{"path":%q}}}`, path)
	if err := os.WriteFile(filepath.Join(os.Getenv("TF_DATA_DIR"), "terraform.tfstate"), []byte(state),
		0o600); err != nil {
		return 8
	}
	return 0
}

// fake is a root that runs the fake, and the folder in which it lies.
func fake(t *testing.T) (*Root, string) {
	t.Helper()
	home := t.TempDir()
	self, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	path := filepath.Join(home, "terraform")
	if err := os.Symlink(self, path); err != nil {
		t.Fatal(err)
	}
	writeFile(t, filepath.Join(home, "version"), "Terraform v1.11.4")
	writeFile(t, filepath.Join(home, "init.do"), "init")
	work := t.TempDir()
	r := &Root{
		Binary: Binary{Path: path, Version: "1.11.4"},
		Dir:    filepath.Join(work, "work"), StatePath: filepath.Join(work, "terraform.tfstate"),
		PluginCache: filepath.Join(work, "plugins"),
		Env:         []string{"PATH=" + os.Getenv("PATH"), "HOME=" + work},
		Run:         "run-" + filepath.Base(work),
	}
	if err := os.Mkdir(r.Dir, 0o700); err != nil {
		t.Fatal(err)
	}
	return r, home
}

func writeFile(t *testing.T, path, text string) {
	t.Helper()
	if err := os.MkdirAll(filepath.Dir(path), 0o700); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
}

func get(t *testing.T, path string) string {
	t.Helper()
	data, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	return string(data)
}

// calls returns the calls of the fake, as command lines.
func calls(t *testing.T, home string) (lines []string, all []call) {
	t.Helper()
	data, err := os.ReadFile(filepath.Join(home, "calls"))
	if os.IsNotExist(err) {
		return nil, nil
	}
	if err != nil {
		t.Fatal(err)
	}
	for line := range bytes.Lines(data) {
		var c call
		if err := json.Unmarshal(line, &c); err != nil {
			t.Fatal(err)
		}
		all = append(all, c)
		lines = append(lines, strings.Join(c.Args, " "))
	}
	return lines, all
}

// running is the stream of a command of this root.
func running(r *Root) *stream {
	r.operation.begin("apply")
	return &stream{root: r}
}
