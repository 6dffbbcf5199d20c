package internal_test

import (
	"bytes"
	goversion "go/version"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
)

var (
	requirement     = regexp.MustCompile(`(?m)^(?:require |\t)(\S+) (v\S+)(?: // indirect)?$`)
	pinnedTerraform = regexp.MustCompile(`(?m)^\tpinned += "([^"]+)"`)
	goLine          = regexp.MustCompile(`(?m)^go (\S+)$`)
	goVersionFile   = regexp.MustCompile(`(?m)^\s*go-version-file: (\S+)$`)
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

// The Makefile, the workflows and the documentation name one version of Go that builds every module. That of
// castle alone, which go install reads, may be lower.
func TestTheDocumentedGoBuildsEveryModule(t *testing.T) {
	read := func(file string) string {
		text, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		return string(text)
	}
	highest, modules := "", 0
	err := filepath.WalkDir("..", func(file string, d fs.DirEntry, err error) error {
		switch {
		case err != nil:
			return err
		case d.IsDir() && (d.Name() == "bin" || d.Name() == "dist" || d.Name() == ".git"):
			return fs.SkipDir
		case d.Name() != "go.mod":
			return nil
		}
		m := goLine.FindStringSubmatch(read(file))
		if m == nil {
			t.Errorf("%s has no go line", file)
			return nil
		}
		if modules++; goversion.Compare("go"+m[1], "go"+highest) > 0 {
			highest = m[1]
		}
		return nil
	})
	if err != nil || modules < 12 {
		t.Fatalf("found %d modules: %v", modules, err)
	}
	for file, words := range map[string]string{
		"../Makefile":        "\nGO         := " + highest + "\n",
		"../README.md":       "with Go " + highest + " or later",
		"../CONTRIBUTING.md": "with Go " + highest + " or later",
	} {
		if !strings.Contains(read(file), words) {
			t.Errorf("a module needs Go %s: %s lacks %q", highest, file, words)
		}
	}
	pinned := strings.TrimSpace(read("../.go-version"))
	if goversion.Compare("go"+pinned, "go"+highest) < 0 {
		t.Errorf(".go-version has %s, and a module needs Go %s", pinned, highest)
	}
	workflows, err := filepath.Glob("../.github/workflows/*.yml")
	if err != nil || len(workflows) == 0 {
		t.Fatal(workflows, err)
	}
	for _, workflow := range workflows {
		for _, m := range goVersionFile.FindAllStringSubmatch(read(workflow), -1) {
			if m[1] != ".go-version" {
				t.Errorf("%s reads Go's version from %s; use .go-version", workflow, m[1])
			}
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
