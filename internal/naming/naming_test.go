package naming_test

import (
	"errors"
	"strings"
	"testing"

	"github.com/ephemeral-castle/castle/internal/naming"
)

func TestNamesAreLabelsOfHostNames(t *testing.T) {
	for name, want := range map[string]bool{
		"a": true, "7": true, "blue": true, "blue-2": true, "a--b": true, strings.Repeat("a", 40): true,
		"": false, "-a": false, "a-": false, "Blue": false, "a_b": false, "a.b": false, "a;id>pwn": false,
		"a\n::error::x": false, "köln": false, "..": false, "a/b": false, "a ": false, "a\n": false,
		strings.Repeat("a", 41): false,
	} {
		if naming.Suits(name) != want {
			t.Errorf("%q: want %v", name, want)
		}
	}
}

func TestAnErrorHasOneLineForEachName(t *testing.T) {
	err := naming.Check("clusters/a\n::error::/B", "rename the folder", "a\n::error::", "B")
	var one *naming.Error
	if !errors.As(err, &one) || one.Name != "a\n::error::" {
		t.Fatalf("no error of the name: %v", err)
	}
	want := `"clusters/a\n::error::/B": "a\n::error::" is no name for castle, which requires ` + naming.Rule +
		"; rename the folder\n" + `"clusters/a\n::error::/B": "B" is`
	if !strings.HasPrefix(err.Error(), want) {
		t.Errorf("got %s", err)
	}
	if err := naming.Check("", "", "blue", "proxmox"); err != nil {
		t.Error(err)
	}
}
