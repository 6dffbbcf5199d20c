package main

import (
	"crypto/tls"
	"net"
	"net/http"
	"time"

	vaulthttp "github.com/hashicorp/vault/http"
	"github.com/hashicorp/vault/internalshared/configutil"
	"github.com/hashicorp/vault/vault"
)

// listening is Vault's API, answering.
type listening struct {
	*http.Server
	URL    string
	failed chan error
}

// serve answers with the certificate and key in the two files.
func serve(core *vault.Core, address, certificate, key string) (*listening, error) {
	pair, err := tls.LoadX509KeyPair(certificate, key)
	if err != nil {
		return nil, err
	}
	l, err := net.Listen("tcp", address)
	if err != nil {
		return nil, err
	}
	properties := &vault.HandlerProperties{Core: core, ListenerConfig: &configutil.Listener{}}
	s := &listening{URL: "https://" + l.Addr().String(), failed: make(chan error, 1)}
	s.Server = &http.Server{
		Handler: vaulthttp.Handler.Handler(properties), ReadHeaderTimeout: 10 * time.Second,
		TLSConfig: &tls.Config{MinVersion: tls.VersionTLS12, Certificates: []tls.Certificate{pair}},
	}
	go func() { s.failed <- s.ServeTLS(l, "", "") }()
	return s, nil
}
