package doctor

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/ephemeral-castle/castle/internal/doctor/finding"
	"github.com/ephemeral-castle/castle/internal/secret"
	"github.com/ephemeral-castle/castle/internal/terraform"
)

// expect fails unless exactly one of the findings has this colour and name and
// has this text and fix.
func expect(t *testing.T, found []finding.Finding, name string, colour finding.Colour, text, fix string) {
	t.Helper()
	matches := 0
	for _, f := range found {
		if f.Name == name && f.Colour == colour && strings.Contains(f.Text, text) &&
			strings.Contains(f.Fix, fix) {
			matches++
		}
	}
	if matches != 1 {
		t.Errorf("%d findings are %s %s, %q, %q; got %+v", matches, colour, name, text, fix, found)
	}
}

func TestMissingOrOldTerraformIsAWarning(t *testing.T) {
	candidate := terraform.Candidate{Oldest: "1.9.0", Pinned: "1.14.9",
		Refused: []string{"/bin/terraform is not used: 1.5.7 is older than 1.9.0"}}
	m := Machine{Terraform: func(context.Context) (terraform.Candidate, error) { return candidate, nil }}
	expect(t, m.terraform(t.Context()), "", finding.Yellow, "PATH; /bin/terraform is not used: 1.5.7",
		"install Terraform 1.9.0")
	candidate.Path, candidate.Version = "/bin/terraform", "1.14.0"
	expect(t, m.terraform(t.Context()), "", finding.Green, "1.14.0, /bin/terraform", "")
	m.Terraform = func(context.Context) (terraform.Candidate, error) {
		return candidate,
			errors.New("broken")
	}
	expect(t, m.terraform(t.Context()), "", finding.Red, "broken", "")
}

func TestStateDirectoryIsPrivateToItsOwner(t *testing.T) {
	root := filepath.Join(t.TempDir(), "state")
	m := Machine{StateRoot: root}
	expect(t, m.state(t.Context()), "", finding.Green, "not created yet", "")
	platform := filepath.Join(root, "blue", "proxmox")
	if err := errors.Join(os.MkdirAll(platform, 0o700),
		os.WriteFile(filepath.Join(platform, "layout"), nil, 0o600)); err != nil {
		t.Fatal(err)
	}
	expect(t, m.state(t.Context()), "", finding.Green, "private to its owner", "")
	if err := os.Chmod(platform, 0o750); err != nil {
		t.Fatal(err)
	}
	expect(t, m.state(t.Context()), "", finding.Red, "mode 0750", "chmod 700 "+platform)
}

func TestMissingLabIsAWarning(t *testing.T) {
	expect(t, Machine{}.lab(t.Context()), "", finding.Yellow, "castle rehearse is not available",
		"make build")
	if _, fix := NoLab("linux", "arm64"); !strings.Contains(fix, "castle-lab_VERSION_linux_arm64.tar.gz") {
		t.Errorf("linux/arm64: %s", fix)
	}
	if problem, fix := NoLab("darwin", "arm64"); !strings.Contains(problem, "requires Linux") ||
		!strings.Contains(fix, "virtual machine") || strings.Contains(fix, "make") {
		t.Errorf("macOS: %s; %s", problem, fix)
	}
	expect(t, Machine{Lab: "/bin/castle-lab"}.lab(t.Context()), "", finding.Green, "/bin/castle-lab", "")
}

func TestReportHidesSecretsAndIsHealthyWithoutRed(t *testing.T) {
	hide := &secret.Masker{}
	hide.Add("hunter2hunter2")
	ask := func(found []finding.Finding) finding.Check {
		return finding.Check{Name: "x", Run: func(context.Context) []finding.Finding { return found }}
	}
	report, err := run(t.Context(), hide, &Report{},
		[]finding.Check{ask(finding.Warning("not hunter2hunter2", "it is hunter2hunter2")),
			ask(finding.Good("\n fine"))})
	if err != nil || !report.Healthy {
		t.Fatalf("%+v, %v", report, err)
	}
	expect(t, report.Findings, "x", finding.Yellow, "it is (sensitive)", "not (sensitive)")
	expect(t, report.Findings, "x", finding.Green, "fine", "")
	if report, err = run(t.Context(), hide, &Report{}, []finding.Check{ask(finding.Obstacle("",
		"no"))}); err != nil ||
		report.Healthy {
		t.Errorf("%+v, %v", report, err)
	}
}
