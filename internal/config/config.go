// Package config turns a castle repository into a validated Cluster. It reads files and the given
// environment; it runs nothing and contacts no server.
//
// Load reads the files in one pass and evaluates them in another. Both go on after an error, so that Load
// reports every problem at once with its file and line. Values that only a run knows, such as outputs, are
// unknown values: types, names and edges are still checked before anything runs. A loader drives the steps;
// fileReader, inputValues, blockReader and connector each hold one. gohcl decodes the blocks of fixed
// arguments.
//
// # Files
//
// castle.hcl, in the repository's root and optional, applies to all clusters:
//
//	required_castle_version = ">= 1.2"   # a development build satisfies everything
//
//	defaults {
//	  timeout = "30m"                    # of stages without their own
//	  inputs  = { dns_servers = ["…"] }  # values below terraform.tfvars and above a variable's default
//	}
//
//	state {
//	  snapshots = 20                     # how many are kept of each stage's state, at least 2
//	}
//
//	gitops {                             # of clusters without their own
//	  repository = "../fleet"            # a clone of what Flux reads, relative to this file
//	}
//
// cluster.hcl lists the stages of a cluster. A stage block there overrides the stage's
// own file (inputs and gate arguments key by key, needs as a whole):
//
//	cluster { protect = true }
//
//	gitops { repository = "../../../fleet" }
//
//	stage "metallb" {
//	  source  = "networking/metallb"
//	  enabled = true                      # false: somebody else installs it, or nobody does
//	  asked_by = "sync"                   # of a disabled stage: the stage that checks its gates
//	  timeout = "10m"
//	  needs   = [engine]
//	  inputs  = { … }
//	  gate "endpoint_slice" "webhook" { timeout = "10m" }
//	}
//
// stage.hcl, in the stage's folder, holds one stage block and the blocks
// preflight, adopt and gate.
//
// # Values
//
// The value of a variable comes from the first of: --var, --var-file (the last
// file wins), TF_VAR_ in the environment, inputs in cluster.hcl, inputs in
// stage.hcl, secrets.tfvars, terraform.tfvars, defaults in castle.hcl, the
// variable's default. A tfvars value for a variable that stage.hcl wires is an error,
// unless cluster.hcl has an input for it.
//
// # Edges
//
// A reference to a layer's output is an edge to the stage that has the output.
// `needs` names layers and is an edge to each of their enabled stages. Generated
// providers and gates that connect to the cluster are an edge to the stage that has
// platform.kubeconfig or platform.talosconfig. References in a gate delay the gate, not
// its stage. An input that another value overrides makes no edge.
//
// # Expressions
//
// An expression may name <layer>.X, an output of the same or an earlier layer;
// var.X, the stage's variables (in inputs only those that no inputs set);
// self.X, the stage's own outputs, in gates; cluster.name and cluster.platform.
// It may call, each as in Terraform:
//
//	numbers      abs ceil floor max min
//	strings      chomp format formatlist indent join lower replace split substr
//	             title trim trimprefix trimspace trimsuffix upper
//	collections  coalesce coalescelist compact concat contains distinct element
//	             flatten keys length lookup merge range reverse setintersection
//	             setsubtract setunion slice sort values zipmap
//	conversions  jsonencode tolist tomap toset tostring
//
// length counts collections and not characters, and replace knows no regular expressions.
package config

import (
	"io/fs"

	"github.com/ephemeral-castle/castle/internal/gate"
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
	Library       fs.FS // the embedded stages: networking/metallb/main.tf
	Templates     fs.FS // the embedded templates
	CastleVersion string
	// GitOps replaces the folder of Flux's repository that the cluster names: castle
	// new has it elsewhere at first.
	GitOps string
}

// Layers returns the names of the layers, lowest first.
func Layers() []string {
	return []string{"secrets", "platform", "engine", "networking", "storage", "gitops"}
}
