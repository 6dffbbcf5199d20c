package main

import (
	"fmt"
	"os"
	"path"
	"path/filepath"
	"slices"
	"strings"
)

// A unit is one Terraform root. All tools get the same module; only how its inputs reach it differs.
type unit struct {
	layer, name string
	needs       []string // names of earlier units; each has an output <name>_id, which is a variable here
	module      string   // main.tf
	castle      string   // gates and preflights for stage.hcl, which the other tools do not have
	ends        bool     // castle: the cluster ends with it
}

func (u unit) folder() string { return path.Join(u.layer, u.name) }

// output is the name of the unit's only output that others read.
func (u unit) output() string { return strings.ReplaceAll(u.name, "-", "_") + "_id" }

// platformLayer has the machines.
const platformLayer = "platform"

// changed is the variable that the bench changes, and the layer of the unit that has it.
const (
	changedVariable = "pool_size"
	changedLayer    = "networking"
	sizeBefore      = "pool_size = 8\n"
	sizeAfter       = "pool_size = 9\n"
)

// shape is the graph of six units: a chain of three, and three at its end. It names the needs of each.
var shape = []struct {
	layer, name string
	needs       []string
}{
	{"secrets", "seed", nil},
	{platformLayer, "machines", []string{"seed"}},
	{"engine", "access", []string{"machines"}},
	{"networking", "pool", []string{"access"}},
	{"storage", "volume", []string{"access"}},
	{"gitops", "sync", []string{"access"}},
}

// build makes copies of the six-unit graph, next to one another. module returns a unit's main.tf after its
// variables of other units.
func build(copies int, module func(u unit) string) []unit {
	var all []unit
	for n := range copies {
		suffix := ""
		if copies > 1 {
			suffix = fmt.Sprintf("-%03d", n)
		}
		for _, s := range shape {
			u := unit{layer: s.layer, name: s.name + suffix}
			for _, need := range s.needs {
				u.needs = append(u.needs, need+suffix)
			}
			u.module = variables(all, u) + module(u)
			all = append(all, u)
		}
	}
	return all
}

// variables declares the variables of a unit.
func variables(all []unit, u unit) string {
	var b strings.Builder
	for _, need := range u.needs {
		fmt.Fprintf(&b, "variable %q {\n  type = string\n}\n\n", find(all, need).output())
	}
	if u.layer == changedLayer {
		fmt.Fprintf(&b, "variable %q {\n  type = number\n}\n\n", changedVariable)
	}
	return b.String()
}

func find(all []unit, name string) unit {
	i := slices.IndexFunc(all, func(u unit) bool { return u.name == name })
	return all[i]
}

// remembered is a module of terraform_data, which is built into Terraform.
func remembered(u unit) string {
	var inputs []string
	for _, need := range u.needs {
		inputs = append(inputs, "var."+unit{name: need}.output())
	}
	if u.layer == changedLayer {
		inputs = append(inputs, "var."+changedVariable)
	}
	return fmt.Sprintf("resource \"terraform_data\" \"this\" {\n  input = [%s]\n}\n\noutput %q {\n"+
		"  value = terraform_data.this.id\n}\n", strings.Join(inputs, ", "), u.output())
}

// A tree is a set of files by path.
type tree map[string]string

// write writes the files below dir. Scripts are executable.
func (t tree) write(dir string) error {
	for name, content := range t {
		file := filepath.Join(dir, filepath.FromSlash(name))
		if err := os.MkdirAll(filepath.Dir(file), 0o700); err != nil {
			return err
		}
		if err := os.WriteFile(file, []byte(content), 0o600); err != nil {
			return err
		}
		if strings.HasSuffix(name, ".sh") {
			if err := os.Chmod(file, 0o700); err != nil { // also of an older file
				return err
			}
		}
	}
	return nil
}

// castleTree is a castle repository with one cluster of all units.
func castleTree(all []unit) tree {
	t := tree{castleValues: sizeBefore}
	var cluster strings.Builder
	for _, u := range all {
		fmt.Fprintf(&cluster, "stage %q { source = %q }\n", u.name, u.folder())
		var stage strings.Builder
		stage.WriteString("stage {\n")
		if u.ends {
			stage.WriteString("  ends_cluster = true\n")
		}
		stage.WriteString("  inputs = {\n")
		for _, need := range u.needs {
			from := find(all, need)
			fmt.Fprintf(&stage, "    %s = %s.%s\n", from.output(), from.layer, from.output())
		}
		stage.WriteString("  }\n}\n" + u.castle)
		t[path.Join("stages", u.folder(), "stage.hcl")] = stage.String()
		t[path.Join("stages", u.folder(), "main.tf")] = u.module
	}
	t[castleCluster+"/cluster.hcl"] = cluster.String()
	return t
}

// terragruntTree has one unit of Terragrunt for each root, with the module in the unit's own folder.
func terragruntTree(all []unit) tree {
	t := tree{}
	for _, u := range all {
		var config strings.Builder
		for _, need := range u.needs {
			from := find(all, need)
			fmt.Fprintf(&config, "dependency %q {\n  config_path = \"../../%s\"\n}\n\n", need, from.folder())
		}
		config.WriteString("inputs = {\n")
		for _, need := range u.needs {
			output := find(all, need).output()
			fmt.Fprintf(&config, "  %s = dependency.%s.outputs.%s\n", output, need, output)
		}
		config.WriteString("}\n")
		t[u.folder()+"/terragrunt.hcl"] = config.String()
		module(t, u)
	}
	return t
}

func module(t tree, u unit) {
	t[u.folder()+"/main.tf"] = u.module
	if u.layer == changedLayer {
		t[u.folder()+"/"+values] = sizeBefore
	}
}

// shellTree has one root for each unit and a script for it, and two scripts that run these, level by level.
// Within a level, parallel roots run at a time.
func shellTree(all []unit, parallel int) tree {
	t := tree{}
	read := map[string]bool{} // units whose output others read
	for _, u := range all {
		for _, need := range u.needs {
			read[need] = true
		}
	}
	for _, u := range all {
		var script strings.Builder
		script.WriteString("#!/bin/sh\nset -eu\ncd \"$(dirname \"$0\")\"\n")
		for _, need := range u.needs {
			from := find(all, need)
			fmt.Fprintf(&script, "TF_VAR_%s=$(cat ../../%s/value)\nexport TF_VAR_%[1]s\n",
				from.output(), from.folder())
		}
		script.WriteString("[ -d .terraform ] || terraform init -input=false -no-color\n" +
			"terraform \"$1\" -auto-approve -input=false -no-color\n")
		if read[u.name] {
			fmt.Fprintf(&script, "[ \"$1\" = destroy ] || terraform output -raw %s > value\n", u.output())
		}
		t[u.folder()+"/run.sh"] = script.String()
		module(t, u)
	}
	levels := levels(all)
	t["up.sh"] = levelScript(levels, "apply", parallel)
	slices.Reverse(levels)
	t["down.sh"] = levelScript(levels, "destroy", parallel)
	return t
}

func levelScript(levels [][]unit, action string, parallel int) string {
	var script strings.Builder
	script.WriteString("#!/bin/sh\nset -eu\n")
	for _, level := range levels {
		if len(level) == 1 {
			fmt.Fprintf(&script, "%s/run.sh %s\n", level[0].folder(), action)
			continue
		}
		script.WriteString("printf '%s\\n'")
		for _, u := range level {
			script.WriteString(" " + u.folder())
		}
		fmt.Fprintf(&script, " | xargs -P \"${PARALLEL:-%d}\" -I {} sh {}/run.sh %s\n", parallel, action)
	}
	return script.String()
}

// levels sorts units by the length of the longest chain before each.
func levels(all []unit) (sorted [][]unit) {
	depth := map[string]int{}
	for _, u := range all { // needs come first
		for _, need := range u.needs {
			depth[u.name] = max(depth[u.name], depth[need]+1)
		}
		if depth[u.name] == len(sorted) {
			sorted = append(sorted, nil)
		}
		sorted[depth[u.name]] = append(sorted[depth[u.name]], u)
	}
	return sorted
}
