package internal_test

import (
	"os"
	"regexp"
	"testing"
)

var requirement = regexp.MustCompile(`(?m)^(?:require |\t)(\S+) (v\S+)(?: // indirect)?$`)

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
