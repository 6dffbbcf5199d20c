//go:build integration

package proxmox_test

import (
	"bytes"
	"context"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/json"
	"encoding/pem"
	"math/big"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"testing"
	"time"

	emulator "github.com/ephemeral-castle/castle/internal/emulator/proxmox"
)

const token = "castle@pve!castle=3f0c9a52-1b7e-4d55-9a51-0c8f3d1f6b27"

// datacenter is an emulator that listens on loopback under a CA of its own.
type datacenter struct {
	*emulator.Server
	endpoint string
	ca       string // file
}

func newDatacenter(t *testing.T, config emulator.Config) datacenter {
	t.Helper()
	config.Token = token
	d := datacenter{Server: emulator.New(config), ca: filepath.Join(t.TempDir(), "ca.pem")}
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	certificate, authority := certificates(t)
	if err := os.WriteFile(d.ca, authority, 0o600); err != nil {
		t.Fatal(err)
	}
	server := d.HTTPServer()
	server.TLSConfig = &tls.Config{Certificates: []tls.Certificate{certificate}, MinVersion: tls.VersionTLS13}
	go server.ServeTLS(listener, "", "") //nolint:errcheck // ends with Close
	t.Cleanup(func() {
		server.Close() //nolint:errcheck // the test is over
		d.Close()
	})
	d.endpoint = "https://" + listener.Addr().String()
	return d
}

// certificates makes a CA and a certificate of it for 127.0.0.1.
func certificates(t *testing.T) (tls.Certificate, []byte) {
	t.Helper()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	authority := &x509.Certificate{
		SerialNumber: big.NewInt(1), Subject: pkix.Name{CommonName: "test CA"}, NotAfter: time.Now().Add(time.Hour),
		IsCA: true, BasicConstraintsValid: true, KeyUsage: x509.KeyUsageCertSign,
	}
	caDER, err := x509.CreateCertificate(rand.Reader, authority, authority, &key.PublicKey, key)
	if err != nil {
		t.Fatal(err)
	}
	leaf := &x509.Certificate{
		SerialNumber: big.NewInt(2), Subject: pkix.Name{CommonName: "proxmox"}, NotAfter: time.Now().Add(time.Hour),
		IPAddresses: []net.IP{net.IPv4(127, 0, 0, 1)}, KeyUsage: x509.KeyUsageDigitalSignature,
	}
	leafDER, err := x509.CreateCertificate(rand.Reader, leaf, authority, &key.PublicKey, key)
	if err != nil {
		t.Fatal(err)
	}
	return tls.Certificate{Certificate: [][]byte{leafDER}, PrivateKey: key},
		pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: caDER})
}

// root is a Terraform working directory with the real bpg provider.
type root struct {
	t   *testing.T
	dir string
	env []string
}

func newRoot(t *testing.T, d datacenter, module string) root {
	t.Helper()
	binary := os.Getenv("CASTLE_BPG")
	if binary == "" {
		binary = "../../bin/terraform-provider-proxmox_v0.111.1"
	}
	binary, err := filepath.Abs(binary)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := os.Stat(binary); err != nil {
		t.Fatalf("the provider is not built: %v", err)
	}
	home := t.TempDir()
	mirror := filepath.Join(home, "mirror", "registry.terraform.io/bpg/proxmox/0.111.1/linux_amd64")
	if err := os.MkdirAll(mirror, 0o700); err != nil {
		t.Fatal(err)
	}
	if err := os.Symlink(binary, filepath.Join(mirror, filepath.Base(binary))); err != nil {
		t.Fatal(err)
	}
	r := root{t: t, dir: filepath.Join(home, "root")}
	files := map[string]string{
		filepath.Join(home, "terraformrc"): `provider_installation {
  filesystem_mirror { path = "` + filepath.Join(home, "mirror") + `" }
}`,
		filepath.Join(r.dir, "main.tf"): module,
	}
	if err := os.MkdirAll(r.dir, 0o700); err != nil {
		t.Fatal(err)
	}
	for name, content := range files {
		if err := os.WriteFile(name, []byte(content), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	r.env = []string{
		"PATH=" + os.Getenv("PATH"), "HOME=" + home, "TF_CLI_CONFIG_FILE=" + filepath.Join(home, "terraformrc"), "CHECKPOINT_DISABLE=1",
		"TF_IN_AUTOMATION=1", "SSL_CERT_FILE=" + d.ca, "PROXMOX_VE_ENDPOINT=" + d.endpoint, "PROXMOX_VE_API_TOKEN=" + token,
	}
	r.must("init", "-input=false", "-no-color")
	return r
}

func (r root) run(args ...string) (string, error) {
	ctx, cancel := context.WithTimeout(r.t.Context(), 3*time.Minute)
	defer cancel()
	cmd := exec.CommandContext(ctx, "terraform", args...)
	cmd.Dir, cmd.Env, cmd.WaitDelay = r.dir, r.env, 10*time.Second
	cmd.Cancel = func() error { return cmd.Process.Signal(os.Interrupt) }
	var out bytes.Buffer
	cmd.Stdout, cmd.Stderr = &out, &out
	err := cmd.Run()
	return out.String(), err
}

func (r root) must(args ...string) string {
	r.t.Helper()
	out, err := r.run(args...)
	if err != nil {
		r.t.Fatalf("terraform %v: %v\n%s", args, err, out)
	}
	return out
}

// plan returns the actions that a plan would take, by address.
func (r root) plan() map[string][]string {
	r.t.Helper()
	r.must("plan", "-input=false", "-no-color", "-out=plan")
	var plan struct {
		ResourceChanges []struct {
			Address string
			Change  struct{ Actions []string }
		} `json:"resource_changes"`
	}
	if err := json.Unmarshal([]byte(r.must("show", "-json", "plan")), &plan); err != nil {
		r.t.Fatal(err)
	}
	actions := map[string][]string{}
	for _, c := range plan.ResourceChanges {
		if len(c.Change.Actions) != 1 || c.Change.Actions[0] != "no-op" {
			actions[c.Address] = c.Change.Actions
		}
	}
	return actions
}
