package cluster

import (
	"fmt"
	"io/fs"
	"maps"
	"slices"
	"strings"

	"github.com/hashicorp/hcl/v2"

	"github.com/ephemeral-castle/castle/internal/check"
	"github.com/ephemeral-castle/castle/internal/config"
	"github.com/ephemeral-castle/castle/internal/event"
	"github.com/ephemeral-castle/castle/internal/gate"
	"github.com/ephemeral-castle/castle/internal/kube"
	"github.com/ephemeral-castle/castle/internal/longhorn"
	"github.com/ephemeral-castle/castle/internal/platform"
	"github.com/ephemeral-castle/castle/internal/platform/all"
	"github.com/ephemeral-castle/castle/internal/postgres"
	"github.com/ephemeral-castle/castle/internal/probe"
	"github.com/ephemeral-castle/castle/internal/revision"
	"github.com/ephemeral-castle/castle/internal/secret"
	"github.com/ephemeral-castle/castle/internal/secretstore/infisical"
	"github.com/ephemeral-castle/castle/internal/secretstore/vault"
	"github.com/ephemeral-castle/castle/internal/state"
	"github.com/ephemeral-castle/castle/internal/state/keys"
	"github.com/ephemeral-castle/castle/internal/survivor"
	"github.com/ephemeral-castle/castle/internal/syntax"
	"github.com/ephemeral-castle/castle/internal/tailscale"
	"github.com/ephemeral-castle/castle/internal/talos"
	"github.com/ephemeral-castle/castle/internal/terraform"
)

// Reporter shows a run's events to the user. The run calls it for one event at a time.
type Reporter interface{ Report(event.Event) }

// Options select a cluster and hold the flags that all commands share.
type Options struct {
	Repository string            // the castle repository's root; empty with Recorded if there is none
	Cluster    string            // "blue" or "blue/proxmox"
	StateDir   string            // --state-dir; empty: from Environ
	Vars       map[string]string // --var
	VarFiles   []string          // --var-file
	Environ    []string          // the caller's environment
	// Parallelism bounds how many Terraform processes run at a time; 0 means 4.
	Parallelism int
	Reporter    Reporter
	// OnCommand is called before each Terraform command of a stage. It returns variables for the command's
	// environment; end is called with the command's masked error, if it has one. nil without tracing.
	OnCommand func(layer, stage, command string) (environ map[string]string, end func(failure string))
	// Ending maps a run's error, nil if it had none, to its result, its exit code and the command that
	// resumes it. Without it every error is a failure.
	Ending      func(error) event.Ending
	Version     string // castle's own
	CommandLine string // that castle was started with, without values of --var
	Library     fs.FS  // the embedded stages
	Templates   fs.FS  // the embedded templates
	// Recorded tolerates an invalid configuration for a command that works from
	// the records: see Cluster.InvalidConfig.
	Recorded bool
	// AnyPlace tolerates a state that is not where the configuration says, for a command about its place. The
	// state directory is not brought to the newest commit.
	AnyPlace bool
	GitOps   string // the folder of Flux's repository; overrides the cluster's own
}

// Load reads the cluster's configuration. The error is a *ConfigError if it is invalid.
func (o Options) Load() (*config.Cluster, error) {
	cluster, diags := config.Load(o.Config())
	if diags.HasErrors() {
		return cluster, &ConfigError{Diagnostics: diags, Files: cluster.Files}
	}
	return cluster, nil
}

// Config returns the options to read the cluster's configuration with.
func (o Options) Config() config.Options {
	return config.Options{
		Repository: o.Repository, Cluster: o.Cluster,
		Vars: o.Vars, VarFiles: o.VarFiles, Environ: o.Environ,
		Gates: GateTypes(), Preflights: PreflightTypes(), Exists: ExistsTypes(), Survivors: SurvivorTypes(),
		Library: o.Library, Templates: o.Templates, CastleVersion: o.Version, GitOps: o.GitOps,
	}
}

// ProgramEnviron returns the environment in which the chosen program finds its own configuration.
func (o Options) ProgramEnviron() []string {
	return terraform.Configured(o.Environ, func() string { return config.ReadProgram(o.Config()) })
}

// GateTypes returns every type of gate that a stage may use.
func GateTypes() []gate.Type {
	return slices.Concat(kube.GateTypes(), talos.GateTypes(), probe.GateTypes(), tailscale.GateTypes())
}

// SurvivorTypes returns every type of data that may outlive a cluster.
func SurvivorTypes() []survivor.Type { return []survivor.Type{longhorn.Type(), postgres.Type()} }

// Births is the document of how the cluster's data began.
func (c *Cluster) Births() state.Document[survivor.Births] {
	return state.ClusterDocument[survivor.Births](c.Dir, "births")
}

// Platforms returns every platform that machines may stand on.
func Platforms() platform.Set { return all.Platforms() }

// Identities tell how a plan identifies the objects of platforms and secret stores, by type.
func Identities() map[string]terraform.Identity {
	all := map[string]terraform.Identity{
		"infisical_secret":                         {ID: "{workspace_id}:{env_slug}:{folder_path}:{name}"},
		"vault_mount":                              {ID: "{path}"},
		"vault_jwt_auth_backend":                   {ID: "{path}"},
		"vault_policy":                             {ID: "{name}"},
		"vault_jwt_auth_backend_role":              {ID: "auth/{backend}/role/{role_name}"},
		"vault_kv_secret_v2":                       {ID: "{mount}/data/{name}"},
		"vault_database_secret_backend_connection": {ID: "{backend}/config/{name}"},
		"vault_database_secret_backend_role":       {ID: "{backend}/roles/{name}"},
	}
	for _, p := range Platforms() {
		maps.Copy(all, p.Identities())
	}
	return all
}

// PreflightTypes returns every type of preflight that a stage may use.
func PreflightTypes() []gate.PreflightType {
	types := slices.Concat(talos.PreflightTypes(), vault.PreflightTypes(), tailscale.PreflightTypes())
	for _, p := range Platforms() {
		types = append(types, p.Preflights()...)
	}
	return types
}

// PreflightMaintenance is the preflight of machines that exist already.
const PreflightMaintenance = talos.PreflightMaintenance

// ExistsTypes returns every type of lookup that an adoption may use.
func ExistsTypes() []gate.ExistsType {
	return slices.Concat(infisical.ExistsTypes(), kube.ExistsTypes(), talos.ExistsTypes())
}

// RevisionSystems returns every system that reads revisions of a stage's objects.
func RevisionSystems() []revision.System {
	systems := []revision.System{kube.Revisions(), infisical.Revisions(), vault.Revisions()}
	for _, p := range Platforms() {
		systems = append(systems, p.Revisions())
	}
	return systems
}

// The layers that exist before the cluster, and the platform's outputs that give access to it.
const (
	SecretsLayer      = "secrets"
	PlatformLayer     = "platform"
	KubeconfigOutput  = "kubeconfig"
	TalosconfigOutput = "talosconfig"
	MachinesOutput    = "machines"        // role, address and reset of each machine, by name
	InstanceOutput    = "instance"        // what changes with each machine, by name
	LeasesOutput      = "leases"          // the addresses that a DHCP server has given, by name
	LoginsOutput      = "database_logins" // of the secrets layer: the login role that clients use, by user
	AlternateLogin    = "-alt"            // ends the name of a database user's second login role
)

// Check validates the named clusters, or all, offline. It ignores Cluster, Reporter and Recorded of o.
func Check(o Options, clusters ...string) (*check.Report, error) {
	root, err := state.Root(o.StateDir, o.Environ)
	if err != nil {
		return nil, err
	}
	if err := OutOfTree(root, o.Repository); err != nil {
		return nil, err
	}
	return check.Run(check.Options{Config: o.Config(), Clusters: clusters, StateDir: root})
}

// CheckConfig checks the configuration before a run changes anything. It returns warnings.
func (c *Cluster) CheckConfig() ([]string, error) {
	diags, err := check.Loaded(c.Config, c.Options.Config())
	if err != nil {
		return nil, err
	}
	if diags.HasErrors() {
		return nil, &ConfigError{Diagnostics: diags, Files: c.Config.Files}
	}
	var warnings []string
	for _, d := range diags {
		place := ""
		if d.Subject != nil {
			place = syntax.Place(*d.Subject) + ": "
		}
		warnings = append(warnings, fmt.Sprintf("warning: %s%s. %s", place, d.Summary, d.Detail))
	}
	return warnings, nil
}

// NewMasker returns a masker of what is secret before a run: values of the configuration, and the credentials
// that providers take from the environment.
func (o Options) NewMasker(configured *config.Cluster) *secret.Masker {
	m := &secret.Masker{}
	m.Add(configured.Secrets()...)
	for _, entry := range terraform.ProviderEnv(o.Environ) {
		if name, value, _ := strings.Cut(entry, "="); secret.LikelyName(name) {
			m.Add(value)
		}
	}
	identities, _ := keys.FromEnviron(o.Environ) //nolint:errcheck // OpenStore reports it
	for word := range strings.FieldsSeq(identities) {
		if strings.HasPrefix(word, "AGE-") { // the rest are comments
			m.Add(word)
		}
	}
	return m
}

// ConfigError holds all errors of a configuration.
type ConfigError struct {
	Diagnostics hcl.Diagnostics
	Files       map[string]*hcl.File // for quoting the lines
}

func (e *ConfigError) Error() string { return e.Diagnostics.Error() }

// UsageError reports a request that castle cannot carry out as given.
type UsageError struct{ Message string }

func (e *UsageError) Error() string { return e.Message }

// Usagef returns a *UsageError.
func Usagef(format string, args ...any) error { return &UsageError{fmt.Sprintf(format, args...)} }
