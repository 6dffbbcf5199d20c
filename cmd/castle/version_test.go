package main

import "testing"

// The workflow of castle ci installs castle by its version and finds it again by that.
func TestVersionOfAnInstalledCastle(t *testing.T) {
	for module, want := range map[string]string{
		"v1.2.3":                                     "v1.2.3",
		"v1.2.3-rc.1":                                "v1.2.3-rc.1",
		"v0.0.0-20261123031415-4db903511357":         "4db903511357",
		"v1.2.4-0.20261123031415-4db903511357":       "4db903511357",
		"v0.0.0-20261123031415-4db903511357+dirty":   development,
		"v1.2.4-0.20261123031415-4db903511357+dirty": development,
		"(devel)": development,
		"":        development,
	} {
		if got := installed(module); got != want {
			t.Errorf("%q: got %q, want %q", module, got, want)
		}
	}
}
