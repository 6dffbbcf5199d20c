package docs_test

import (
	"io/fs"
	"os"
	"path"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/hashicorp/hcl/v2"
	"github.com/hashicorp/hcl/v2/hclsyntax"
	"github.com/hashicorp/terraform-config-inspect/tfconfig"

	"github.com/ephemeral-castle/castle/internal/cluster"
	"github.com/ephemeral-castle/castle/internal/config"
	"github.com/ephemeral-castle/castle/stages"
	"github.com/ephemeral-castle/castle/templates"
)

var (
	outputRow = regexp.MustCompile("(?m)^\\| ([a-z]+) \\| `([a-z0-9_]+)` \\| ([^|]+) \\| ([^|]+) \\|$")
	stageName = regexp.MustCompile("`([a-z-]+/[a-z-]+)`")
	// A file of the example: its name, then its text.
	exampleFile = regexp.MustCompile(
		"(?s)\n`(stages/[a-z-]+/[a-z-]+/[a-z]+\\.(?:hcl|tf))`\n\n```hcl\n(.*?)```\n")
)

// implementations are the stages that take one another's place: what one of them
// has for others, all have.
func implementations() [][]string {
	return [][]string{{"platform/proxmox-machines", "platform/existing-machines",
		"platform/hcloud-machines"},
		{"secrets/infisical", "secrets/local", "secrets/vault"}}
}

// reading is one reference in a stage.hcl to an output of another layer.
type reading struct {
	stage string
	typ   string // of the variable that it is wired to as it is; empty if it is used otherwise
}

// readings collects, by "platform.vip", who in the library reads what.
func readings(t *testing.T) map[string][]reading {
	t.Helper()
	files, err := fs.Glob(stages.Library, "*/*/stage.hcl")
	if err != nil || len(files) < 10 {
		t.Fatalf("%v, %v", files, err)
	}
	found := map[string][]reading{}
	for _, file := range files {
		stage := path.Dir(file)
		text, err := fs.ReadFile(stages.Library, file)
		if err != nil {
			t.Fatal(err)
		}
		parsed, diags := hclsyntax.ParseConfig(text, file, hcl.InitialPos)
		module, problems := tfconfig.LoadModule("../stages/" + stage)
		if diags.HasErrors() || problems.HasErrors() {
			t.Fatal(diags, problems)
		}
		readBlock(parsed.Body.(*hclsyntax.Body), func(expr hclsyntax.Expression, input string) {
			for _, traversal := range expr.Variables() {
				if len(traversal) < 2 || !slices.Contains(config.Layers(), traversal.RootName()) {
					continue
				}
				attr, ok := traversal[1].(hcl.TraverseAttr)
				if !ok {
					continue
				}
				r := reading{stage: stage}
				if _, plain := expr.(*hclsyntax.ScopeTraversalExpr); plain && module.Variables[input] != nil {
					r.typ, _, _ = strings.Cut(module.Variables[input].Type, "({") // without attributes
				}
				name := traversal.RootName() + "." + attr.Name
				found[name] = append(found[name], r)
			}
		})
	}
	return found
}

// readBlock visits every expression of a block; those of inputs with their names.
func readBlock(body *hclsyntax.Body, visit func(expr hclsyntax.Expression, input string)) {
	for name, attr := range body.Attributes {
		inputs, ok := attr.Expr.(*hclsyntax.ObjectConsExpr)
		if name != "inputs" || !ok {
			visit(attr.Expr, "")
			continue
		}
		for _, item := range inputs.Items {
			visit(item.ValueExpr, hcl.ExprAsKeyword(item.KeyExpr))
		}
	}
	for _, b := range body.Blocks {
		readBlock(b.Body, visit)
	}
}

func TestTheContractSaysWhoReadsWhichOutput(t *testing.T) {
	text, err := os.ReadFile("stages.md")
	if err != nil {
		t.Fatal(err)
	}
	read := readings(t)
	for _, row := range outputRow.FindAllStringSubmatch(string(text), -1) {
		layer, output, typ, readers := row[1], row[2], strings.TrimSpace(row[3]), row[4]
		name := layer + "." + output
		var want, told []string
		for _, r := range read[name] {
			if want = append(want, r.stage); r.typ != "" && !strings.HasPrefix(r.typ, "object") &&
				!strings.HasPrefix(typ, r.typ) {
				t.Errorf("%s is called %s, and %s takes %s", name, typ, r.stage, r.typ)
			}
			if strings.HasPrefix(r.typ, "object") && !strings.HasPrefix(typ, "object") {
				t.Errorf("%s is called %s, and %s takes an object", name, typ, r.stage)
			}
		}
		for _, m := range stageName.FindAllStringSubmatch(readers, -1) {
			told = append(told, m[1])
		}
		slices.Sort(want)
		if want = slices.Compact(want); !slices.Equal(want, told) {
			t.Errorf("%s is read by %v, not %v", name, want, told)
		}
		if castles := name == "platform.kubeconfig" ||
			name == "platform.talosconfig"; castles != strings.Contains(readers, "castle,") {
			t.Errorf("%s: castle reads it: %t", name, castles)
		}
		hasOutput(t, layer, output, strings.HasSuffix(typ, " alone"))
		delete(read, name)
	}
	for name, by := range read {
		t.Errorf("stages.md lacks %s, which %s reads", name, by[0].stage)
	}
}

// hasOutput holds that a layer has an output, in every stage that may fill it, or in
// one alone.
func hasOutput(t *testing.T, layer, output string, alone bool) {
	t.Helper()
	var owners []string
	dirs, err := fs.ReadDir(stages.Library, layer)
	if err != nil {
		t.Fatal(err)
	}
	for _, dir := range dirs {
		module, problems := tfconfig.LoadModule("../stages/" + layer + "/" + dir.Name())
		if problems.HasErrors() {
			t.Fatal(problems)
		}
		if module.Outputs[output] != nil {
			owners = append(owners, layer+"/"+dir.Name())
		}
	}
	if len(owners) == 0 {
		t.Errorf("no stage has %s.%s", layer, output)
	}
	for _, group := range implementations() {
		if alone {
			break
		}
		for _, stage := range group {
			if slices.ContainsFunc(group, func(s string) bool { return slices.Contains(owners, s) }) &&
				!slices.Contains(owners, stage) {
				t.Errorf("%s lacks the output %s, which others of its layer have", stage, output)
			}
		}
	}
}

func TestTheStagesOfStagesMdLoad(t *testing.T) {
	text, err := os.ReadFile("stages.md")
	if err != nil {
		t.Fatal(err)
	}
	repository := t.TempDir()
	files := exampleFile.FindAllStringSubmatch(string(text), -1)
	for _, file := range files {
		write(t, repository, file[1], file[2])
	}
	if blocks := strings.Count(string(text), "```hcl"); len(files) != blocks || blocks < 6 {
		t.Fatalf("%d of %d blocks say which file they are", len(files), blocks)
	}
	write(t, repository, "clusters/green/hcloud/cluster.hcl", `
stage "keys" { source = "secrets/keys" }
stage "machines" { source = "platform/hcloud-talos" }
stage "directory" { source = "networking/directory" }
stage "longhorn" { source = "storage/longhorn" }
stage "nfs" { source = "storage/nfs" }
stage "local" { source = "secrets/local" }
`)
	write(t, repository, "clusters/green/hcloud/terraform.tfvars",
		"hcloud_image_id = \"1\"\nnodes = { cp-01 = { role = \"controlplane\" } }\n"+
			"nfs_server = \"nas.lan\"\nnfs_share = \"/volumes\"\n")
	write(t, repository, "clusters/green/hcloud/secrets.tfvars", "hcloud_token = \"t\"\nlocal_secrets = {}\n")
	cluster, diags := config.Load(config.Options{
		Repository: repository, Cluster: "green", Gates: cluster.GateTypes(),
		Preflights: cluster.PreflightTypes(), Exists: cluster.ExistsTypes(),
		Survivors: cluster.SurvivorTypes(),
		Library:   stages.Library, Templates: templates.Files,
	})
	if diags.HasErrors() {
		t.Fatal(diags)
	}
	if len(cluster.Stages) != 6 {
		t.Errorf("%d stages", len(cluster.Stages))
	}
}
