package terraform

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
)

func TestFindTakesTheFirstTerraformThatIsRecentEnough(t *testing.T) {
	_, old := fake(t)
	_, broken := fake(t)
	_, other := fake(t)
	_, good := fake(t)
	writeFile(t, filepath.Join(old, "version"), "Terraform v1.8.5")
	writeFile(t, filepath.Join(broken, "version"), "segmentation fault")
	writeFile(t, filepath.Join(other, "version"), "OpenTofu v1.12.6")
	writeFile(t, filepath.Join(good, "version"), "Terraform v1.9.0")
	t.Setenv("PATH", strings.Join([]string{"", "relative", t.TempDir(), old, broken, other, good}, ":"))
	var notices []string
	cacheDir := t.TempDir()
	for range 2 { // the second time with the version remembered
		b, err := Find(t.Context(), Terraform, cacheDir, func(n string) { notices = append(notices, n) })
		if err != nil {
			t.Fatal(err)
		}
		if b != (Binary{Path: filepath.Join(good, "terraform"), Version: "1.9.0", Program: "terraform"}) {
			t.Errorf("got %+v", b)
		}
	}
	if len(notices) != 6 || !strings.Contains(notices[0], "1.8.5 is older than 1.9.0") ||
		!strings.Contains(notices[1], broken) ||
		!strings.Contains(notices[2], "it is not Terraform: OpenTofu v1.12.6") {
		t.Errorf("notices: %q", notices)
	}
}

func TestFindTakesOpenTofuWhereItIsChosen(t *testing.T) {
	_, alias := fake(t)
	_, good := fake(t)
	for dir, text := range map[string]string{alias: "Terraform v1.14.0", good: "OpenTofu v1.12.6"} {
		writeFile(t, filepath.Join(dir, "version"), text)
		if err := os.Rename(filepath.Join(dir, "terraform"), filepath.Join(dir, "tofu")); err != nil {
			t.Fatal(err)
		}
	}
	t.Setenv("PATH", alias)
	var notices []string
	notice := func(text string) { notices = append(notices, text) }
	_, err := Find(t.Context(), OpenTofu, t.TempDir(), notice)
	if err == nil || !strings.Contains(err.Error(), "no OpenTofu 1.12.0 or newer on PATH: install it") ||
		len(notices) != 1 || !strings.Contains(notices[0], "it is not OpenTofu: Terraform v1.14.0") {
		t.Errorf("without one: %v, %q", err, notices)
	}
	t.Setenv("PATH", alias+":"+good)
	b, err := Find(t.Context(), OpenTofu, t.TempDir(), notice)
	if err != nil || b != (Binary{filepath.Join(good, "tofu"), "1.12.6", "tofu"}) {
		t.Errorf("got %+v, %v", b, err)
	}
}

func TestCachedBinaryIsValidUntilTheFileChanges(t *testing.T) {
	cacheDir, path := t.TempDir(), filepath.Join(t.TempDir(), "terraform")
	writeFile(t, path, "one")
	if b, ok := cached(cacheDir, path); ok {
		t.Errorf("remembered before it was found: %+v", b)
	}
	found := Binary{path, "1.9.0", "terraform"}
	if err := cache(cacheDir, found); err != nil {
		t.Fatal(err)
	}
	if again, ok := cached(cacheDir, path); !ok || again != found {
		t.Errorf("got %+v, %t, want %+v", again, ok, found)
	}
	writeFile(t, path, "another")
	if b, ok := cached(cacheDir, path); ok {
		t.Errorf("remembered after a change: %+v", b)
	}
	changed := Binary{path, "1.10.0", "terraform"}
	if err := cache(cacheDir, changed); err != nil {
		t.Fatal(err)
	}
	if again, ok := cached(cacheDir, path); !ok || again != changed {
		t.Errorf("after a change: %+v, %t", again, ok)
	}
	writeFile(t, filepath.Join(cacheDir, "found.json"), "{")
	if b, ok := cached(cacheDir, path); ok {
		t.Errorf("remembered from half a file: %+v", b)
	}
}

func TestTwoCastlesInstallOnce(t *testing.T) {
	cacheDir := t.TempDir()
	var mu sync.Mutex
	installs := 0
	install := func(_ context.Context, dir string) (string, error) {
		mu.Lock()
		defer mu.Unlock()
		installs++
		path := filepath.Join(dir, "terraform")
		return path, os.WriteFile(path, []byte("binary"), 0o700)
	}
	var all sync.WaitGroup
	for range 3 {
		all.Go(func() {
			b, err := installed(t.Context(), cacheDir, install)
			if err != nil || b.Version != pinned || b.Path != filepath.Join(cacheDir, pinned, "terraform") {
				t.Errorf("got %+v, %v", b, err)
			}
		})
	}
	all.Wait()
	if installs != 1 {
		t.Errorf("installed %d times", installs)
	}

	writeFile(t, filepath.Join(cacheDir, pinned, "terraform"), "damaged")
	if _, err := installed(t.Context(), cacheDir, install); err != nil || installs != 2 {
		t.Errorf("damaged: installed %d times, %v", installs, err)
	}
	if got := get(t, filepath.Join(cacheDir, pinned, "terraform")); got != "binary" {
		t.Errorf("after damage: %q", got)
	}
}

func TestAnInstallationThatFailsLeavesNothing(t *testing.T) {
	cacheDir := t.TempDir()
	offline := errors.New("no route to host")
	_, err := installed(t.Context(), cacheDir, func(_ context.Context, dir string) (string, error) {
		writeFile(t, filepath.Join(dir, "terraform"), "half")
		return "", offline
	})
	if !errors.Is(err, offline) || !strings.Contains(err.Error(),
		"not on PATH, and the installation failed") {
		t.Errorf("got %v", err)
	}
	entries, err := os.ReadDir(cacheDir)
	if err != nil || len(entries) != 1 || entries[0].Name() != "lock" {
		t.Errorf("left: %v, %v", entries, err)
	}
}
