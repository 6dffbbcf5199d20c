package terraform

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"testing/fstest"
	"time"

	"github.com/ephemeral-castle/castle/internal/atomicfile"
	"github.com/ephemeral-castle/castle/internal/providers"
)

func initialise(t *testing.T, r *Root) {
	t.Helper()
	if err := r.Init(t.Context()); err != nil {
		t.Fatal(err)
	}
}

func TestInitRunsAgainOnlyIfItsInputsHaveChanged(t *testing.T) {
	r, home := fake(t)
	config := filepath.Join(home, "terraformrc")
	writeFile(t, config, "1")
	r.Env = append(r.Env, "TF_CLI_CONFIG_FILE="+config)
	module := fstest.MapFS{"main.tf": file("1"), "chart/values.yaml": file("1")}
	runs := 0
	expect := func(what string, more int) {
		t.Helper()
		materialise(t, r, module, Override{})
		initialise(t, r)
		lines, _ := calls(t, home)
		if len(lines) != runs+more {
			t.Errorf("%s: init ran %d times more, want %d", what, len(lines)-runs, more)
		}
		runs = len(lines)
	}
	expect("first", 1)
	expect("nothing changed", 0)
	module["chart/values.yaml"] = file("2")
	expect("a file that init does not read", 0)
	module["modules/sub/main.tf"] = file("1")
	expect("configuration", 1)
	writeFile(t, config, "2")
	expect("command line configuration", 1)
	writeFile(t, filepath.Join(r.Dir, ".terraform.lock.hcl"), "changed")
	expect("lock file", 1)
	r.Binary.Version = "1.14.9"
	expect("Terraform", 1)
	link := filepath.Join(r.Dir, ".terraform/providers/example.com/a/b/1.0.0/linux_amd64")
	writeFile(t, filepath.Join(filepath.Dir(link), "x"), "")
	if err := os.Symlink(filepath.Join(r.PluginCache, "gone"), link); err != nil {
		t.Fatal(err)
	}
	expect("provider gone from the cache", 1)
	writeFile(t, filepath.Join(r.Dir, ".terraform/terraform.tfstate"), `{"version": 3, "backend": {"ty`)
	expect("a power cut", 1)

	lines, all := calls(t, home)
	want := "init -no-color -input=false -backend=true -get=true -upgrade=false -reconfigure -json"
	if lines[0] != want {
		t.Errorf("got %q, want %q", lines[0], want)
	}
	if !strings.Contains(strings.Join(all[0].Env, "\n"), "TF_PLUGIN_CACHE_DIR="+r.PluginCache) {
		t.Errorf("init does not use the plugin cache: %q", all[0].Env)
	}
}

func TestInitThatFailedRunsAgain(t *testing.T) {
	r, home := fake(t)
	materialise(t, r, fstest.MapFS{}, Override{})
	writeFile(t, filepath.Join(home, "init.do"), "")
	writeFile(t, filepath.Join(home, "init.exit"), "1")
	writeFile(t, filepath.Join(home, "init.out"), quota)
	var failed *Error
	if err := r.Init(t.Context()); !errors.As(err, &failed) || failed.Command != "init" {
		t.Fatalf("got %v", err)
	}
	writeFile(t, filepath.Join(home, "init.do"), "init")
	initialise(t, r)
}

// sharedLock is the providers of a cluster.
type sharedLock struct{ providers.Lock }

func (l sharedLock) Locked() (providers.Lock, error) { return l.Lock, nil }
func (l sharedLock) Record(providers.Lock) error     { return nil }
func (l sharedLock) Name() string                    { return "" }
func (l sharedLock) Upgrade() string                 { return "" }

func TestInitThatFailedLeavesTheLockFileAsItWas(t *testing.T) {
	const own = `provider "registry.terraform.io/hashicorp/helm" {
  version = "3.1.1"
}
`
	for name, before := range map[string]string{"there": own, "absent": ""} {
		r, home := fake(t)
		materialise(t, r, fstest.MapFS{}, Override{})
		r.Providers = sharedLock{providers.Lock{"registry.terraform.io/bpg/proxmox": {Version: "0.111.1"}}}
		if before != "" {
			writeFile(t, r.lockPath(), before)
		}
		writeFile(t, filepath.Join(home, "init.do"), "")
		writeFile(t, filepath.Join(home, "init.exit"), "1")
		writeFile(t, filepath.Join(home, "init.out"), quota)
		if err := r.Init(t.Context()); err == nil {
			t.Fatal("no error")
		}
		if got, _ := os.ReadFile(r.lockPath()); string(got) != before {
			t.Errorf("%s: got %q, want %q", name, got, before)
		}
	}
}

func TestInitsTakeTurnsAtThePluginCache(t *testing.T) {
	var all sync.WaitGroup
	cache := filepath.Join(t.TempDir(), "plugins")
	for range 4 {
		r, _ := fake(t)
		r.PluginCache = cache
		materialise(t, r, fstest.MapFS{}, Override{})
		all.Go(func() {
			if err := r.Init(t.Context()); err != nil { // the fake fails if it is not alone
				t.Error(err)
			}
		})
	}
	all.Wait()
}

// initBeside begins an init while another one has the plugin cache, and returns when only that keeps it
// waiting.
func initBeside(ctx context.Context, t *testing.T) (unlock func() error, ended <-chan error, home string) {
	t.Helper()
	r, home := fake(t)
	materialise(t, r, fstest.MapFS{}, Override{})
	unlock, err := atomicfile.Lock(t.Context(), r.PluginCache+".lock")
	if err != nil {
		t.Fatal(err)
	}
	done := make(chan error, 1)
	go func() { done <- r.Init(ctx) }()
	late := time.After(10 * time.Second)
	for !exists(filepath.Join(home, "version.asked")) {
		select {
		case err := <-done:
			t.Fatalf("ended with %v", err)
		case <-late:
			t.Fatal("it does not ask for the version")
		case <-time.After(time.Millisecond):
		}
	}
	return unlock, done, home
}

// terraform-exec asks for the version before an init, which takes nearly as long.
func TestInitKeepsNoOtherInitWaitingForTheVersion(t *testing.T) {
	unlock, ended, home := initBeside(t.Context(), t)
	if lines, _ := calls(t, home); len(lines) != 0 {
		t.Errorf("while another init has the plugin cache: %q", lines)
	}
	if err := errors.Join(unlock(), <-ended); err != nil {
		t.Fatal(err)
	}
	if lines, _ := calls(t, home); len(lines) != 1 {
		t.Errorf("calls: %q", lines)
	}
}

func TestInitWaitingForAnotherOneCanBeCancelled(t *testing.T) {
	ctx, cancel := context.WithCancelCause(t.Context())
	unlock, ended, home := initBeside(ctx, t)
	cause := errors.New("enough")
	cancel(cause)
	if err := <-ended; !errors.Is(err, cause) {
		t.Errorf("got %v", err)
	}
	if lines, _ := calls(t, home); len(lines) != 0 {
		t.Errorf("calls: %q", lines)
	}
	if err := unlock(); err != nil {
		t.Fatal(err)
	}
}

func TestInitRefusesAModuleThatKeepsItsStateElsewhere(t *testing.T) {
	r, home := fake(t)
	materialise(t, r, fstest.MapFS{"zz_override.tf": file("backend")}, Override{})
	writeFile(t, filepath.Join(home, "backend"), "/somewhere/else")
	if err := r.Init(t.Context()); err == nil || !strings.Contains(err.Error(), "keeps its state elsewhere") {
		t.Errorf("got %v", err)
	}
}

func TestInitUpgradesALockFileThatTheModuleDoesNotShip(t *testing.T) {
	const outdated = `{"type":"diagnostic","diagnostic":{"severity":"error","summary":"Failed to query ` +
		`available provider packages","detail":"locked provider x 1.0 does not match configured version ` +
		`constraint ~> 2; must use\nterraform init -upgrade to allow selection of new versions"}}`
	for _, test := range []struct {
		module fstest.MapFS
		want   int
	}{
		{fstest.MapFS{}, 2},
		{fstest.MapFS{".terraform.lock.hcl": file("shipped")}, 1},
	} {
		r, home := fake(t)
		materialise(t, r, test.module, Override{})
		writeFile(t, filepath.Join(home, "init.do"), "")
		writeFile(t, filepath.Join(home, "init.exit"), "1")
		writeFile(t, filepath.Join(home, "init.out"), outdated)
		if err := r.Init(t.Context()); err == nil {
			t.Error("no error")
		}
		lines, _ := calls(t, home)
		if len(lines) != test.want || strings.Contains(lines[len(lines)-1],
			"-upgrade=true") != (test.want == 2) {
			t.Errorf("calls: %q", lines)
		}
	}
}

func TestProviderVersionsComeFromTheLockFile(t *testing.T) {
	r, _ := fake(t)
	if got, err := r.ProviderVersions(); err != nil || len(got) != 0 {
		t.Errorf("before init: %v, %v", got, err)
	}
	writeFile(t, filepath.Join(r.Dir, ".terraform.lock.hcl"), `
provider "registry.terraform.io/hashicorp/helm" {
  version     = "3.1.1"
  constraints = "~> 3.1"
  hashes      = ["zh:b", "h1:a"]
}
provider "registry.terraform.io/hashicorp/tls" {
  version = "4.2.0"
}`)
	got, err := r.ProviderVersions()
	if err != nil || len(got) != 2 || got["registry.terraform.io/hashicorp/helm"] != "3.1.1" {
		t.Errorf("got %q, %v", got, err)
	}
}
