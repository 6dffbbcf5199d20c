package castle

import (
	"github.com/ephemeral-castle/castle/internal/check"
	"github.com/ephemeral-castle/castle/internal/config"
	"github.com/ephemeral-castle/castle/internal/state"
)

// Check judges configurations without running or asking anything: the clusters
// named, or every one of the repository. Cluster, Reporter and Recorded of o do not matter.
func Check(o Options, clusters ...string) (*check.Report, error) {
	root, err := state.Root(o.StateDir, o.Environ)
	if err != nil {
		return nil, err
	}
	if err := outOfTree(root, o.Repository); err != nil {
		return nil, err
	}
	return check.Run(check.Options{Config: o.config(), Clusters: clusters, StateDir: root})
}

// config is how a cluster's configuration is read.
func (o Options) config() config.Options {
	return config.Options{
		Repository: o.Repository, Cluster: o.Cluster,
		Vars: o.Vars, VarFiles: o.VarFiles, Environ: o.Environ,
		Gates: GateTypes(), Preflights: PreflightTypes(), Exists: ExistsTypes(),
		Library: o.Library, Templates: o.Templates, CastleVersion: o.Version, GitOps: o.GitOps,
	}
}
