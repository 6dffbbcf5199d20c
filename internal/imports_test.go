package internal_test

import (
	"encoding/json"
	"errors"
	"io"
	"os/exec"
	"slices"
	"strings"
	"testing"
)

const module = "github.com/ephemeral-castle/castle/"

// everywhere are the packages that every other one may import.
var everywhere = []string{"internal/atomicfile", "internal/event", "internal/foreign", "internal/naming",
	"internal/ownfile", "internal/process", "internal/secret"}

// table lists the packages of castle that each package may import, without those of everywhere. A package of
// the lab may import any other package of the lab. Imports point down only, and a package that is not listed
// fails. packages_test.go draws the table into docs/packages.md.
func table() map[string][]string {
	return map[string][]string{
		"cmd/castle": {"internal/cli", "internal/memory"},
		"bench":      {"internal/emulator/infisical", "internal/emulator/proxmox"},
		"bench/replay": {"internal/folders", "internal/cluster", "internal/config", "internal/graph",
			"internal/operation/topology", "internal/run", "internal/state", "internal/survivor",
			"internal/terraform", "stages", "templates"},
		"internal/cli": {"internal/folders",
			"internal/cluster", "internal/run", "internal/history", "internal/run/expiry",
			"internal/run/review", "internal/run/unrecorded", "internal/run/waiting",
			"internal/operation/changed", "internal/operation/explain", "internal/operation/history",
			"internal/operation/list", "internal/outdated",
			"internal/operation/create", "internal/operation/credentials",
			"internal/operation/destroy", "internal/operation/nuke",
			"internal/operation/plan", "internal/operation/providers", "internal/operation/recreate",
			"internal/operation/restore", "internal/operation/rollout",
			"internal/operation/rotation",
			"internal/operation/repair", "internal/operation/share",
			"internal/providers",
			"internal/run/backup", "internal/state/backups", "internal/state/commits",
			"internal/operation/seed", "internal/operation/status", "internal/operation/topology",
			"internal/state", "internal/state/workingcopy", "internal/check", "internal/config",
			"internal/doctor", "internal/doctor/finding", "internal/drawing", "internal/platform",
			"internal/platform/hcloud", "internal/platform/proxmox", "internal/state/keys",
			"internal/store/location",
			"internal/importer", "internal/scaffold", "internal/fault", "internal/report", "internal/tracing",
			"internal/ui",
			"stages", "templates", "internal/run/survival", "internal/fleet", "internal/fleet/record",
			"internal/labels", "internal/operation/waves",
			"internal/module", "internal/outline",
			"internal/syntax"},
		"docs/man":      {"internal/cli"},
		"docs/pictures": {},
		"internal/operation/create": {"internal/cluster", "internal/config", "internal/graph",
			"internal/gate", "internal/history", "internal/kube", "internal/kube/release",
			"internal/effect", "internal/platform",
			"internal/run",
			"internal/run/applied", "internal/run/diagnose", "internal/run/recovery", "internal/run/review",
			"internal/run/unrecorded", "internal/run/waiting", "internal/state",
			"internal/talos", "internal/terraform", "internal/run/survival"},
		"internal/operation/destroy": {"internal/cluster", "internal/config", "internal/graph",
			"internal/gate", "internal/kube", "internal/platform", "internal/run", "internal/run/applied",
			"internal/run/diagnose", "internal/run/recovery", "internal/run/unrecorded",
			"internal/run/waiting", "internal/state", "internal/state/recorded", "internal/terraform",
			"internal/tfeval", "internal/run/backup", "internal/run/survival", "internal/secretstore"},
		"internal/operation/rollout": {"internal/cluster", "internal/config", "internal/effect",
			"internal/gate", "internal/graph", "internal/history", "internal/kube", "internal/kube/client",
			"internal/kube/drain",
			"internal/operation/create", "internal/platform", "internal/run", "internal/run/applied",
			"internal/run/backup",
			"internal/run/recovery", "internal/run/review", "internal/run/waiting", "internal/state",
			"internal/talos", "internal/terraform", "internal/terraform/planned", "internal/tfeval"},
		"internal/operation/restore": {"internal/cluster", "internal/kube", "internal/kube/client",
			"internal/kube/drain", "internal/operation/create", "internal/platform", "internal/run",
			"internal/run/applied", "internal/run/backup", "internal/run/unrecorded", "internal/run/review",
			"internal/run/waiting", "internal/state", "internal/state/backups", "internal/talos",
			"internal/terraform"},
		"internal/operation/credentials": {"internal/cluster", "internal/config", "internal/gate",
			"internal/graph",
			"internal/kube", "internal/kube/drain", "internal/operation/create", "internal/run",
			"internal/run/applied", "internal/state", "internal/talos", "internal/tfeval"},
		"internal/operation/rotation": {"internal/cluster", "internal/config", "internal/kube",
			"internal/operation/create", "internal/probe", "internal/run", "internal/run/applied",
			"internal/run/waiting", "internal/secretstore/vault", "internal/state", "internal/tfeval"},
		"internal/operation/recreate": {"internal/cluster", "internal/config", "internal/operation/create",
			"internal/operation/destroy", "internal/run", "internal/run/applied", "internal/state",
			"internal/run/survival"},
		"internal/operation/plan": {"internal/cluster", "internal/config", "internal/gate",
			"internal/kube", "internal/kube/release", "internal/operation/rollout", "internal/platform",
			"internal/run", "internal/run/applied",
			"internal/run/recovery", "internal/run/review", "internal/run/unrecorded", "internal/run/waiting",
			"internal/state", "internal/state/recorded", "internal/terraform", "internal/tfeval"},
		"internal/operation/status": {"internal/cluster", "internal/config", "internal/doctor",
			"internal/gate", "internal/kube", "internal/kube/client", "internal/kube/gates",
			"internal/revision", "internal/run", "internal/run/applied", "internal/run/backup",
			"internal/run/diagnose", "internal/history", "internal/run/recovery", "internal/run/review",
			"internal/platform", "internal/run/unrecorded", "internal/run/waiting", "internal/state",
			"internal/doctor/finding", "internal/outdated", "internal/run/expiry",
			"internal/state/recorded", "internal/terraform", "internal/tfeval", "internal/run/survival"},
		"internal/operation/list": {"internal/folders", "internal/cluster", "internal/config", "internal/run",
			"internal/history", "internal/fleet", "internal/labels", "internal/outline", "internal/state"},
		"internal/operation/changed": {"internal/cluster", "internal/config", "internal/fleet",
			"internal/folders", "internal/gitops", "internal/labels", "internal/outline", "internal/syntax"},
		"internal/operation/explain": {"internal/cluster", "internal/config", "internal/folders",
			"internal/syntax"},
		"internal/outdated": {"internal/cluster", "internal/config", "internal/providers",
			"internal/talos", "internal/terraform", "internal/tfeval"},
		"internal/operation/history": {"internal/cluster", "internal/gate", "internal/run/applied",
			"internal/history", "internal/state"},
		"internal/history": {"internal/config", "internal/graph", "internal/state"},
		"internal/operation/nuke": {"internal/cluster", "internal/gate", "internal/platform",
			"internal/run", "internal/run/recovery", "internal/state", "internal/state/workingcopy",
			"internal/store"},
		"internal/operation/repair": {"internal/cluster", "internal/config", "internal/gate",
			"internal/platform", "internal/run", "internal/run/applied", "internal/state", "internal/syntax"},
		"internal/operation/providers": {"internal/cluster", "internal/providers", "internal/run",
			"internal/terraform"},
		"internal/operation/share": {"internal/cluster", "internal/state/commits", "internal/state/keys",
			"internal/state/workingcopy"},
		"internal/operation/seed": {"internal/cluster", "internal/secretstore", "internal/secretstore/vault"},
		"internal/operation/topology": {"internal/cluster", "internal/config", "internal/history",
			"internal/report", "internal/run/applied", "internal/state"},
		"internal/run/diagnose": {"internal/cluster", "internal/config", "internal/gate",
			"internal/kube", "internal/run", "internal/run/waiting", "internal/terraform"},
		"internal/run/recovery": {"internal/cluster", "internal/config", "internal/gate",
			"internal/kube", "internal/platform", "internal/run", "internal/state",
			"internal/terraform"},
		"internal/run/unrecorded": {"internal/cluster", "internal/config", "internal/gate",
			"internal/platform", "internal/run", "internal/run/waiting", "internal/secretstore",
			"internal/state", "internal/tfeval"},
		"internal/run/expiry": {"internal/cluster", "internal/config", "internal/doctor/finding",
			"internal/kube", "internal/run", "internal/run/recovery", "internal/secretstore",
			"internal/secretstore/infisical", "internal/secretstore/vault", "internal/state",
			"internal/talos"},
		"internal/run/review": {"internal/cluster", "internal/config", "internal/gate",
			"internal/effect", "internal/kube", "internal/kube/release", "internal/outline",
			"internal/run", "internal/run/applied", "internal/run/recovery", "internal/state",
			"internal/state/commits", "internal/talos", "internal/terraform", "internal/terraform/planned",
			"internal/tfeval"},
		"internal/run/applied": {"internal/cluster", "internal/history", "internal/config", "internal/gate",
			"internal/kube",
			"internal/providers", "internal/revision", "internal/run", "internal/run/waiting",
			"internal/state", "internal/state/recorded", "internal/terraform", "internal/tfeval"},
		"internal/run/backup": {"internal/cluster", "internal/etcd", "internal/kube", "internal/run",
			"internal/run/review", "internal/run/survival", "internal/state/backups", "internal/talos",
			"internal/terraform"},
		"internal/run/survival": {"internal/cluster", "internal/config", "internal/gate", "internal/kube",
			"internal/run", "internal/state", "internal/survivor"},
		"internal/run/waiting": {"internal/cluster", "internal/config", "internal/gate", "internal/run",
			"internal/state", "internal/terraform"},
		"internal/run": {"internal/cluster", "internal/history", "internal/config", "internal/gate",
			"internal/network",
			"internal/providers", "internal/secretstore", "internal/state", "internal/state/recorded",
			"internal/state/workingcopy", "internal/terraform", "internal/tfeval", "internal/survivor"},
		"internal/cluster": {"internal/check", "internal/config", "internal/gate", "internal/kube",
			"internal/revision", "internal/probe", "internal/platform", "internal/platform/all",
			"internal/secretstore/infisical", "internal/secretstore/vault", "internal/state",
			"internal/state/backups", "internal/state/commits", "internal/state/keys",
			"internal/state/workingcopy", "internal/store", "internal/store/location", "internal/talos",
			"internal/terraform", "internal/tfeval", "internal/longhorn", "internal/postgres",
			"internal/survivor", "internal/syntax", "internal/tailscale"},
		"internal/check": {"internal/folders", "internal/config", "internal/gitops",
			"internal/longhorn", "internal/module", "internal/providers", "internal/survivor",
			"internal/syntax", "internal/talos", "internal/tfeval"},
		"internal/tfeval": {"internal/config", "internal/syntax"},
		"internal/effect": {},
		"internal/platform": {"internal/config", "internal/doctor/finding", "internal/effect",
			"internal/gate", "internal/revision", "internal/terraform", "internal/terraform/planned"},
		"internal/platform/proxmox/values": {"internal/gate", "internal/platform", "internal/terraform"},
		"internal/platform/proxmox/session": {"internal/httpjson", "internal/platform",
			"internal/platform/proxmox/values"},
		"internal/platform/proxmox/host": {"internal/gate", "internal/platform/proxmox/session",
			"internal/platform/proxmox/values"},
		"internal/platform/all": {"internal/platform", "internal/platform/hcloud",
			"internal/platform/proxmox", "internal/platform/proxmox/doctor"},
		"internal/platform/hcloud": {"internal/doctor/finding", "internal/effect", "internal/gate",
			"internal/platform", "internal/revision", "internal/terraform", "internal/terraform/planned"},
		"internal/platform/proxmox/doctor": {"internal/doctor/finding", "internal/platform",
			"internal/platform/proxmox", "internal/platform/proxmox/host", "internal/tfeval"},
		"internal/doctor/finding": {},
		"internal/importer": {"internal/config", "internal/scaffold", "internal/syntax",
			"internal/talos"},
		"internal/scaffold": {"internal/folders", "internal/fleet", "internal/check", "internal/config",
			"internal/gitops",
			"internal/syntax"},
		"internal/doctor": {"internal/tfeval", "internal/config", "internal/gate",
			"internal/terraform", "internal/state", "internal/state/commits", "internal/store",
			"internal/platform", "internal/doctor/finding", "internal/talos",
			"internal/secretstore/infisical", "internal/secretstore/vault"},
		"internal/config": {"internal/folders", "internal/gate", "internal/graph", "internal/labels",
			"internal/module", "internal/outline", "internal/providers", "internal/syntax",
			"internal/state/keys", "internal/store/location", "internal/survivor"},
		"internal/folders": {"internal/syntax"},
		"internal/fleet/record": {"internal/cluster", "internal/config", "internal/history", "internal/run",
			"internal/state", "internal/state/commits", "internal/state/workingcopy"},
		"internal/operation/waves": {"internal/fleet", "internal/gate"},
		"internal/labels":          {"internal/syntax"},
		"internal/module":          {"internal/graph", "internal/syntax"},
		"internal/outline": {"internal/folders", "internal/labels", "internal/module",
			"internal/syntax"},
		"internal/fleet": {"internal/folders", "internal/labels", "internal/outline",
			"internal/syntax"},
		"internal/syntax":          {},
		"internal/graph":           {},
		"internal/survivor":        {"internal/gate"},
		"internal/survivor/bucket": {"internal/gate", "internal/store", "internal/survivor"},
		"internal/longhorn": {"internal/gate", "internal/kube/client", "internal/store",
			"internal/survivor", "internal/survivor/bucket"},
		"internal/postgres": {"internal/gate", "internal/kube/client", "internal/store",
			"internal/survivor", "internal/survivor/bucket"},
		"internal/gate":      {},
		"internal/revision":  {"internal/gate", "internal/state"},
		"internal/drawing":   {},
		"internal/event":     {},
		"internal/secret":    {},
		"internal/fault":     {},
		"internal/foreign":   {},
		"internal/naming":    {},
		"internal/providers": {"internal/module"},
		"internal/terraform": {"internal/providers", "internal/terraform/planned",
			"internal/terraform/warm"},
		"internal/terraform/warm":            {},
		"internal/state":                     {},
		"internal/state/recorded":            {"internal/providers", "internal/state"},
		"internal/store":                     {"internal/network", "internal/store/location"},
		"internal/store/location":            {},
		"internal/store/storetest":           {},
		"internal/state/keys":                {},
		"internal/etcd":                      {},
		"internal/state/backups":             {"internal/state/commits", "internal/store"},
		"internal/state/commits":             {"internal/state/keys", "internal/store"},
		"internal/state/commits/commitstest": {"internal/store"},
		"internal/state/workingcopy":         {"internal/state", "internal/state/commits", "internal/store"},
		"internal/atomicfile":                {},
		"internal/ownfile":                   {},
		"internal/memory":                    {},
		"internal/kube": {"internal/gate", "internal/kube/client", "internal/kube/diagnose",
			"internal/kube/gates", "internal/kube/release", "internal/revision", "internal/state"},
		"internal/kube/client":   {"internal/gate", "internal/network"},
		"internal/kube/gates":    {"internal/gate", "internal/kube/client", "internal/probe"},
		"internal/kube/diagnose": {"internal/gate", "internal/kube/client", "internal/kube/gates"},
		"internal/kube/release":  {"internal/gate", "internal/kube/client"},
		"internal/kube/drain":    {"internal/gate", "internal/kube", "internal/kube/client"},
		"internal/talos":         {"internal/effect", "internal/gate"},
		"internal/platform/proxmox": {"internal/doctor/finding", "internal/gate", "internal/httpjson",
			"internal/effect", "internal/platform", "internal/platform/proxmox/effects",
			"internal/platform/proxmox/host",
			"internal/platform/proxmox/session", "internal/platform/proxmox/values", "internal/revision",
			"internal/terraform", "internal/terraform/planned"},
		"internal/platform/proxmox/effects": {"internal/effect", "internal/terraform/planned"},
		"internal/terraform/planned":        {},
		"internal/secretstore/infisical":    {"internal/gate", "internal/httpjson", "internal/revision"},
		"internal/httpjson":                 {},
		"internal/network":                  {},
		"internal/secretstore/vault":        {"internal/gate", "internal/httpjson", "internal/revision"},
		"internal/secretstore": {"internal/tfeval", "internal/config", "internal/gate",
			"internal/secretstore/infisical", "internal/secretstore/vault"},
		"internal/gitops":             {"internal/graph"},
		"internal/process":            {},
		"internal/probe":              {"internal/gate", "internal/httpjson"},
		"internal/tailscale":          {"internal/event", "internal/gate", "internal/httpjson"},
		"internal/emulator/tailscale": {},
		"internal/ui":                 {"internal/history", "internal/report"},
		"internal/report":             {"internal/history"},
		"internal/tracing":            {"internal/history"},
		"internal/event/schematest":   {},
		"internal/emulator/hcloud":    {},
		"internal/emulator/proxmox": {"internal/emulator/proxmox/access", "internal/emulator/proxmox/failure",
			"internal/emulator/proxmox/guest", "internal/emulator/proxmox/ha",
			"internal/emulator/proxmox/option", "internal/emulator/proxmox/rpc",
			"internal/emulator/proxmox/storage"},
		"internal/emulator/proxmox/access": {"internal/emulator/proxmox/failure",
			"internal/emulator/proxmox/option"},
		"internal/emulator/proxmox/failure": {},
		"internal/emulator/proxmox/guest": {"internal/emulator/proxmox/access",
			"internal/emulator/proxmox/failure", "internal/emulator/proxmox/option",
			"internal/emulator/proxmox/rpc", "internal/emulator/proxmox/storage"},
		"internal/emulator/proxmox/ha": {"internal/emulator/proxmox/failure",
			"internal/emulator/proxmox/guest", "internal/emulator/proxmox/option",
			"internal/emulator/proxmox/rpc"},
		"internal/emulator/proxmox/option": {"internal/emulator/proxmox/failure"},
		"internal/emulator/proxmox/rpc": {"internal/emulator/proxmox/access",
			"internal/emulator/proxmox/failure", "internal/emulator/proxmox/option"},
		"internal/emulator/proxmox/storage": {"internal/emulator/proxmox/access",
			"internal/emulator/proxmox/failure", "internal/emulator/proxmox/option",
			"internal/emulator/proxmox/rpc"},
		"internal/emulator/talos": {"internal/emulator/talos/apid", "internal/emulator/talos/etcd",
			"internal/emulator/talos/health", "internal/emulator/talos/installer",
			"internal/emulator/talos/journal", "internal/emulator/talos/machineconfig",
			"internal/emulator/talos/resources"},
		"internal/emulator/talos/apid":          {},
		"internal/emulator/talos/etcd":          {"internal/emulator/talos/apid"},
		"internal/emulator/talos/health":        {"internal/emulator/talos/machineconfig"},
		"internal/emulator/talos/installer":     {},
		"internal/emulator/talos/journal":       {},
		"internal/emulator/talos/machineconfig": {},
		"internal/emulator/talos/resources":     {},
		"internal/emulator/imagefactory":        {},
		"internal/emulator/terraform":           {},
		"internal/emulator/infisical":           {},
		"internal/emulator/vault":               {},
		"stages":                                {},
		"templates":                             {},
	}
}

func TestImportsPointDown(t *testing.T) {
	allowed := table()
	for pkg, imports := range list(t, "..") {
		may, known := allowed[pkg]
		if !known {
			t.Errorf("package %s is not in the table: say there what it may import", pkg)
			continue
		}
		for _, imp := range imports {
			if !slices.Contains(may, imp) && !slices.Contains(everywhere, imp) {
				t.Errorf("%s imports %s, which the table does not allow", pkg, imp)
			}
		}
	}
}

func TestTheLabIsNotImported(t *testing.T) {
	for pkg, imports := range list(t, "..") {
		for _, imp := range imports {
			emulates := pkg == "bench" || strings.HasPrefix(pkg, "internal/emulator/")
			if strings.HasPrefix(imp, "lab/") || strings.HasPrefix(imp, "internal/emulator/") && !emulates {
				t.Errorf("%s imports %s: the product must not contain the lab", pkg, imp)
			}
		}
	}
}

func TestTheLabUsesOnlyWhatItStandsInFor(t *testing.T) {
	may := []string{
		"internal/config", "internal/cluster", "internal/folders", "internal/run", "internal/run/review",
		"internal/operation/create", "internal/operation/destroy", "internal/operation/nuke",
		"internal/operation/plan", "internal/operation/recreate", "internal/operation/repair",
		"internal/operation/seed", "internal/operation/status", "internal/operation/topology",
		"internal/state", "internal/emulator/hcloud", "internal/emulator/proxmox", "internal/emulator/talos",
		"internal/emulator/infisical", "internal/emulator/imagefactory", "internal/emulator/tailscale",
		"internal/platform/proxmox", "internal/platform/proxmox/host",
		"internal/event", "internal/fault", "internal/gitops", "internal/history", "internal/process",
		"internal/providers", "internal/secret",
		"internal/report", "internal/terraform", "internal/tfeval", "internal/ui", "internal/gate",
		"internal/kube", "stages", "templates",
	}
	for pkg, imports := range list(t, "../lab") {
		for _, imp := range imports {
			if !strings.HasPrefix(imp, "lab/") && !slices.Contains(may, imp) {
				t.Errorf("%s imports %s, which the lab may not", pkg, imp)
			}
		}
	}
}

// list returns the packages of castle below dir, without tests, and which of
// castle's packages each imports, both relative to the module.
func list(t *testing.T, dir string) map[string][]string {
	t.Helper()
	cmd := exec.Command("go", "list", "-e", "-json=ImportPath,GoFiles,Imports", "./...")
	cmd.Dir = dir
	out, err := cmd.Output()
	if err != nil {
		t.Fatalf("go list in %s: %v", dir, err)
	}
	packages := map[string][]string{}
	for decoder := json.NewDecoder(strings.NewReader(string(out))); ; {
		var p struct {
			ImportPath string
			GoFiles    []string
			Imports    []string
		}
		if err := decoder.Decode(&p); errors.Is(err, io.EOF) {
			break
		} else if err != nil {
			t.Fatal(err)
		}
		if len(p.GoFiles) == 0 {
			continue // nothing but tests
		}
		imports := []string{}
		for _, imp := range p.Imports {
			if rest, ours := strings.CutPrefix(imp, module); ours {
				imports = append(imports, rest)
			}
		}
		packages[strings.TrimPrefix(p.ImportPath, module)] = imports
	}
	if len(packages) == 0 {
		t.Fatalf("go list found no package in %s", dir)
	}
	return packages
}
