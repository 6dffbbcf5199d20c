// Command castle raises a Kubernetes cluster from nothing and razes it without a trace.
package main

import (
	"os"

	"github.com/ephemeral-castle/castle/internal/cli"
)

// version is set by the linker (-X main.version=…).
var version = "development"

func main() {
	os.Exit(cli.Main(version, os.Args[1:], os.Stdin, os.Stdout, os.Stderr))
}
