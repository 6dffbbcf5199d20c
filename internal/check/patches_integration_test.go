//go:build integration

package check

import (
	"encoding/json"
	"os"
	"os/exec"
	"path/filepath"
	"reflect"
	"strings"
	"testing"

	"github.com/hashicorp/hcl/v2/hclsyntax"
	"github.com/zclconf/go-cty/cty"
	ctyjson "github.com/zclconf/go-cty/cty/json"
	"sigs.k8s.io/yaml"

	"github.com/ephemeral-castle/castle/internal/config"
	"github.com/ephemeral-castle/castle/internal/tfeval"
	"github.com/ephemeral-castle/castle/stages"
)

// settings are what people set of single machines and of what is around them.
var settings = map[string]string{
	"node_labels":      `{ worker = { zone = "a", disk = "x" }, worker-01 = { disk = "y" } }`,
	"node_annotations": `{ controlplane = { "example.org/a" = "b" } }`,
	"node_taints": `{
		cp-01     = { a = "NoExecute" }
		worker-01 = { b = "x:NoSchedule", c = "NoExecute" }
	}`,
	"allow_scheduling_on_controlplanes": "true",
	"registry_mirrors": `{
		"docker.io" = { endpoints = ["https://cache.lan/v2/docker.io", "http://b"], override_path = true }
		"*"         = { endpoints = ["https://cache.lan"], skip_fallback = true }
	}`,
	"registry_auths": `{"auths": {"https://index.docker.io/v1/": {"auth": "YTpi"},
		"http://cache.lan:5000/v2": {"username": "a", "password": "b:\"c\""},
		"ghcr.io": {"identitytoken": "t"}}}`,
	"registry_ca_certificates": `{ a = "-----BEGIN CERTIFICATE-----\nMA==\n" }`,
	"http_proxy":               `{ https = "http://proxy.lan:3128", no_proxy = ["192.168.1.0/24", ".lan"] }`,
	"ntp_servers":              `["192.168.1.1", "ntp.example.org"]`,
	"extra_hosts":              `{ "192.168.1.5" = ["nas.lan", "nas"] }`,
}

// TestPatchesEqualTerraforms lets real Terraform evaluate the locals of the platform's module and the
// patches of each machine. It compares them, as documents, with castle's evaluation of the same expressions.
func TestPatchesEqualTerraforms(t *testing.T) {
	for _, name := range []string{"blue", "mini", "cilium", "iron"} {
		t.Run(name, func(t *testing.T) {
			c, _ := config.Load(config.Options{Repository: "../..", Cluster: name, Library: stages.Library,
				Vars: settings})
			var platform *config.Stage
			var nodes cty.Value
			for _, s := range c.Stages {
				if _, is := s.Outputs["kubeconfig"]; is {
					platform = s
				}
				if _, is := s.Outputs["machines"]; is {
					nodes = tfeval.Read(s, s.KnownInputs(nil, nil)).Outputs()["machines"]
				}
			}
			values := map[string]cty.Value{}
			for variable := range platform.Variables {
				values[variable] = tfeval.StandIn(platform.Written(variable).Value)
			}
			values["machines"] = platform.KnownInputs(map[string]map[string]cty.Value{
				"platform": {"machines": nodes}}, nil)["machines"] // with the defaults of its attributes
			values["recorded_talos_contract"] = cty.NullVal(cty.String)
			values["talos_config_patches"] = cty.ListVal([]cty.Value{
				cty.StringVal("machine:\n  sysctls:\n    a.b: \"1\"\n"),
			})
			values["talos_machine_config_patches"] = cty.MapVal(map[string]cty.Value{
				"worker-01": cty.ListVal([]cty.Value{cty.StringVal("machine: {sysctls: {c.d: \"1\"}}")}),
			})
			values["apiserver_extra_args"] = cty.MapVal(map[string]cty.Value{
				"audit-webhook-config-file": cty.StringVal("https://<k8s>&co"),
			})
			m := tfeval.Read(platform, values)
			var data *hclsyntax.Block
			for _, b := range m.Blocks {
				if b.Type == "data" && b.Labels[0] == "talos_machine_configuration" {
					data = b
				}
			}
			theirs := applied(t, platform, m, data, values)
			machines := m.Known("data", "talos_machine_configuration")
			if len(theirs) != len(machines) || len(machines) != nodes.LengthInt() {
				t.Fatalf("Terraform made %d machines of %d", len(theirs), len(machines))
			}
			for _, block := range machines {
				node := block.Key
				machine, err := machineOf(block)
				if err != nil {
					t.Fatal(err)
				}
				if len(machine.Patches) < 4 || len(machine.Patches) != len(theirs[node]) {
					t.Fatalf("%s: %d patches, Terraform has %d", node, len(machine.Patches),
						len(theirs[node]))
				}
				for i, patch := range machine.Patches {
					if ours, other := document(t, patch),
						document(t, theirs[node][i]); !reflect.DeepEqual(ours, other) {
						t.Errorf("%s: patch %d is\n%v\nand Terraform's\n%v", node, i, ours, other)
					}
				}
			}
		})
	}
}

func document(t *testing.T, text string) any {
	t.Helper()
	var v any
	if err := yaml.Unmarshal([]byte(text), &v); err != nil {
		t.Fatal(err)
	}
	return v
}

// applied returns the patches of each machine as an output of Terraform's.
func applied(t *testing.T, s *config.Stage, m *tfeval.Module, data *hclsyntax.Block,
	values map[string]cty.Value) map[string][]string {
	t.Helper()
	dir := t.TempDir()
	var module strings.Builder
	for _, b := range m.Blocks {
		if b.Type == "variable" || b.Type == "locals" {
			whole := b.Range()
			whole.End = b.CloseBraceRange.End
			module.Write(whole.SliceBytes(bytesOf(t, s, whole.Filename)))
			module.WriteString("\n")
		}
	}
	patches := data.Body.Attributes["config_patches"].Expr.Range()
	expr := string(patches.SliceBytes(bytesOf(t, s, patches.Filename)))
	expr = strings.NewReplacer("each.key", "key", "each.value", "value").Replace(expr)
	module.WriteString("output \"patches\" {\n  sensitive = true\n" +
		"  value = { for key, value in var.machines : key => " + expr + " }\n}\n")
	inputs := map[string]json.RawMessage{}
	for name, v := range values {
		text, err := ctyjson.Marshal(v, v.Type())
		if err != nil {
			t.Fatal(err)
		}
		inputs[name] = text
	}
	text, err := json.Marshal(inputs)
	if err != nil {
		t.Fatal(err)
	}
	for name, content := range map[string][]byte{"main.tf": []byte(module.String()),
		"terraform.tfvars.json": text} {
		if err := os.WriteFile(filepath.Join(dir, name), content, 0o600); err != nil {
			t.Fatal(err)
		}
	}
	var out []byte
	for _, args := range [][]string{{"init", "-input=false"},
		{"apply", "-input=false", "-auto-approve", "-no-color"}, {"output", "-json", "patches"}} {
		cmd := exec.CommandContext(t.Context(), "terraform", args...)
		cmd.Dir = dir
		cmd.Env = []string{"PATH=" + os.Getenv("PATH"), "HOME=" + dir, "TF_CLI_CONFIG_FILE=" + os.DevNull,
			"CHECKPOINT_DISABLE=1"}
		if out, err = cmd.CombinedOutput(); err != nil {
			t.Fatalf("terraform %s: %v\n%s", args[0], err, out)
		}
	}
	all := map[string][]string{}
	if err := json.Unmarshal(out, &all); err != nil {
		t.Fatal(err)
	}
	return all
}

func bytesOf(t *testing.T, s *config.Stage, name string) []byte {
	t.Helper()
	for _, f := range s.TerraformFiles() {
		if f.Body.MissingItemRange().Filename == name {
			return f.Bytes
		}
	}
	t.Fatalf("no file %s", name)
	return nil
}
