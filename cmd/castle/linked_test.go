//go:build integration

package main

import (
	"os"
	"os/exec"
	"strings"
	"testing"
)

// TestNoMethodIsCalledByName builds castle as the Makefile does. A function that calls methods by names that
// are not constants, as a template does, makes the linker keep every exported method of every type: castle
// would be 80 MB instead of 58.
func TestNoMethodIsCalledByName(t *testing.T) {
	build := exec.CommandContext(t.Context(), "go", "build", "-tags", "grpcnotrace",
		"-ldflags", "-s -w -dumpdep", "-o", os.DevNull, ".")
	build.Env = append(os.Environ(), "CGO_ENABLED=0")
	out, err := build.CombinedOutput()
	if err != nil {
		t.Fatalf("%v\n%s", err, out[max(0, len(out)-2000):])
	}
	// Each line names a symbol and the first one that it is reached from: "a -> b <ReflectMethod>".
	const flag = "<ReflectMethod>"
	reachedFrom := map[string]string{}
	for line := range strings.Lines(string(out)) {
		from, to, is := strings.Cut(strings.TrimSuffix(line, "\n"), " -> ")
		if !is {
			continue
		}
		from, _, _ = strings.Cut(from, " <")
		symbol, flags, _ := strings.Cut(to, " <")
		if _, known := reachedFrom[symbol]; !known {
			reachedFrom[symbol] = from
		}
		if strings.Contains("<"+flags, flag) {
			chain := []string{symbol}
			for at := symbol; len(chain) < 30 && reachedFrom[at] != ""; at = reachedFrom[at] {
				chain = append(chain, reachedFrom[at])
			}
			t.Fatalf("a method is called by its name, reached from\n\t%s", strings.Join(chain, "\n\t"))
		}
	}
	if _, linked := reachedFrom["main.main"]; !linked {
		t.Fatalf("the linker did not tell what it reaches: %.500s", out)
	}
}
