package config

import (
	"os"
	"path/filepath"
	"testing"

	"github.com/zclconf/go-cty/cty"
)

// TestTheStrongestOriginOfAValueWins lists the origins of metallb_chart_version and the winner.
func TestTheStrongestOriginOfAValueWins(t *testing.T) {
	const name = "metallb_chart_version"
	files := map[string]string{
		"castle.hcl": "-- castle.hcl --\ndefaults { inputs = { " + name + " = \"castle.hcl\" } }\n",
		"terraform.tfvars": "-- clusters/blue/proxmox/terraform.tfvars --\n" + name +
			" = \"terraform.tfvars\"\n",
		"secrets.tfvars": "-- clusters/blue/proxmox/secrets.tfvars --\n" + name +
			" = \"secrets.tfvars\"\n",
		"stage.hcl": "-- library/networking/metallb/stage.hcl --\nstage { inputs = { " + name +
			" = \"stage.hcl\" } }\n",
		"cluster.hcl": "\nstage \"metallb\" {\n  source = \"networking/metallb\"\n  inputs = { " +
			name + " = \"cluster.hcl\" }\n}\n",
		"cluster.hcl plain": "\nstage \"metallb\" { source = \"networking/metallb\" }\n",
	}
	const platform = "-- clusters/blue/proxmox/cluster.hcl --\n" +
		"stage \"proxmox-talos\" { source = \"platform/bare\" }\n"
	bare := "-- library/platform/bare/stage.hcl --\nstage {}\n-- library/platform/bare/main.tf --\n" +
		"output \"kubeconfig\" { value = 1 }\n"
	tests := []struct {
		want    string
		origins []string
	}{
		{"0.15.2", []string{"cluster.hcl plain"}},
		{"castle.hcl", []string{"cluster.hcl plain", "castle.hcl"}},
		{"terraform.tfvars", []string{"cluster.hcl plain", "castle.hcl", "terraform.tfvars"}},
		{"secrets.tfvars", []string{"cluster.hcl plain", "castle.hcl", "terraform.tfvars", "secrets.tfvars"}},
		{"stage.hcl", []string{"cluster.hcl plain", "stage.hcl"}},
		{"cluster.hcl", []string{"cluster.hcl", "stage.hcl", "secrets.tfvars", "terraform.tfvars",
			"castle.hcl"}},
		{"environment", []string{"cluster.hcl", "stage.hcl", "environment"}},
		{"second --var-file", []string{"cluster.hcl", "stage.hcl", "environment", "--var-file"}},
		{"--var", []string{"cluster.hcl", "stage.hcl", "environment", "--var-file", "--var"}},
	}
	for _, test := range tests {
		t.Run(test.want, func(t *testing.T) {
			changes := platform
			var with []func(*Options)
			tfvars := "-- clusters/blue/proxmox/terraform.tfvars --\n"
			for _, origin := range test.origins {
				switch origin {
				case "cluster.hcl", "cluster.hcl plain":
					changes += files[origin]
				case "terraform.tfvars":
					tfvars = files[origin]
				case "environment":
					with = append(with, func(o *Options) {
						o.Environ = []string{"PATH=/bin", "TF_VAR_" + name + "=environment"}
					})
				case "--var-file":
					with = append(with, func(o *Options) {
						for _, file := range []string{"first", "second"} {
							path := filepath.Join(o.Repository, file+".tfvars")
							if err := os.WriteFile(path, []byte(name+` = "`+file+` --var-file"`),
								0o600); err != nil {
								t.Fatal(err)
							}
							o.VarFiles = append(o.VarFiles, path)
						}
					})
				case "--var":
					with = append(with, func(o *Options) { o.Vars = map[string]string{name: "--var"} })
				}
			}
			changes += tfvars
			for _, origin := range test.origins {
				switch origin {
				case "castle.hcl", "secrets.tfvars", "stage.hcl":
					changes += files[origin]
				}
			}
			in := inputs(t, stage(t, loaded(t, changes+bare, with...), "metallb"))
			if got := in[name].AsString(); got != test.want {
				t.Errorf("got the value of %s", got)
			}
		})
	}
}

func TestInputsOfClusterAndStageMergeByKey(t *testing.T) {
	c := loaded(t, `
-- clusters/blue/proxmox/cluster.hcl --
stage "infisical" { source = "secrets/infisical" }
stage "vault-jwt" {
  source = "secrets/vault-jwt"
  inputs = { public_key_pem = "own key of ${cluster.name}" }
}
-- clusters/blue/proxmox/terraform.tfvars --
`)
	s := stage(t, c, "vault-jwt")
	in := inputs(t, s)
	if got := in["public_key_pem"].AsString(); got != "own key of blue" {
		t.Errorf("overridden: %s", got)
	}
	if got := in["vault_token"].AsString(); got != "secrets.vault_token" {
		t.Errorf("kept: %s", got)
	}
	if got := names(s.Needs); got != "infisical" {
		t.Errorf("needs %s: the overridden reference must not make an edge", got)
	}
}

func TestTextIsReadByTheVariablesType(t *testing.T) {
	c := loaded(t, "", func(o *Options) {
		o.Vars = map[string]string{"dns_servers": `["1.1.1.1", "8.8.8.8"]`, "vip": "10"}
		o.Environ = []string{"TF_VAR_infisical_env=[not parsed]", "TF_VAR_declared_by_nobody=x"}
	})
	in := inputs(t, stage(t, c, "proxmox-talos"))
	if got := in["dns_servers"]; got.LengthInt() != 2 ||
		got.Index(cty.NumberIntVal(1)).AsString() != "8.8.8.8" {
		t.Errorf("dns_servers: %#v", got)
	}
	if got := in["vip"].AsString(); got != "10" {
		t.Errorf("vip: %s", got)
	}
	if got := in["infisical_env"].AsString(); got != "[not parsed]" {
		t.Errorf("infisical_env: %s", got)
	}
}

func TestInputsMayNameVariablesThatNothingWires(t *testing.T) {
	c := loaded(t, `
-- library/networking/metallb/stage.hcl --
stage { inputs = { metallb_repository = "https://charts/${var.metallb_chart_version}" } }
`)
	in := inputs(t, stage(t, c, "metallb"))
	if got := in["metallb_repository"].AsString(); got != "https://charts/0.15.2" {
		t.Errorf("got %s", got)
	}
}

func TestNullMeansTheDefaultWhereTheVariableIsNotNullable(t *testing.T) {
	c := loaded(t, `
-- library/networking/metallb/main.tf --
variable "level" {
  type     = string
  default  = "info"
  nullable = false
}
variable "note" {
  type    = string
  default = "none"
}
output "metallb_namespace" { value = "" }
-- library/networking/metallb/stage.hcl --
stage { inputs = { level = null, note = null } }
`)
	in := inputs(t, stage(t, c, "metallb"))
	if got := in["level"]; got.IsNull() || got.AsString() != "info" {
		t.Errorf("level: %#v", got)
	}
	if got := in["note"]; !got.IsNull() {
		t.Errorf("note: %#v", got)
	}
}

func TestProblemsWithValues(t *testing.T) {
	const tfvars = "clusters/blue/proxmox/terraform.tfvars"
	const small = `
-- clusters/blue/proxmox/cluster.hcl --
stage "infisical" { source = "secrets/infisical" }
stage "vault-jwt" { source = "secrets/vault-jwt" }
stage "keys"      { source = "secrets/keys" }
`
	tests := []struct {
		name, changes string
		want          []string
		with          func(*Options)
	}{
		{
			name:    "a value that stage.hcl wires",
			changes: small + "-- " + tfvars + " --\n\nvault_token = \"mine\"\n",
			want: []string{tfvars + ":2 | variable vault_token: set here, but stage vault-jwt wires it | " +
				"<embedded>/stages/secrets/vault-jwt/stage.hcl:4 | " +
				`write inputs = { vault_token = … } in stage "vault-jwt" of ` +
				"clusters/blue/proxmox/cluster.hcl"},
		},
		{
			name: "a value that one stage wires and another takes",
			changes: small + "-- " + tfvars +
				" --\nvault_token = \"mine\"\n-- library/secrets/keys/main.tf --\n" +
				"variable \"vault_token\" {}\n" +
				"output \"serviceaccount_public_key_pem\" { value = 1 }\n",
		},
		{
			name:    "an undeclared value",
			changes: small + "-- " + tfvars + " --\nvault_tokn = \"mine\"\n",
			want: []string{
				tfvars + `:1 | variable vault_tokn: not declared | Did you mean "vault_token"?`,
			},
		},
		{
			name:    "an undeclared --var",
			changes: small + "-- " + tfvars + " --\n",
			want:    []string{"--var vault_tokn:1 | not declared"},
			with:    func(o *Options) { o.Vars = map[string]string{"vault_tokn": "x"} },
		},
		{
			name: "a default that no stage in the library declares",
			changes: "-- castle.hcl --\ndefaults {\n  inputs = {\n" +
				"    metallb_chart_versoin = \"1\"\n  }\n}\n",
			want: []string{
				`castle.hcl:3 | variable metallb_chart_versoin: not declared | Did you mean ` +
					`"metallb_chart_version"?`,
			},
		},
		{
			name: "a required variable without a value",
			changes: small + "-- " + tfvars +
				" --\n-- library/secrets/keys/main.tf --\nvariable \"bits\" {}\n" +
				"output \"serviceaccount_public_key_pem\" { value = 1 }\n",
			want: []string{
				"<embedded>/stages/secrets/keys/main.tf:1 | variable bits: no value | required by stage " +
					"keys | Set it in " + tfvars,
			},
		},
		{
			name: "a required secret without a value",
			changes: small + "-- " + tfvars +
				" --\n-- library/secrets/keys/main.tf --\nvariable \"pin\" {\n  sensitive = true\n}\n" +
				"output \"serviceaccount_public_key_pem\" { value = 1 }\n",
			want: []string{
				"<embedded>/stages/secrets/keys/main.tf:1 | variable pin: no value | stage keys | " +
					"clusters/blue/proxmox/secrets.tfvars (mode 0600) or as TF_VAR_pin",
			},
		},
		{
			name: "a value of the wrong type, deep inside",
			changes: "-- library/storage/longhorn/main.tf --\nvariable \"disks\" {\n" +
				"  type = map(object({ size = number }))\n}\n" +
				"-- library/storage/longhorn/stage.hcl --\nstage {}\n-- castle.hcl --\ndefaults {\n" +
				"  inputs = { disks = { a = { size = \"big\" } } }\n}\n",
			want: []string{
				`castle.hcl:2 | variable disks: a.size: a number is required | ` +
					`<embedded>/stages/storage/longhorn/main.tf:1`,
			},
		},
		{
			name: "a wired value of the wrong type",
			changes: "-- library/storage/longhorn/stage.hcl --\nstage {\n  inputs = {\n" +
				"    s3_access_key_id = [secrets.s3_access_key_id]\n" +
				"    s3_secret_access_key = secrets.s3_secret_access_key\n  }\n}\n",
			want: []string{
				"<embedded>/stages/storage/longhorn/stage.hcl:3 | stage longhorn: unsuitable input " +
					"s3_access_key_id | string required",
			},
		},
		{
			name:    "a text that is no expression",
			changes: "",
			want: []string{
				"--var dns_servers:1 | variable dns_servers: unsuitable value | list(string) | read as an " +
					"expression",
			},
			with: func(o *Options) { o.Vars = map[string]string{"dns_servers": "[1.1.1.1"} },
		},
		{
			name: "one name with two types",
			changes: "-- library/storage/longhorn/main.tf --\n" +
				"variable \"s3_access_key_id\" { type = string }\n" +
				"variable \"s3_secret_access_key\" { type = string }\n" +
				"variable \"address_pool\" { type = string }\n-- castle.hcl --\ndefaults {}\n" +
				"-- library/storage/longhorn/stage.hcl --\nstage {\n" +
				"  inputs = { s3_access_key_id = 1, s3_secret_access_key = 2, address_pool = 3 }\n}\n" +
				"-- clusters/blue/proxmox/cluster.hcl --\n" +
				"stage \"metallb\" { source = \"networking/metallb\" }\n" +
				"stage \"address-pool\" { source = \"networking/address-pool\" }\n" +
				"stage \"longhorn\" { source = \"storage/longhorn\" }\n" +
				"stage \"bare\" { source = \"platform/bare\" }\n" +
				"-- library/platform/bare/stage.hcl --\nstage {}\n" +
				"-- library/platform/bare/main.tf --\noutput \"kubeconfig\" { value = 1 }\n" +
				"-- clusters/blue/proxmox/terraform.tfvars --\n",
			want: []string{
				"<embedded>/stages/networking/address-pool/main.tf:2 | variable address_pool: no value | " +
					"stage address-pool",
				"<embedded>/stages/storage/longhorn/main.tf:3 | variable address_pool: two types | string " +
					"here and list(string) at <embedded>/stages/networking/address-pool/main.tf:2",
			},
		},
		{
			name: "an input that the module does not declare",
			changes: "-- library/networking/address-pool/stage.hcl --\nstage {\n  inputs = {\n" +
				"    namespace = networking.metallb_namespace\n    adress_pool = []\n  }\n}\n",
			want: []string{
				`<embedded>/stages/networking/address-pool/stage.hcl:4 | stage address-pool: unknown ` +
					`input adress_pool | Did you mean "address_pool"?`,
			},
		},
		{
			name:    "a --var-file that is not there",
			changes: "",
			want:    []string{"- | --var-file none.tfvars: no such file"},
			with:    func(o *Options) { o.VarFiles = []string{"none.tfvars"} },
		},
		{
			name: "a default of the wrong type in the module",
			changes: "-- library/secrets/keys/main.tf --\nvariable \"bits\" {\n  type    = number\n" +
				"  default = \"many\"\n}\n",
			want: []string{
				"<embedded>/stages/secrets/keys/main.tf:3 | variable bits: unsuitable default | a number " +
					"is required",
			},
		},
	}
	for _, test := range tests {
		t.Run(test.name, func(t *testing.T) {
			with := test.with
			if with == nil {
				with = func(*Options) {}
			}
			expect(t, test.changes, test.want, with)
		})
	}
}

func TestSecretsThatOthersCanReadAreRefused(t *testing.T) {
	const file = "clusters/blue/proxmox/secrets.tfvars"
	changes := "-- " + file + " --\nmetallb_chart_version = \"1\"\n"
	readable := func(o *Options) {
		if err := os.Chmod(filepath.Join(o.Repository, file), 0o640); err != nil {
			t.Fatal(err)
		}
	}
	expect(t, changes,
		[]string{file + ":1 | secrets.tfvars: readable by others | 0640 | must be 0600 | chmod 600 " + file},
		readable)
	expect(t, changes, nil)
}

func TestDiagnosticsCannotQuoteSecrets(t *testing.T) {
	o := repository(t, "-- clusters/blue/proxmox/secrets.tfvars --\nmetallb_chart_version = [\"hunter2\"]\n")
	c, diags := Load(o)
	if len(diags) != 1 || render(diags[0]) == "" {
		t.Fatalf("got %v", diags)
	}
	if _, ok := c.Files["clusters/blue/proxmox/secrets.tfvars"]; ok {
		t.Error("the text of secrets.tfvars is among the files that a writer quotes")
	}
	if _, ok := c.Files["clusters/blue/proxmox/cluster.hcl"]; !ok {
		t.Error("cluster.hcl cannot be quoted")
	}
}

func TestEachUnsuitablePartIsNamedInItsLine(t *testing.T) {
	const file = "clusters/blue/proxmox/terraform.tfvars"
	for range 20 {
		expect(t, `
-- clusters/blue/proxmox/terraform.tfvars --
proxmox_endpoint  = "https://192.168.1.10:8006"
vip               = "192.168.1.50"
infisical_project = "3f2a"
infisical_env     = "prod"
infisical_folder  = "/blue"
nodes = {
  wk-01 = { vm_id = 431 }
  cp-01 = { vm_id = 421, role = [], address = [] }
  cp-02 = { vm_id = 422 }
}
address_pool = ["192.168.1.200-192.168.1.220"]
`, []string{
			file + `:7 | variable nodes: wk-01: lacks address`,
			file + `:8 | variable nodes: cp-01.role: a text is required`,
			file + `:8 | variable nodes: cp-01.address: a text is required`,
			file + `:9 | variable nodes: cp-02: lacks address`,
		})
	}
}
