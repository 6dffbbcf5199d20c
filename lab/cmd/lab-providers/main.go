// Command lab-providers is every stand-in Terraform provider of the lab in one
// binary. Which one it is follows from the name by which it is started:
// terraform-provider-<type>_v<version>, a link that castle-lab makes. The package
// in castle-lab's filesystem mirror is a script that starts this link.
package main

import (
	"fmt"
	"os"
	"path/filepath"

	"github.com/ephemeral-castle/castle/lab/internal/providers"
	"github.com/ephemeral-castle/castle/lab/internal/providers/helm"
	"github.com/ephemeral-castle/castle/lab/internal/providers/infisical"
	"github.com/ephemeral-castle/castle/lab/internal/providers/kubernetes"
	"github.com/ephemeral-castle/castle/lab/internal/providers/plugin"
	"github.com/ephemeral-castle/castle/lab/internal/providers/random"
	"github.com/ephemeral-castle/castle/lab/internal/providers/tailscale"
	"github.com/ephemeral-castle/castle/lab/internal/providers/talos"
	"github.com/ephemeral-castle/castle/lab/internal/providers/tls"
	"github.com/ephemeral-castle/castle/lab/internal/providers/vault"
)

func main() {
	if err := run(filepath.Base(os.Args[0])); err != nil {
		fmt.Fprintln(os.Stderr, "lab-providers:", err)
		os.Exit(1)
	}
}

func run(name string) error {
	for _, p := range providers.Providers() {
		if p.Binary() == name {
			return plugin.Serve(p.Source, implementations()[p.Type]())
		}
	}
	return fmt.Errorf("%s is the name of no provider: this binary is started through links such as %s",
		name, providers.Providers()[0].Binary())
}

func implementations() map[string]func() plugin.Provider {
	return map[string]func() plugin.Provider{
		"helm":       helm.New,
		"infisical":  infisical.New,
		"kubernetes": kubernetes.New,
		"random":     random.New,
		"tailscale":  tailscale.New,
		"talos":      talos.New,
		"tls":        tls.New,
		"vault":      vault.New,
	}
}
