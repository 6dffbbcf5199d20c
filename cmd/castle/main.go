// Command castle raises a Kubernetes cluster from nothing and razes it without a trace.
package main

import (
	"os"
	"regexp"
	"runtime/debug"

	"github.com/ephemeral-castle/castle/internal/cli"
	_ "github.com/ephemeral-castle/castle/internal/memory" // before the packages that allocate
)

const development = "development"

// version is set by the linker (-X main.version=…).
var version = development

func main() {
	if info, ok := debug.ReadBuildInfo(); ok && version == development {
		version = installed(info.Main.Version)
	}
	os.Exit(cli.Main(version, os.Args[1:], os.Stdin, os.Stdout, os.Stderr))
}

var (
	tagged = regexp.MustCompile(`^v\d+\.\d+\.\d+(-[0-9A-Za-z.]+)?$`)
	// The version of a commit without a tag ends with the time and the commit.
	untagged = regexp.MustCompile(`^v.*[-.]\d{14}-([0-9a-f]{12})$`)
)

// installed returns castle's version from that of its module, which `go install` and nobody else sets.
func installed(module string) string {
	if commit := untagged.FindStringSubmatch(module); commit != nil {
		return commit[1]
	}
	if tagged.MatchString(module) {
		return module
	}
	return development
}
