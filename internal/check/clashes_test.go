package check_test

import (
	"maps"
	"slices"
	"testing"

	"github.com/ephemeral-castle/castle/internal/check"
	"github.com/ephemeral-castle/castle/internal/config"
)

func TestClustersThatClashAreFoundOnceForAll(t *testing.T) {
	dir := t.TempDir()
	write(t, dir, archive(t, "testdata/base.txtar"))
	if found := check.Clashes(options(dir).Config); len(found) > 0 {
		t.Error(found)
	}
	for _, rule := range []string{"vm-id-shared", "vip-shared", "pools-shared"} {
		dir := t.TempDir()
		write(t, dir, archive(t, "testdata/base.txtar"), archive(t, "testdata/rules/"+rule+".txtar"))
		found := check.Clashes(options(dir).Config)
		if !slices.Equal(slices.Sorted(maps.Keys(found)), []string{"blue/proxmox", "green/proxmox"}) {
			t.Errorf("%s: %v", rule, found)
		}
		// A castle that was told so loads no other cluster.
		for _, environ := range [][]string{nil, {check.Compared + "=1"}} {
			o := options(dir).Config
			o.Cluster, o.Environ = "green", environ
			green, diags := config.Load(o)
			if diags.HasErrors() {
				t.Fatal(diags)
			}
			diags, err := check.Loaded(green, o)
			if err != nil || diags.HasErrors() != (environ == nil) {
				t.Errorf("%s with %v: %v, %v", rule, environ, diags, err)
			}
		}
	}
}
