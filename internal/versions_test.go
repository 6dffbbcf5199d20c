package internal_test

import (
	"bytes"
	"os"
	"os/exec"
	"regexp"
	"testing"
)

var (
	requirement     = regexp.MustCompile(`(?m)^(?:require |\t)(\S+) (v\S+)(?: // indirect)?$`)
	pinnedTerraform = regexp.MustCompile(`(?m)^\tpinned += "([^"]+)"`)
	baseImage       = regexp.MustCompile(`(?m)^FROM docker.io/hashicorp/terraform:(\S+)$`)
)

// A package is compiled once for castle and its lab only if both use the same version of it, and of all that
// it imports. One indirect version has cost a hundred packages of the first build.
func TestTheLabRequiresTheVersionsOfCastle(t *testing.T) {
	required := func(file string) map[string]string {
		text, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		versions := map[string]string{}
		for _, m := range requirement.FindAllStringSubmatch(string(text), -1) {
			versions[m[1]] = m[2]
		}
		return versions
	}
	lab, shared := required("../lab/go.mod"), 0
	for module, version := range required("../go.mod") {
		switch other, is := lab[module]; {
		case is && other != version:
			t.Errorf("%s: %s in go.mod, %s in lab/go.mod", module, version, other)
		case is:
			shared++
		}
	}
	if shared < 100 {
		t.Errorf("found %d modules that both require; there are more", shared)
	}
}

// `go install …/cmd/castle@latest` refuses a module that replaces or excludes others.
func TestCastleCanBeInstalledByItsModule(t *testing.T) {
	out, err := exec.Command("go", "mod", "edit", "-json", "../go.mod").Output()
	if err != nil {
		t.Fatal(err)
	}
	for _, directive := range []string{`"Replace": null`, `"Exclude": null`} {
		if !bytes.Contains(out, []byte(directive)) {
			t.Errorf("go.mod lacks %s: go install …@version refuses it", directive)
		}
	}
}

func TestTheImageHasTheTerraformThatCastlePins(t *testing.T) {
	version := func(file string, re *regexp.Regexp) string {
		text, err := os.ReadFile(file)
		m := re.FindSubmatch(text)
		if err != nil || m == nil {
			t.Fatal(file, err)
		}
		return string(m[1])
	}
	pinned := version("terraform/find.go", pinnedTerraform)
	if image := version("../release/Dockerfile", baseImage); pinned != image {
		t.Errorf("castle pins Terraform %s, and release/Dockerfile has %s", pinned, image)
	}
}
