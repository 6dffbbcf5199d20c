// Package kubernetestest configures a control plane for tests.
package kubernetestest

import (
	"net"
	"time"

	"github.com/siderolabs/talos/pkg/machinery/config"
	"github.com/siderolabs/talos/pkg/machinery/config/generate/secrets"

	"github.com/ephemeral-castle/castle/lab/internal/kubernetes"
)

// Config is a control plane in a directory, at a free port, with the secrets that Talos makes.
func Config(dir string) (kubernetes.Config, error) {
	bundle, err := secrets.NewBundle(secrets.NewFixedClock(time.Now()), config.TalosVersionCurrent)
	if err != nil {
		return kubernetes.Config{}, err
	}
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return kubernetes.Config{}, err
	}
	certs := bundle.Certs
	return kubernetes.Config{
		Dir: dir, Listen: l.Addr().String(), ServiceAccountKey: certs.K8sServiceAccount.Key,
		CA:           kubernetes.KeyPair{Certificate: certs.K8s.Crt, Key: certs.K8s.Key},
		AggregatorCA: kubernetes.KeyPair{Certificate: certs.K8sAggregator.Crt, Key: certs.K8sAggregator.Key},
	}, l.Close()
}
