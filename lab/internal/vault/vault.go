// Package vault runs the lab's real Vault and puts the contents of its operator and of the user
// into it. The program lab-vault stands beside castle-lab. It links Vault itself, so it is built
// separately; a rehearsal of a cluster without Vault does not need it.
package vault

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/http/httputil"
	"net/netip"
	"net/url"
	"os"
	"os/exec"
	"path/filepath"

	"github.com/ephemeral-castle/castle/lab/internal/front"
)

// Program is the name of the program that is Vault.
const Program = "lab-vault"

// Options configure a Vault.
type Options struct {
	Program   string     // lab-vault
	Dir       string     // new and private; Vault itself keeps nothing there
	Address   netip.Addr // where it listens, at a port of its own
	Authority *front.Authority
	Log       io.Writer
}

// Server is a Vault that runs: unsealed, and empty at first.
type Server struct {
	address *url.URL
	keys    operator
	file    string
	ca      string
	client  *http.Client
	process *exec.Cmd
	stdin   io.Closer // Vault lives as long as it is open
}

// operator is lab-vault's record of its initialisation.
type operator struct {
	RootToken string `json:"root_token"`
	UnsealKey string `json:"unseal_key"`
}

// Start starts a Vault; it lasts until Close, or as long as this process.
func Start(ctx context.Context, o Options) (*Server, error) {
	s := &Server{file: filepath.Join(o.Dir, "keys.json"), ca: filepath.Join(o.Dir, "ca.crt")}
	certificate, key := filepath.Join(o.Dir, "tls.crt"), filepath.Join(o.Dir, "tls.key")
	if err := os.Mkdir(o.Dir, 0o700); err != nil {
		return nil, err
	}
	cert, private, err := o.Authority.Issue(o.Address.String())
	if err != nil {
		return nil, err
	}
	if err := errors.Join(os.WriteFile(certificate, cert, 0o600), os.WriteFile(key, private, 0o600),
		os.WriteFile(s.ca, o.Authority.Bundle(), 0o600)); err != nil {
		return nil, err
	}
	s.process = exec.CommandContext(ctx, o.Program, "--address", netip.AddrPortFrom(o.Address, 0).String(),
		"--certificate", certificate, "--key", key, "--keys", s.file)
	s.process.Env = []string{"HOME=" + o.Dir, "TMPDIR=" + o.Dir}
	s.process.Stderr = o.Log
	if s.stdin, err = s.process.StdinPipe(); err != nil {
		return nil, err
	}
	stdout, err := s.process.StdoutPipe()
	if err != nil {
		return nil, err
	}
	if err := s.process.Start(); err != nil {
		return nil, err
	}
	if err := s.ready(stdout, o.Authority.Bundle()); err != nil {
		return nil, errors.Join(fmt.Errorf("vault: %w", err), s.Close())
	}
	return s, nil
}

// ready waits for the line that lab-vault prints when Vault answers.
func (s *Server) ready(stdout io.Reader, bundle []byte) error {
	var ready struct{ Address string }
	if err := json.NewDecoder(stdout).Decode(&ready); err != nil {
		return fmt.Errorf("the process ended before it was ready: %w", err)
	}
	kept, err := os.ReadFile(s.file)
	if err == nil {
		err = json.Unmarshal(kept, &s.keys)
	}
	if err != nil {
		return err
	}
	if s.address, err = url.Parse(ready.Address); err != nil {
		return err
	}
	roots := x509.NewCertPool()
	roots.AppendCertsFromPEM(bundle)
	s.client = &http.Client{
		Transport: &http.Transport{TLSClientConfig: &tls.Config{MinVersion: tls.VersionTLS12,
			RootCAs: roots}},
	}
	return nil
}

// Handler answers as this Vault, at whatever address it has.
func (s *Server) Handler() http.Handler {
	return &httputil.ReverseProxy{
		Rewrite:   func(r *httputil.ProxyRequest) { r.SetURL(s.address) },
		Transport: s.client.Transport,
	}
}

// URL is where Vault itself listens, and CAFile the file with the authority
// that its certificate is from.
func (s *Server) URL() string { return s.address.String() }

// CAFile returns the file with the certificate authority of URL.
func (s *Server) CAFile() string { return s.ca }

// RootToken may do everything.
func (s *Server) RootToken() string { return s.keys.RootToken }

// KeysFile is the file with the root token and the unseal key.
func (s *Server) KeysFile() string { return s.file }

// Close stops Vault and discards its contents.
func (s *Server) Close() error {
	err := s.stdin.Close()
	if wait := s.process.Wait(); wait != nil {
		if _, ended := errors.AsType[*exec.ExitError](wait); !ended {
			err = errors.Join(err, wait)
		}
	}
	return err
}
