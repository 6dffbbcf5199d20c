package datacenter

import (
	"context"
	"crypto/tls"
	"slices"

	"github.com/ephemeral-castle/castle/internal/emulator/talos"
	"github.com/ephemeral-castle/castle/lab/internal/kubernetes"
)

// certify calls then once the one API server, which stands for those of all control planes, has a certificate
// with all their names. The caller holds the mutex, as then's caller does.
func (k *kube) certify(c *cluster, m talos.MachineSpec, then func()) {
	order := k.order(c).Kubernetes
	if slices.Equal(c.names, order.CertSANs) {
		then()
		return
	}
	if err := kubernetes.ReplaceCertificate(order); err != nil {
		k.log.say("kubernetes: certificate: %v", err)
		return
	}
	process := c.process
	go k.untilDone(k.ctx, "certificate with "+m.Hostname, process, func(ctx context.Context) error {
		if err := serves(ctx, c.backend, order.CertSANs); err != nil {
			return err
		}
		k.mu.Lock()
		defer k.mu.Unlock()
		if _, on := k.machines[m.Address]; on && k.cluster == c && c.process == process {
			c.names = order.CertSANs
			then()
		}
		return nil
	})
}

// serves is nil if the server at the address has a certificate with all the names.
func serves(ctx context.Context, address string, names []string) error {
	dialer := tls.Dialer{Config: &tls.Config{InsecureSkipVerify: true}} // the names are all that it is about
	conn, err := dialer.DialContext(ctx, "tcp", address)
	if err != nil {
		return err
	}
	defer conn.Close()
	leaf := conn.(*tls.Conn).ConnectionState().PeerCertificates[0]
	for _, name := range names {
		if err := leaf.VerifyHostname(name); err != nil {
			return err
		}
	}
	return nil
}
