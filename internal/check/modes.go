package check

import (
	"os"
	"path"
	"path/filepath"

	"github.com/hashicorp/hcl/v2"
)

// others are the permissions of everybody but the owner.
const others = 0o077

// file is a place that is a whole file or folder.
func file(name string) hcl.Range {
	return hcl.Range{Filename: name, Start: hcl.InitialPos, End: hcl.InitialPos}
}

// configsMode looks at the exported kubeconfig and talosconfig: who has them has the cluster.
func configsMode(c *cluster, report reporter) {
	dir, shown := filepath.Join(c.config.Dir, "configs"), path.Join("clusters", c.config.Name, c.config.Platform, "configs")
	info, err := os.Stat(dir)
	if err != nil || !info.IsDir() {
		return // nothing has been exported yet
	}
	if mode := info.Mode().Perm(); mode&others != 0 {
		report(file(shown), "configs: open to others", "The mode of %s is %04o and must be 0700. Run chmod 700 %s", shown, mode, shown)
	}
	entries, err := os.ReadDir(dir)
	if err != nil {
		return // castle itself will say so when it writes there
	}
	for _, e := range entries {
		info, err := e.Info()
		if err == nil && info.Mode().IsRegular() && info.Mode().Perm()&others != 0 {
			name := path.Join(shown, e.Name())
			report(file(name), e.Name()+": readable by others", "Its mode is %04o and must be 0600. Run chmod 600 %s", info.Mode().Perm(), name)
		}
	}
}

// stateMode looks at castle's state, which holds every secret of the cluster.
func stateMode(c *cluster, report reporter) {
	if c.stateDir == "" {
		return
	}
	for _, dir := range []string{c.stateDir, filepath.Join(c.stateDir, c.config.Name), filepath.Join(c.stateDir, c.config.Name, c.config.Platform)} {
		info, err := os.Stat(dir)
		if err == nil && info.Mode().Perm()&others != 0 {
			report(file(dir), "state directory: open to others", "Its mode is %04o and must be 0700: it holds every secret of the cluster. Run chmod 700 %s", info.Mode().Perm(), dir)
		}
	}
}
