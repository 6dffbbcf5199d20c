package cluster

import (
	"crypto/x509"
	"encoding/pem"
	"fmt"
	"time"

	"github.com/ephemeral-castle/castle/internal/gate"
	"github.com/ephemeral-castle/castle/internal/kube"
	"github.com/ephemeral-castle/castle/internal/talos"
)

// soon is the remaining lifetime at which the Talos provider renews a client certificate.
const soon = 30 * 24 * time.Hour

// Expiring lists the client certificates of a cluster's kubeconfig and talosconfig that expire soon. create
// is the command that renews them with --refresh: without it, a stage whose inputs are unchanged is up to
// date.
func Expiring(target gate.Target, create string) (lines []string) {
	add := func(file string, certificates [][]byte) {
		for _, text := range certificates {
			block, _ := pem.Decode(text)
			if block == nil {
				continue
			}
			c, err := x509.ParseCertificate(block.Bytes)
			if err != nil || time.Until(c.NotAfter) > soon {
				continue
			}
			verb := "expires"
			if time.Now().After(c.NotAfter) {
				verb = "has expired"
			}
			lines = append(lines, fmt.Sprintf("the client certificate of the %s %s on %s; to renew it: "+
				"%s --refresh --to %s", file, verb, c.NotAfter.UTC().Format(time.DateOnly), create,
				PlatformLayer))
		}
	}
	add("kubeconfig", kube.ClientCertificates(target.Kubeconfig))
	add("talosconfig", talos.ClientCertificates(target.Talosconfig))
	return lines
}
