// Package terraform runs Terraform in one stage's private work directory. It is
// the only user of terraform-exec and hc-install.
package terraform

import (
	"context"
	"errors"
	"io"
	"io/fs"
	"time"

	"github.com/zclconf/go-cty/cty"
)

// Binary is the Terraform that castle runs.
type Binary struct{ Path, Version, SHA256 string }

// Find returns the Terraform on PATH if it is recent enough; otherwise one that
// it keeps in cacheDir and, the first time, downloads and verifies there.
func Find(ctx context.Context, cacheDir string, notice func(string)) (Binary, error) {
	return Binary{}, errors.New("not there yet")
}

// Root is one stage's root module in its work directory. It runs one command at a time.
type Root struct {
	Binary
	Dir         string        // the work directory: the module's copy
	StatePath   string        // absolute
	DataDir     string        // TF_DATA_DIR; Dir/.terraform if empty
	PluginCache string        // shared by all roots; used by Init only
	Env         []string      // the caller's environment; only what is allow-listed reaches Terraform
	Run         string        // the run's id, CASTLE_RUN of every child
	Log         io.Writer     // hears everything that Terraform says, as text; masked by the caller
	OnResource  func(Change)  // hears what happens to each resource, one call at a time
	Parallelism int           // Terraform's own default if zero
	WaitDelay   time.Duration // from cancellation until Terraform is killed; default 30 minutes
}

// Override is what castle adds to a module.
type Override struct {
	InCluster  []string             // source addresses of the providers whose block castle writes
	Kubeconfig string               // absolute path that those blocks name
	Inputs     map[string]cty.Value // nil keeps the inputs that are there
}

// Phase says how far a change of one resource has come.
type Phase string

// The phases of a Change.
const (
	Planned Phase = "planned"
	Started Phase = "started"
	Running Phase = "running" // sent every ten seconds
	Done    Phase = "done"
	Failed  Phase = "failed"
)

// Change is what Terraform does to one resource instance.
type Change struct {
	Address  string // module.a.helm_release.b["c"]
	Type     string // helm_release
	Provider string // as the type names it: helm
	Action   string // create update delete replace read import forget
	Phase    Phase
	ID       string  // the object's id, once Done says it
	Seconds  float64 // since Started
}

// PlanOptions narrow a plan.
type PlanOptions struct {
	Destroy bool
	Targets []string
}

// Plan is a saved plan: one file that only Apply reads, and only once.
type Plan struct {
	File    string
	Changes []Change // in Terraform's order, without what stays as it is
	Empty   bool     // no resource and no output would change
	Destroy bool
}

// Discard deletes the plan's file. Apply does so itself.
func (p *Plan) Discard() error { return nil }

// ErrNoSuchObject says that there is nothing to import.
var ErrNoSuchObject = errors.New("no such object")

// ErrStateLocked says that another process holds the state's lock.
var ErrStateLocked = errors.New("state locked")

// ErrStalePlan says that the state has changed since the plan was made.
var ErrStalePlan = errors.New("stale plan")

// Materialise writes module and castle's own files to the work directory. A nil
// module keeps the files that are there, for stages that are no longer configured.
func (r *Root) Materialise(module fs.FS, o Override) error { return errors.New("not there yet") }

// Init runs terraform init if what it depends on has changed since the last time.
func (r *Root) Init(ctx context.Context) error { return errors.New("not there yet") }

// Validate runs terraform validate.
func (r *Root) Validate(ctx context.Context) error { return errors.New("not there yet") }

// Plan saves a plan in the work directory.
func (r *Root) Plan(ctx context.Context, o PlanOptions) (*Plan, error) {
	return nil, errors.New("not there yet")
}

// Apply applies exactly p and deletes it. A nil p plans and applies in one go.
func (r *Root) Apply(ctx context.Context, p *Plan) error { return errors.New("not there yet") }

// Import makes the object with the given id the resource at address. It returns
// an error that is ErrNoSuchObject if there is none.
func (r *Root) Import(ctx context.Context, address, id string) error {
	return errors.New("not there yet")
}

// Forget removes addresses from the state and touches nothing else.
func (r *Root) Forget(ctx context.Context, addresses ...string) error {
	return errors.New("not there yet")
}

// ProviderHashes returns version and checksums of each provider that Init chose, by source address.
func (r *Root) ProviderHashes() (map[string]string, error) { return nil, errors.New("not there yet") }

// Exec runs any Terraform command in the work directory, wired to the caller's
// input and output, and returns its exit code.
func (r *Root) Exec(ctx context.Context, args []string, stdin io.Reader, stdout, stderr io.Writer) (int, error) {
	return 0, errors.New("not there yet")
}

// Kill ends at once whatever runs for this root: Terraform, its providers and their children.
func (r *Root) Kill(ctx context.Context) error { return errors.New("not there yet") }

// ProviderEnv returns those of environ that providers read: for the fingerprint.
func ProviderEnv(environ []string) []string { return nil }
