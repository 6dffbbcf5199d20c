package terraform

import (
	"fmt"
	"path/filepath"
	"slices"
)

// Product is a program that runs a root module: Terraform, or OpenTofu, which began as a copy of it. Their
// states and lock files have one form and other content, so a cluster stays with one of them.
type Product struct {
	Name    string // as its version begins: "OpenTofu v1.12.6"
	Program string // on PATH
	oldest  string // version that castle runs
}

// The products that castle runs.
var (
	Terraform = Product{"Terraform", "terraform", "1.9.0"} // init -json
	OpenTofu  = Product{"OpenTofu", "tofu", "1.12.0"}      // the oldest that castle is tested with
)

// ProductOf returns the product of a program, "terraform" or "tofu".
func ProductOf(program string) (Product, error) {
	for _, p := range []Product{Terraform, OpenTofu} {
		if p.Program == program {
			return p, nil
		}
	}
	return Product{}, fmt.Errorf(`%q is no program that castle runs; "terraform" and "tofu" are`, program)
}

// Configured returns an environment that names OpenTofu's own configuration, ~/.tofurc, if that is the
// program and the file is there: without it, OpenTofu reads that of Terraform, too.
// https://opentofu.org/docs/cli/config/config-file
func Configured(environ []string, program func() string) []string {
	env := filter(environ)
	file := filepath.Join(env["HOME"], ".tofurc")
	if env["TF_CLI_CONFIG_FILE"] == "" && exists(file) && program() == OpenTofu.Program {
		return append(slices.Clone(environ), "TF_CLI_CONFIG_FILE="+file)
	}
	return environ
}

// Fact names the program and its version as far as an apply depends on them: not the platform of its binary.
func (b Binary) Fact() string {
	if b.Program == OpenTofu.Program {
		return b.Program + " " + b.Version
	}
	return b.Version
}
