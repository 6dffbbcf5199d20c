// Package config turns a castle repository into a validated Cluster. It reads files and the given
// environment; it runs nothing and contacts no server. docs/configuration.md describes the files. Load reads
// the files in one pass and evaluates them in another. Both go on after an error, so that every problem is
// reported with its file and line. Values that only a run knows are unknown values. A loader drives the
// steps; inputValues, blockReader and connector hold one step each.
package config

import (
	"io/fs"
	"time"

	"github.com/hashicorp/hcl/v2"

	"github.com/ephemeral-castle/castle/internal/gate"
	"github.com/ephemeral-castle/castle/internal/module"
	"github.com/ephemeral-castle/castle/internal/survivor"
)

// Options configure Load.
type Options struct {
	// the repository's root, as FindRepository returns it; empty: there is none
	Repository    string
	Cluster       string            // "blue" or "blue/proxmox"
	Vars          map[string]string // --var NAME=VALUE
	VarFiles      []string          // --var-file
	Environ       []string          // os.Environ(): TF_VAR_NAME=VALUE
	Gates         []gate.Type
	Preflights    []gate.PreflightType
	Exists        []gate.ExistsType
	Survivors     []survivor.Type
	Library       fs.FS        // the embedded stages: networking/metallb/main.tf
	Definitions   *Definitions // nil: read for this cluster alone
	Templates     fs.FS        // the embedded templates, for castle new
	CastleVersion string
	// GitOps replaces the folder of Flux's repository that the cluster names, for castle new.
	GitOps string
}

// Layers returns the names of the layers, lowest first.
func Layers() []string {
	return []string{"secrets", "platform", "engine", "networking", "storage", "gitops"}
}

// Cluster is a configuration, valid where Load reported no error.
type Cluster struct {
	Name, Platform string // "blue", "proxmox"
	Dir            string // <repository>/clusters/blue/proxmox
	Protect        bool   // destroy refuses; true also where cluster.hcl cannot be read
	// Labels choose the cluster by a selector of package labels.
	Labels map[string]string
	// Snapshots is how many castle keeps of each stage's state; 0, which is all, if castle.hcl has an error.
	Snapshots int
	// Runs is of how many runs castle keeps the journals and receipts; 0, which is all, likewise.
	Runs    int
	Program string  // that runs the stages: "terraform", or "tofu" for OpenTofu; empty: the user chooses none
	GitOps  *GitOps // nil: no clone of Flux's repository is named, or it does not exist
	// Stages are the enabled stages by layer, and inside a layer as cluster.hcl lists them.
	Stages []*Stage
	// Disabled are the stages that cluster.hcl lists with enabled = false.
	Disabled []*Stage
	// Files holds the sources that diagnostics may quote: none that may hold secrets.
	Files map[string]*hcl.File

	owners    map[string]map[string]*Stage // layer, output: the enabled stage that has it
	secrets   map[string]Written           // of secrets.tfvars
	committed []Written

	above, below []layer // of values outside the stages: these override inputs, and inputs those
}

// GitOps is a clone of the repository that Flux reads. castle reads it as it is: it neither pulls nor writes.
type GitOps struct {
	Repository string    // the folder to read; absolute
	Named      string    // the folder that the file names; another one for castle new only
	At         hcl.Range // of the name
}

// Stage is one Terraform root module of a cluster.
type Stage struct {
	Name, Layer, Source string // "metallb", "networking", "networking/metallb"
	Summary             string
	Module              fs.FS  // the root module's files
	Origin              string // "embedded", or the repository's folder that shadows it

	EndsCluster, Persistent, Volatile bool

	Timeout time.Duration // 0: none
	// Delegate is the stage that checks the gates of this one, which is disabled; or nil.
	Delegate *Stage
	// Needs are the stages that must be ready before this one starts: direct
	// ones only, each once, in the order of Cluster.Stages.
	Needs []*Stage
	// NeedsPlatform reports whether generated providers or gates connect with the platform's outputs.
	NeedsPlatform bool
	// InCluster are the providers that castle configures: "registry.terraform.io/hashicorp/helm".
	InCluster []string
	// Providers are all providers that the module requires, local name to source address.
	Providers map[string]string
	// ResourceProviders are the source addresses of the providers of the root module's own
	// resources, data sources left out; "" stands for those of its child modules.
	ResourceProviders []string
	Variables         map[string]module.Variable
	Outputs           map[string]module.Output

	Preflights []*Preflight
	Adopts     []*Adopt
	Replaces   []*Replace
	Survivors  []*Survivor
	Gates      []*Gate

	cluster    *Cluster
	definition *definition
	entry      *entry
	bindings   map[string]*Written // by variable; a Value of NilVal stands for the value of expr
	needs      []need
	missed     bool // it is disabled, and Load has reported who needs it
}

// Gate is a gate block with the policy to wait for it.
type Gate struct {
	Type   gate.Type
	Label  string
	Policy gate.Policy
	// Needs are the stages that must be ready before castle waits for the gate, beyond
	// those that its own stage needs. The stage is applied without waiting for them.
	Needs []*Stage
	// Of is the stage whose stage.hcl has the gate: the one that checks it, or a disabled one.
	Of *Stage

	OfData bool // it is that of a survives block, and knows how the data began

	block *block
	needs []need
}

// Name is the gate's type and label; of a delegated gate, "metallb.endpoint_slice.webhook".
func (g *Gate) Name() string {
	name := g.Type.Name + "." + g.Label
	if g.Of.Delegate != nil {
		return g.Of.Name + "." + name
	}
	return name
}

// Preflight is a preflight block.
type Preflight struct {
	Type  gate.PreflightType
	Label string
	// Needs are the stages whose outputs the preflight reads, also through inputs: it may run after these.
	Needs []*Stage

	block *block
	needs []need
}

// Name is the preflight's type and label: "vm_ids.free".
func (p *Preflight) Name() string { return p.Type.Name + "." + p.Label }

// Adopt is an adopt block: a resource that is imported before the plan, if it exists and the state lacks it.
type Adopt struct {
	Address string // infisical_secret.kubeconfig
	// Exists looks whether there is anything to import; nil: the import tries.
	Exists *Exists

	block *block
}

// Replace is a replace block: a resource whose instances castle replaces with what they configure.
type Replace struct {
	Address string // talos_machine_configuration_apply.node

	block *block
}

// Exists is the exists block inside an adopt block.
type Exists struct {
	Type   gate.ExistsType
	Policy gate.Policy // how long castle repeats it

	block *block
}

// Name is the type: "talos_bootstrapped".
func (e *Exists) Name() string { return e.Type.Name }
