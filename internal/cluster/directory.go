package cluster

import (
	"fmt"
	"path/filepath"
	"strings"

	"github.com/ephemeral-castle/castle/internal/state"
)

// recordedName finds a cluster that is recorded but no longer configured; "" if there is none.
func recordedName(root, reference string) (name, platform string, err error) {
	all, err := state.Clusters(root)
	if err != nil {
		return "", "", err
	}
	var found []string
	for _, cluster := range all {
		if cluster == reference || strings.HasPrefix(cluster, reference+"/") {
			found = append(found, cluster)
		}
	}
	if len(found) > 1 {
		return "", "", &UsageError{
			Message: fmt.Sprintf("cluster %q: several are recorded; say %s", reference,
				strings.Join(found, " or ")),
		}
	}
	if len(found) == 1 {
		name, platform, _ = strings.Cut(found[0], "/")
	}
	return name, platform, nil
}

// OutOfTree refuses a state directory inside the repository: `git clean` would delete it, and with it the
// record of all objects.
func OutOfTree(root, repository string) error {
	if repository == "" {
		return nil
	}
	in, err := filepath.Rel(repository, root)
	if err == nil && filepath.IsLocal(in) {
		return &UsageError{Message: fmt.Sprintf("state directory %s lies inside the repository %s, "+
			"where `git clean` would destroy it; choose another with --state-dir or CASTLE_STATE_DIR",
			root, repository)}
	}
	return nil
}

// Shared returns a folder of the state root that all clusters use.
func (c *Cluster) Shared(name string) string {
	return filepath.Join(filepath.Dir(filepath.Dir(c.Dir.Path())), name)
}
