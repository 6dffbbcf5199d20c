package rehearsal

import (
	"maps"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/ephemeral-castle/castle/lab/internal/datacenter"
	"github.com/ephemeral-castle/castle/lab/internal/operators/upstream"
)

func TestRealControllersRunWhereTheyAreBuiltAndTheLastLineTells(t *testing.T) {
	bin := t.TempDir()
	folder := filepath.Join(bin, upstream.Folder)
	chosen := func(flag string, frozen bool) (string, error) {
		p := &plan{Options: Options{Controllers: flag}, Faults: datacenter.Faults{Frozen: frozen}}
		err := p.controllers(bin)
		return p.Controllers, err
	}
	if got, err := chosen("", false); got != "" || err != nil {
		t.Errorf("not built: %q, %v", got, err)
	}
	if _, err := chosen("real", false); err == nil || !strings.Contains(err.Error(), "run `make real`") {
		t.Errorf("not built, and requested: %v", err)
	}
	check(t, os.Mkdir(folder, 0o700))
	for name := range maps.All(upstream.Releases()) {
		check(t, os.WriteFile(filepath.Join(folder, name), nil, 0o700))
	}
	if got, _ := chosen("", false); got != "" {
		t.Error("without definitions they are not complete")
	}
	for _, chart := range []string{"flux2", "metallb"} {
		check(t, os.WriteFile(filepath.Join(folder, chart+".yaml"), nil, 0o600))
	}
	for _, c := range []struct {
		flag   string
		frozen bool
		want   string
	}{{"", false, folder}, {"real", false, folder}, {"standin", false, ""}, {"", true, ""}} {
		if got, err := chosen(c.flag, c.frozen); got != c.want || err != nil {
			t.Errorf("%+v: %q, %v", c, got, err)
		}
	}
	if _, err := chosen("real", true); err == nil || !strings.Contains(err.Error(), "needs standin") {
		t.Errorf("a fault that only the double has: %v", err)
	}
	p := &plan{Controllers: folder, Work: t.TempDir()}
	if got := p.played(); !strings.Contains(got, "no real controller ran") {
		t.Errorf("last line of a cluster without Flux: %s", got)
	}
	check(t, os.Mkdir(p.path(datacenter.ControllerLogs), 0o700))
	check(t, os.WriteFile(p.path(datacenter.ControllerLogs, "helm-controller.log"), nil, 0o600))
	if got := p.played(); !strings.Contains(got, "real: helm-controller v1.6.4;") {
		t.Errorf("last line: %s", got)
	}
	if got := (&plan{}).played(); !strings.Contains(got, "doubles") {
		t.Errorf("last line: %s", got)
	}
}
