package config

import "testing"

// problemTest changes the library on paper and wants these problems, as expect does.
type problemTest struct {
	name, changes string
	want          []string
}

func run(t *testing.T, tests []problemTest) {
	for _, test := range tests {
		t.Run(test.name, func(t *testing.T) { expect(t, test.changes, test.want) })
	}
}

// Three files of the library that most tests below change.
const (
	metallb     = "<embedded>/stages/networking/metallb/stage.hcl"
	pool        = "<embedded>/stages/networking/address-pool/stage.hcl"
	clusterFile = "clusters/blue/proxmox/cluster.hcl"
)

// The public keys of one holder.
const (
	aRecipient = "age1j6uma6v3jqlfm2dh32lv4mhgexuplv74sg9zymws0mte34ly05tqudrvtl"
	aSigner    = "castle-ed25519:RxSS3jgw7-q2ppvLCXPKnvD83_9Dyx65PkoIUo5rboE"
)

func TestProblemsInClusterFile(t *testing.T) {
	const some = "-- clusters/blue/proxmox/terraform.tfvars --\n-- " + clusterFile +
		" --\nstage \"infisical\" { source = \"secrets/infisical\" }\n"
	run(t, []problemTest{
		{"a stage named like a layer", some + "stage \"secrets\" { source = \"secrets/keys\" }\n",
			[]string{clusterFile + ":2 | stage secrets: named like a layer | --only secrets"}},
		{"a name that is no name", some + "stage \"../keys\" { source = \"secrets/keys\" }\n",
			[]string{clusterFile + ":2 | stage ../keys: unsuitable name"}},
		{"two stages of one name", some + "stage \"infisical\" { source = \"secrets/keys\" }\n",
			[]string{clusterFile + ":2 | second block stage infisical | first one is at " +
				clusterFile + ":1"}},
		{"no source", some + "stage \"keys\" {}\n",
			[]string{clusterFile + ":2 | source"}},
		{"a source without a layer", some + "stage \"keys\" {\n  source = \"keys\"\n}\n",
			[]string{
				clusterFile +
					`:3 | stage keys: unsuitable source | "keys" is not of the form <layer>/<stage>`,
			}},
		{"an unknown layer", some + "stage \"keys\" {\n  source = \"secret/keys\"\n}\n",
			[]string{clusterFile + `:3 | stage keys: unknown layer secret | Did you mean "secrets"?`}},
		{"an unknown source", some + "stage \"keys\" {\n  source = \"secrets/kes\"\n}\n",
			[]string{
				clusterFile +
					`:3 | stage keys: unknown source | "secrets/kes" | Did you mean "secrets/keys"?`,
			}},
		{"a source outside the library", some + "stage \"keys\" {\n  source = \"secrets/../../keys\"\n}\n",
			[]string{clusterFile + `:3 | stage keys: unsuitable source | Did you mean "secrets/keys"?`}},
		{"an unknown argument",
			some + "stage \"keys\" {\n  source = \"secrets/keys\"\n  timout = \"1m\"\n}\n",
			[]string{clusterFile + `:4 | timout | Did you mean "timeout"?`}},
		{"a bad duration",
			some + "stage \"keys\" {\n  source = \"secrets/keys\"\n  timeout = \"5 minutes\"\n}\n",
			[]string{clusterFile + `:4 | timeout: unsuitable value | invalid duration "5 minutes"`}},
		{"inputs that are no object",
			some + "stage \"keys\" {\n  source = \"secrets/keys\"\n  inputs = merge({}, {})\n}\n",
			[]string{clusterFile + `:4 | inputs = { name = value }`}},
		{"an input set twice",
			some + "stage \"keys\" {\n  source = \"secrets/vault-jwt\"\n  inputs = {\n" +
				"    vault_token = 1\n    public_key_pem = 2\n    vault_token = 3\n  }\n}\n",
			[]string{clusterFile + `:7 | input vault_token: set twice | ` + clusterFile + `:5`}},
		{"a syntax error", some + "stage \"keys\" {\n  source = \n}\n",
			[]string{clusterFile + `:3 | Invalid expression`}},
	})
}

func TestProblemsInCastleFile(t *testing.T) {
	run(t, []problemTest{
		{"another version required", "-- castle.hcl --\n\nrequired_castle_version = \">= 2.0\"\n",
			[]string{"castle.hcl:2 | castle: version 1.4.0 does not suit this repository | requires " +
				"castle >= 2.0"}},
		{"no constraint", "-- castle.hcl --\nrequired_castle_version = \"new\"\n",
			[]string{"castle.hcl:1 | unsuitable required_castle_version"}},
		{"an empty constraint", "-- castle.hcl --\nrequired_castle_version = \"\"\n",
			[]string{"castle.hcl:1 | unsuitable required_castle_version"}},
		{"unknown block", "-- castle.hcl --\ndefalts {}\n",
			[]string{`castle.hcl:1 | Did you mean "defaults"?`}},
		{"a store of an unknown scheme", "-- castle.hcl --\nstate {\n  store = \"ftp://host/castle\"\n}\n",
			[]string{`castle.hcl:2 | unsuitable store | "ftp://host/castle" has an unknown scheme | s3://`}},
		{"a store without a bucket", "-- castle.hcl --\nstate {\n  store = \"s3:///castle\"\n}\n",
			[]string{"castle.hcl:2 | unsuitable store | names no bucket | s3://bucket/folder"}},
		{"a store in a relative folder", "-- castle.hcl --\nstate {\n  store = \"file://castle\"\n}\n",
			[]string{"castle.hcl:2 | unsuitable store | names no folder | three slashes"}},
		{"a store with a password",
			"-- castle.hcl --\nstate {\n  store = \"postgres://me:pa55@host/db\"\n}\n",
			[]string{"castle.hcl:2 | unsuitable store | Remove the password | PGPASSWORD"}},
		{"a store with a secret in its query",
			"-- castle.hcl --\nstate {\n  store = \"s3://b?secretkey=pa55\"\n}\n",
			[]string{"castle.hcl:2 | unsuitable store | Remove the parameter secretkey"}},
		{"no recipient", "-- castle.hcl --\nstate {\n  encryption {\n    recipients = []\n  }\n}\n",
			[]string{"castle.hcl:3 | no recipients | age-keygen"}},
		{"a recipient that is none", "-- castle.hcl --\nstate {\n  encryption {\n    recipients = [\n" +
			"      \"age1j6uma6v3jqlfm2dh32lv4mhgexuplv74sg9zymws0mte34ly05tqudrvtl\",\n" +
			"      \"me\"]\n    signers = [\"" + aSigner + "\"]\n  }\n}\n",
			[]string{`castle.hcl:5 | unsuitable recipient | "me" is no public key of age | age1…`}},
		{"an identity among the recipients", "-- castle.hcl --\nstate {\n  encryption {\n" +
			"    recipients = [\"AGE-SECRET-KEY-1QQQ\"]\n" +
			"    signers = [\"" + aSigner + "\"]\n  }\n}\n",
			[]string{"castle.hcl:3 | unsuitable recipient | this is an identity, which is secret"}},
		{"recipients without signers", "-- castle.hcl --\nstate {\n  encryption {\n" +
			"    recipients = [\"" + aRecipient + "\"]\n  }\n}\n",
			[]string{"castle.hcl:3 | no signers | nothing says who may write | " +
				"signers = [\"castle-ed25519:…\"] | castle state identity"}},
		{"a signer that is none", "-- castle.hcl --\nstate {\n  encryption {\n" +
			"    recipients = [\"" + aRecipient + "\"]\n" +
			"    signers = [\n      \"" + aRecipient + "\"]\n  }\n}\n",
			[]string{`castle.hcl:5 | unsuitable signer | is no signer. Write one that | castle-ed25519:…`}},
		{"an identity among the signers", "-- castle.hcl --\nstate {\n  encryption {\n" +
			"    recipients = [\"" + aRecipient + "\"]\n" +
			"    signers = [\"AGE-SECRET-KEY-1QQQ\"]\n  }\n}\n",
			[]string{"castle.hcl:4 | unsuitable signer | this is an identity, which is secret"}},
		{"too few snapshots", "-- castle.hcl --\nstate {\n  snapshots = 1\n}\n",
			[]string{"castle.hcl:2 | unsuitable snapshots | 1 is no whole number of at least 2"}},
		{"half a snapshot", "-- castle.hcl --\nstate {\n  snapshots = 2.5\n}\n",
			[]string{"castle.hcl:2 | 2.5 is no whole number"}},
		{"snapshots in words", "-- castle.hcl --\nstate {\n  snapshots = \"many\"\n}\n",
			[]string{"castle.hcl:2 | unsuitable value | a number is required"}},
		{"null snapshots", "-- castle.hcl --\nstate {\n  snapshots = null\n}\n",
			[]string{"castle.hcl:2 | unsuitable value | A number is needed, not null"}},
		{"unknown setting of the state", "-- castle.hcl --\nstate {\n  snapshot = 3\n}\n",
			[]string{"castle.hcl:2 | snapshots"}},
		{"no runs", "-- castle.hcl --\nruns {\n  keep = 0\n}\n",
			[]string{"castle.hcl:2 | unsuitable keep | 0 is no whole number of at least 1: of how many"}},
		{"runs in words", "-- castle.hcl --\nruns {\n  keep = \"all\"\n}\n",
			[]string{"castle.hcl:2 | unsuitable value | a number is required"}},
		{"unknown setting of the runs", "-- castle.hcl --\nruns {\n  kept = 3\n}\n",
			[]string{"castle.hcl:2 | keep"}},
		{"second state", "-- castle.hcl --\nstate {}\nstate {}\n",
			[]string{"castle.hcl:2 | Duplicate state block | castle.hcl:1"}},
		{"second defaults", "-- castle.hcl --\ndefaults {}\ndefaults {}\n",
			[]string{"castle.hcl:2 | Duplicate defaults block | castle.hcl:1"}},
	})
}

func TestProblemsInStageFile(t *testing.T) {
	run(t, []problemTest{
		{"ends_cluster outside the platform",
			"-- library/networking/metallb/stage.hcl --\nstage {\n  ends_cluster = true\n}\n",
			[]string{metallb + ":2 | ends_cluster outside the platform | networking"}},
		{"no boolean", "-- library/networking/metallb/stage.hcl --\nstage {\n  volatile = \"often\"\n}\n",
			[]string{metallb + ":2 | Unsuitable value | bool"}},
		{"two stage blocks", "-- library/networking/metallb/stage.hcl --\nstage {}\nstage {}\n",
			[]string{metallb + ":2 | Duplicate stage block | " + metallb + ":1"}},
		{"two gates of one name",
			"-- library/networking/metallb/stage.hcl --\nstage {}\ngate \"flux\" \"a\" {}\n" +
				"gate \"flux\" \"a\" {}\n",
			[]string{metallb + ":3 | second block gate flux.a | " + metallb + ":2"}},
		{"no stage.hcl", "-- stages/networking/metallb/main.tf --\n" +
			"output \"metallb_namespace\" { value = 1 }\n",
			[]string{"stages/networking/metallb/stage.hcl:1 | stage networking/metallb: no stage.hcl"}},
		{"Terraform that cannot be read",
			"-- library/networking/metallb/main.tf --\noutput \"metallb_namespace {\n",
			[]string{"<embedded>/stages/networking/metallb/main.tf:1 | quote missing"}},
	})
}

func TestProblemsInBlocks(t *testing.T) {
	gates := func(text string) string {
		return "-- library/networking/metallb/stage.hcl --\nstage {}\n" + text + "\n"
	}
	override := func(text string) string {
		return `-- clusters/blue/proxmox/terraform.tfvars --
-- library/platform/bare/stage.hcl --
stage {}
-- library/platform/bare/main.tf --
output "kubeconfig" { value = 1 }
-- clusters/blue/proxmox/cluster.hcl --
stage "bare" { source = "platform/bare" }
stage "metallb" {
  source = "networking/metallb"
  ` + text + "\n}\n"
	}
	run(t, []problemTest{
		{"an unknown gate", gates(`gate "nods" "ready" { count = 1 }`),
			[]string{
				metallb + `:2 | stage metallb: gate nods.ready: unknown type nods | Did you mean "nodes"?`,
			}},
		{"an unknown argument",
			gates("gate \"webhook\" \"a\" {\n  configuration = \"x\"\n  tiemout = \"1m\"\n}"),
			[]string{
				metallb +
					`:4 | stage metallb: gate webhook.a: unknown argument tiemout | Did you mean "timeout"?`,
			}},
		{"a missing argument", gates(`gate "webhook" "a" {}`),
			[]string{
				metallb +
					":2 | stage metallb: gate webhook.a: missing argument configuration | What to look at.",
			}},
		{"null for enabled", override("enabled = null"),
			[]string{"clusters/blue/proxmox/cluster.hcl:4 | unsuitable value | A bool is needed, not null"}},
		{"null for what is required", gates(`gate "webhook" "a" { configuration = null }`),
			[]string{metallb + ":2 | gate webhook.a: unsuitable configuration | not null"}},
		{"the wrong type", gates(`gate "nodes" "a" { count = "several" }`),
			[]string{metallb + ":2 | gate nodes.a: unsuitable count | a number is required"}},
		{"an argument that its type refuses", gates(`gate "nodes" "a" { count = 1.5 }`),
			[]string{metallb + ":2 | gate nodes.a: unsuitable count | invalid count 1.5"}},
		{"arguments that exclude each other",
			gates(`gate "tcp" "a" {` + "\n  host = \"a\"\n  address = \"b\"\n}"),
			[]string{
				metallb + ":2 | gate tcp.a: unsuitable arguments | host and address exclude each other",
			}},
		{"a bad timeout", gates(`gate "flux" "a" { timeout = "soon" }`),
			[]string{metallb + `:2 | gate flux.a: unsuitable timeout | invalid duration "soon"`}},
		{"a bad stable", gates(`gate "flux" "a" { stable = 0 }`),
			[]string{
				metallb +
					`:2 | gate flux.a: unsuitable stable | invalid count 0; use a whole number of at least 1`,
			}},
		{"a timeout that a run must find out", gates(`gate "flux" "a" { timeout = self.metallb_namespace }`),
			[]string{metallb + `:2 | gate flux.a: timeout is not known before a run`}},
		{"an unknown preflight", gates(`preflight "vm_id" "free" {}`),
			[]string{metallb + `:2 | preflight vm_id.free: unknown type vm_id | Did you mean "vm_ids"?`}},
		{"preflights have no timeout",
			gates("preflight \"vm_ids\" \"free\" {\n  endpoint = \"\"\n  api_token = \"\"\n" +
				"  vm_ids = {}\n  timeout = \"1m\"\n}"),
			[]string{metallb + `:6 | preflight vm_ids.free: unknown argument timeout`}},
		{"an adoption of nothing", gates(`adopt "helm_release.metalb" { id = "a" }`) +
			"-- library/networking/metallb/main.tf --\nresource \"helm_release\" \"metallb\" {}\n" +
			"output \"metallb_namespace\" { value = 1 }\n",
			[]string{
				metallb +
					`:2 | stage metallb: adopt helm_release.metalb: unknown resource | Did you mean ` +
					`"helm_release.metallb"?`,
			}},
		{"an adoption without an id", gates(`adopt "module.a.b.c" {}`),
			[]string{metallb + `:2 | adopt module.a.b.c: missing argument id`}},
		{"an adoption of no address", gates(`adopt "helm release" { id = "a" }`),
			[]string{metallb + `:2 | adopt helm release: unsuitable address`}},
		{"an adoption with an unknown question",
			gates("adopt \"module.a.b.c\" {\n  id = \"a\"\n  exists \"talos_bootstraped\" {}\n}"),
			[]string{
				metallb + `:4 | exists talos_bootstraped: unknown type | Did you mean "talos_bootstrapped"?`,
			}},
		{"an adoption with two questions",
			gates("adopt \"module.a.b.c\" {\n  id = \"a\"\n  exists \"talos_bootstrapped\" { endpoint = " +
				"\"a\" }\n  exists \"talos_bootstrapped\" { endpoint = \"b\" }\n}"),
			[]string{metallb + `:5 | Duplicate exists block | ` + metallb + `:4`}},
		{"a question with bad arguments",
			gates("adopt \"module.a.b.c\" {\n  id = \"a\"\n  exists \"talos_bootstrapped\" {\n" +
				"    endpont = cluster.name\n    timeout = \"soon\"\n  }\n}"),
			[]string{
				metallb +
					`:5 | exists talos_bootstrapped: unknown argument endpont | Did you mean "endpoint"?`,
				metallb + `:6 | exists talos_bootstrapped: unsuitable timeout | invalid duration "soon"`}},
		{"a question about what is not known",
			gates("adopt \"module.a.b.c\" {\n  id = \"a\"\n  exists \"talos_bootstrapped\" { endpoint = " +
				"self.x }\n}"),
			[]string{metallb + `:4 | exists talos_bootstrapped: endpoint: self is not known here`}},
		{"a replacement of nothing", gates(`replace "helm_release.metalb" { instance = {} }`) +
			"-- library/networking/metallb/main.tf --\nresource \"helm_release\" \"metallb\" {}\n" +
			"output \"metallb_namespace\" { value = 1 }\n",
			[]string{metallb + `:2 | replace helm_release.metalb: unknown resource | Did you mean`}},
		{"a replacement without an instance", gates(`replace "module.a.b.c" {}`),
			[]string{metallb + `:2 | replace module.a.b.c: missing argument instance`}},
		{"a replacement with what is no map", gates(`replace "module.a.b.c" { instance = "a" }`),
			[]string{metallb + `:2 | replace module.a.b.c: unsuitable instance`}},
		{"an override of nothing", override(`gate "endpoint_slice" "webhok" { timeout = "1m" }`),
			[]string{clusterFile + `:4 | stage metallb: no gate endpoint_slice.webhok to override | ` +
				metallb + ` | Did you mean "endpoint_slice.webhook"?`}},
		{"an override with a bad value", override(`gate "endpoint_slice" "webhook" { timeout = "1" }`),
			[]string{clusterFile + `:4 | stage metallb: gate endpoint_slice.webhook: unsuitable timeout`}},
		{"a good override", override(`gate "endpoint_slice" "webhook" { timeout = "1m" }`), nil},
		{"an override given twice",
			override("gate \"endpoint_slice\" \"webhook\" {}\n  gate \"endpoint_slice\" \"webhook\" {}"),
			[]string{clusterFile + ":5 | stage metallb: second block gate endpoint_slice.webhook | " +
				clusterFile + ":4"}},
	})
}
