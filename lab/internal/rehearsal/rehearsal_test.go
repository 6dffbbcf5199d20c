package rehearsal

import (
	"bytes"
	"encoding/json"
	"errors"
	"io"
	"io/fs"
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"testing"
	"testing/fstest"
	"time"

	"github.com/ephemeral-castle/castle/internal/event"
	"github.com/ephemeral-castle/castle/lab/internal/providers"
)

func TestParseSpeed(t *testing.T) {
	for text, want := range map[string]float64{"fast": FastSpeed, "1": 1, "2.5": 2.5} {
		if got, err := ParseSpeed(text); err != nil || got != want {
			t.Errorf("%s: %v, %v", text, got, err)
		}
	}
	for _, text := range []string{"", "slow", "0", "-1", "1e9"} {
		if _, err := ParseSpeed(text); err == nil {
			t.Errorf("%q is taken", text)
		}
	}
}

func TestTwoClustersAreOnTwoPlatforms(t *testing.T) {
	s, err := inspect("../../..", Options{Cluster: "green"})
	check(t, err)
	o := Options{Cluster: "green", With: "csi", Command: []string{"true"}}
	err = s.join("../../..", o)
	if err == nil || !strings.Contains(err.Error(), "in Hetzner Cloud, and one") {
		t.Errorf("two in Hetzner Cloud: %v", err)
	}
	o.With = "blue"
	check(t, s.join("../../..", o))
	if !s.Both || !slices.Contains(s.Nodes, "green-cp-01") || !slices.Contains(s.Nodes, "blue-cp-01") ||
		s.Cloud == nil || s.Proxmox == "" {
		t.Errorf("both are %+v", s)
	}
	if o.Command = nil; s.join("../../..", o) == nil {
		t.Error("nobody creates the second cluster")
	}
}

func TestInspectFindsWhatBlueNames(t *testing.T) {
	s, err := inspect("../../..", Options{Cluster: "blue"})
	check(t, err)
	for what, in := range map[string][]string{
		"eu.infisical.com": s.Network.Hosts, "metallb.github.io": s.Network.Hosts,
		"github.com":     s.Network.Hosts,
		"blue-worker-01": s.Nodes,
		"proxmox":        s.Hosts.Nodes, "local-lvm": s.Hosts.Storages,
		"pveum pool add blue":               s.Hosts.Commands,
		"GITHUB_TOKEN":                      s.Secrets,
		"registry.terraform.io/bpg/proxmox": s.Providers,
	} {
		if !slices.Contains(in, what) {
			t.Errorf("%s is not among %v", what, in)
		}
	}
	var addresses []string
	for _, a := range s.Network.Addresses {
		addresses = append(addresses, a.String())
	}
	for _, want := range []string{"192.168.1.10", "192.168.1.210", "192.168.1.215"} {
		if !slices.Contains(addresses, want) {
			t.Errorf("%s is not among %v", want, addresses)
		}
	}
	if s.Proxmox != "https://192.168.1.10:8006/" || s.Infisical != "https://eu.infisical.com" {
		t.Errorf("services: %s, %s", s.Proxmox, s.Infisical)
	}
}

// The machines' network is where the configuration has it.
func TestInspectFindsTheVLANOfTheMachines(t *testing.T) {
	s, err := inspect("../../..", Options{Cluster: "everything"})
	check(t, err)
	if want := map[string]int{"vmbr0": 10, "vmbr1": 0}; !maps.Equal(s.Hosts.VLANs, want) {
		t.Errorf("VLANs %v, want %v", s.Hosts.VLANs, want)
	}
}

func TestTheNameOfTheAPIResolvesToWhatAnswersThere(t *testing.T) {
	s, err := inspect("../../..", Options{Cluster: "addresses"})
	check(t, err)
	for vip, want := range map[string]string{"": balancerAddress, "192.168.1.149": "192.168.1.149"} {
		s.VIP = vip
		if got := s.apiNames()["api.addresses.example.org"].String(); got != want {
			t.Errorf("with the VIP %q: %s", vip, got)
		}
	}
	s.APIEndpoint = "192.168.1.150"
	if got := s.apiNames(); len(got) != 0 {
		t.Errorf("an address: %v", got)
	}
}

func TestEveryProviderOfTheLibraryHasAProgram(t *testing.T) {
	s, err := inspect("../../..", Options{Cluster: "blue"})
	check(t, err)
	for _, source := range s.Providers {
		// part of Terraform itself
		known := source == registry+"/bpg/proxmox" || source == "terraform.io/builtin/terraform"
		for _, p := range providers.Providers() {
			known = known || source == registry+"/"+p.Source
		}
		if !known {
			t.Errorf("nothing stands in for %s", source)
		}
	}
}

func TestEnvironHoldsNothingThatLeadsOutside(t *testing.T) {
	p := &plan{Work: "/w", Survey: survey{Name: "blue", Platform: "proxmox",
		Proxmox: "https://192.0.2.10:8006/"}, Options: Options{Environ: []string{
		"PATH=/usr/bin", "HOME=/home/u", "TERM=xterm", "TF_VAR_vip=192.0.2.9",
		"HTTPS_PROXY=http://proxy.example.org", "KUBECONFIG=/real",
		"KUBE_HOST=https://real", "PROXMOX_VE_API_TOKEN=real", "PROXMOX_VE_ENDPOINT=https://real",
		"INFISICAL_HOST=https://real",
		"INFISICAL_UNIVERSAL_AUTH_CLIENT_SECRET=real", "VAULT_TOKEN=real", "TF_VAR_vault_role_secret_id=real",
		"AWS_SECRET_ACCESS_KEY=real", "CASTLE_STATE_DIR=/real",
		"TF_CLI_CONFIG_FILE=/real", "SSL_CERT_FILE=/real", "XDG_STATE_HOME=/real", "SSH_AUTH_SOCK=/real",
	}}}
	got := p.environ()
	for _, kv := range got {
		if strings.Contains(kv, "real") || strings.Contains(kv, "proxy") || strings.Contains(kv, "/home/u") {
			t.Errorf("inside: %s", kv)
		}
	}
	for _, want := range []string{"PATH=/w/bin:/usr/bin", "HOME=/w/home", "TERM=xterm",
		"TF_VAR_vip=192.0.2.9", "CASTLE_STATE_DIR=/w/state",
		"KUBECONFIG=/w/state/blue/proxmox/kubeconfig", "PROXMOX_VE_ENDPOINT=https://192.0.2.10:8006/",
		"SSL_CERT_FILE=/w/ca.crt"} {
		if !slices.Contains(got, want) {
			t.Errorf("%s is missing", want)
		}
	}
}

func TestLayOutServesEveryProviderUnderItsRealName(t *testing.T) {
	bin, mirror, programs := t.TempDir(), t.TempDir(), t.TempDir()
	if err := layOut(mirror, programs, bin, true); err == nil || !strings.Contains(err.Error(),
		"make build") {
		t.Errorf("nothing is built: %v", err)
	}
	for _, name := range []string{"lab-providers", "terraform-provider-proxmox_v" + proxmoxBuilt,
		"terraform-provider-hcloud_v" + hcloudBuilt} {
		check(t, os.WriteFile(filepath.Join(bin, name), []byte("#!/bin/sh\necho "+name+" as ${0##*/} $1\n"),
			0o755))
	}
	check(t, layOut(mirror, programs, bin, true))
	check(t, os.RemoveAll(bin)) // somebody builds anew
	here := runtime.GOOS + "_" + runtime.GOARCH
	want := map[string]string{
		filepath.Join("bpg/proxmox", proxmoxBuilt, here, proxmoxProgram):       proxmoxProgram,
		filepath.Join("hetznercloud/hcloud", hcloudBuilt, here, hcloudProgram): hcloudProgram,
	}
	for _, p := range providers.Providers() {
		want[filepath.Join(p.Source, p.Version, here, p.Binary())] = "lab-providers"
	}
	for path, program := range want {
		out, err := exec.Command(filepath.Join(mirror, "registry.terraform.io", path), "x").CombinedOutput()
		if got, as := string(out), program+" as "+filepath.Base(path)+" x\n"; err != nil || got != as {
			t.Errorf("%s: %q, %v; want %q", path, got, err, as)
		}
	}
}

func TestSecretNamesAreThoseThatAModuleReads(t *testing.T) {
	names, err := secretNames(fstest.MapFS{
		"main.tf": {
			Data: []byte(`x = ["GITHUB_TOKEN", "notone", "ALSO"]` + "\n" + `name = "KUBECONFIG_CONTENT"`),
		},
		"README.md": {Data: []byte(`"NOT_HERE"`)},
	})
	check(t, err)
	if !slices.Equal(names, []string{"GITHUB_TOKEN"}) {
		t.Errorf("names: %v", names)
	}
}

func TestWorkDirectoriesLeaveRoomForSockets(t *testing.T) {
	long := filepath.Join(t.TempDir(), strings.Repeat("x", 60))
	dir, err := workDirectory([]string{"XDG_CACHE_HOME=" + long}, "blue-proxmox")
	check(t, err)
	t.Cleanup(func() { check(t, os.RemoveAll(dir)) })
	if path := filepath.Join(dir, "kubernetes", "etcd.sock"); len(path) > 107 {
		t.Errorf("%s has %d characters", path, len(path))
	}
}

func TestTheReportTellsTheFirstRunAndFindsWhatTheLastChanged(t *testing.T) {
	began := time.Date(2026, 5, 1, 12, 0, 0, 0, time.UTC)
	at := func(s int) time.Time { return began.Add(time.Duration(s) * time.Second) }
	r := &round{plan: plan{Work: t.TempDir(), Survey: survey{Name: "blue", Platform: "proxmox"}}}
	write := func(run string, events ...event.Event) { writeRun(t, r, run, events...) }
	write("1-create",
		event.Event{Time: at(0), Kind: event.StageStarted, Layer: "networking", Stage: "metallb"},
		event.Event{Time: at(0), Kind: event.StepStarted, Layer: "networking", Stage: "metallb",
			Step: "apply"},
		event.Event{Time: at(4), Kind: event.Resource, Stage: "metallb", Address: "helm_release.metallb",
			Action: "create"},
		event.Event{Time: at(4), Kind: event.StepEnded, Layer: "networking", Stage: "metallb", Step: "apply",
			Seconds: 4},
		event.Event{Time: at(4), Kind: event.StepStarted, Layer: "networking", Stage: "metallb",
			Step: "gates"},
		event.Event{Time: at(6), Kind: event.StepEnded, Layer: "networking", Stage: "metallb", Step: "gates",
			Seconds: 2},
		event.Event{Time: at(6), Kind: event.StageReady, Layer: "networking", Stage: "metallb"})
	write("2-create",
		event.Event{Time: at(10), Kind: event.Resource, Stage: "infisical",
			Address: "data.infisical_secrets.cluster", Action: "read"},
		event.Event{Time: at(11), Kind: event.Resource, Stage: "keys", Address: "random_password.admin",
			Action: "update"})
	check(t, r.readStages())
	want := reportStage{Name: "metallb", Layer: "networking", Result: "ready", ApplySeconds: 4,
		GateSeconds: 2, Started: at(0), Ended: at(6)}
	if len(r.report.Stages) != 1 || r.report.Stages[0] != want {
		t.Errorf("stages: %+v", r.report.Stages)
	}
	changed, err := r.changedAgain()
	check(t, err)
	if !slices.Equal(changed, []string{"keys random_password.admin"}) {
		t.Errorf("changed: %v", changed)
	}
	for file, want := range map[string]string{"a.json": `"name": "metallb"`, "a.unknown": `"name": "metallb"`,
		"a.md": "| networking/metallb | ready |", "a.xml": `<testsuite name="networking/metallb"`} {
		r.plan.Options.Report = file
		check(t, r.publishable(r.plan.path("report.json")))
		content, err := os.ReadFile(r.plan.path("report.json"))
		check(t, err)
		if !strings.Contains(string(content), want) {
			t.Errorf("%s: %q is missing in\n%s", file, want, content)
		}
	}
	var out bytes.Buffer
	r.stdout = &out
	r.summary([]string{"VM 421"}, nil)
	for _, line := range []string{"Left over: VM 421", "does not prove"} {
		if !strings.Contains(out.String(), line) {
			t.Errorf("%q is missing in\n%s", line, out.String())
		}
	}
}

func TestTheReportHasTheCriticalPath(t *testing.T) {
	repository := t.TempDir()
	for name, content := range map[string]string{
		"clusters/blue/proxmox/cluster.hcl": `stage "seed" { source = "secrets/seed" }
			stage "trust" { source = "secrets/trust" }
			stage "machines" { source = "platform/machines" }`,
		"stages/secrets/seed/stage.hcl":      "stage {}",
		"stages/secrets/trust/stage.hcl":     "stage {}",
		"stages/platform/machines/stage.hcl": "stage {}",
	} {
		path := filepath.Join(repository, name)
		check(t, os.MkdirAll(filepath.Dir(path), 0o700))
		check(t, os.WriteFile(path, []byte(content), 0o600))
	}
	var out bytes.Buffer
	r := &round{plan: plan{Work: t.TempDir(), Survey: survey{Name: "blue", Platform: "proxmox"},
		Options: Options{Directory: repository}}, stdout: &out}
	r.environ = []string{"CASTLE_STATE_DIR=" + r.plan.path("state")}
	check(t, r.readRun())
	r.summary(nil, nil)
	if r.report.Run != nil || strings.Contains(out.String(), "ritical path") {
		t.Errorf("before any run: %+v\n%s", r.report.Run, out.String())
	}

	at := func(s int) time.Time { return time.Date(2026, 5, 1, 12, 0, s, 0, time.UTC) }
	events := []event.Event{{Time: at(0), Kind: event.RunStarted, Text: "create blue/proxmox"}}
	for _, s := range []struct {
		layer, name string
		ended       int
	}{{"secrets", "seed", 4}, {"secrets", "trust", 2}, {"platform", "machines", 30}} {
		events = append(events,
			event.Event{Time: at(0), Kind: event.StageStarted, Layer: s.layer, Stage: s.name},
			event.Event{Time: at(s.ended), Kind: event.StageReady, Layer: s.layer, Stage: s.name})
	}
	writeRun(t, r, "20260501T120000.000-create-000000",
		append(events, event.Event{Time: at(30), Kind: event.RunEnded, Text: "ok"})...)
	check(t, os.WriteFile(r.plan.path("state", "blue", "proxmox", "layout"), []byte("1\n"), 0o600))
	check(t, r.readRun())
	r.summary(nil, nil)
	if want := "Critical path, 30.0s: machines 30.0s\n\nLeft over"; !strings.Contains(out.String(), want) {
		t.Errorf("%q is missing in\n%s", want, out.String())
	}
	content, err := json.Marshal(r.report)
	check(t, err)
	if want := `"critical_seconds":30}`; !strings.Contains(string(content), want) {
		t.Errorf("%s is missing in %s", want, content)
	}
}

// writeRun writes a run's journal, the last line of which is torn.
func writeRun(t *testing.T, r *round, run string, events ...event.Event) {
	t.Helper()
	var text []byte
	for _, e := range events {
		line, err := json.Marshal(e)
		check(t, err)
		text = append(append(text, line...), '\n')
	}
	dir := r.plan.path("state", "blue", "proxmox", "runs", run)
	check(t, os.MkdirAll(dir, 0o700))
	check(t, os.WriteFile(filepath.Join(dir, "journal.jsonl"), append(text, `{"torn`...), 0o600))
}

func TestAPlanHoldsNoneOfTheUsersEnvironment(t *testing.T) {
	content, err := json.Marshal(plan{Options: Options{Environ: []string{"TOKEN=real"}}})
	check(t, err)
	if strings.Contains(string(content), "real") {
		t.Errorf("plan: %s", content)
	}
}

func check(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

// tree lists everything below a directory with its time of change.
func tree(t *testing.T, dir string) string {
	t.Helper()
	var all strings.Builder
	check(t, filepath.WalkDir(dir, func(path string, entry fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		info, err := entry.Info()
		all.WriteString(path + " " + info.Mode().String() + " " + info.ModTime().String() + "\n")
		return err
	}))
	return all.String()
}

func TestAFaultOfAnUnknownNodeIsRefused(t *testing.T) {
	home := t.TempDir()
	_, err := Run(t.Context(), Options{Cluster: "blue", Directory: "../../..", Speed: FastSpeed,
		Faults: []string{"node-dead=worker-99"}, Environ: []string{"HOME=" + home}}, io.Discard, io.Discard)
	const want = "fault node-dead: the cluster has no node worker-99; its nodes are blue-cp-01, "
	if !errors.As(err, new(*UsageError)) || !strings.HasPrefix(err.Error(), want) {
		t.Error(err)
	}
}
