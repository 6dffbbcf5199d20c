package doctor

import (
	"context"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"fmt"
	"io"
	"log"
	"math/big"
	"net"
	"net/http"
	"net/http/httptest"
	"net/url"
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/ephemeral-castle/castle/internal/config"
	"github.com/ephemeral-castle/castle/internal/emulator/infisical"
	"github.com/ephemeral-castle/castle/internal/emulator/proxmox"
	"github.com/ephemeral-castle/castle/internal/gate"
	"github.com/ephemeral-castle/castle/internal/kube"
	"github.com/ephemeral-castle/castle/internal/platform/all"
	realproxmox "github.com/ephemeral-castle/castle/internal/platform/proxmox"
	"github.com/ephemeral-castle/castle/internal/probe"
	"github.com/ephemeral-castle/castle/internal/secret"
	realvault "github.com/ephemeral-castle/castle/internal/secretstore/infisical"
	"github.com/ephemeral-castle/castle/internal/tailscale"
	"github.com/ephemeral-castle/castle/internal/talos"
	"github.com/ephemeral-castle/castle/internal/terraform"
	"github.com/ephemeral-castle/castle/stages"
	"github.com/ephemeral-castle/castle/templates"
)

const (
	tokenID     = "castle@pve!castle"
	tokenSecret = "3f0c9a52-1b7e-4d55-9a51-0c8f3d1f6b27"
	gitToken    = "ghp_s3cr3ts3cr3t"
	password    = "open sesame, says Ali"
)

// TestMain makes this process trust its own CA: the system's
// certificates are read once.
func TestMain(m *testing.M) {
	dir, err := os.MkdirTemp("", "doctor")
	if err != nil {
		panic(err)
	}
	var authority []byte
	trusted, authority = certificates()
	file := filepath.Join(dir, "ca.pem")
	if err := os.WriteFile(file, authority, 0o600); err != nil {
		panic(err)
	}
	os.Setenv("SSL_CERT_FILE", file)
	os.Setenv("SSL_CERT_DIR", dir)
	code := m.Run()
	os.RemoveAll(dir)
	os.Exit(code)
}

var trusted tls.Certificate

// certificates creates a CA and its certificate for 127.0.0.1.
func certificates() (tls.Certificate, []byte) {
	must := func(err error) {
		if err != nil {
			panic(err)
		}
	}
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	must(err)
	authority := &x509.Certificate{
		SerialNumber: big.NewInt(1), Subject: pkix.Name{CommonName: "test CA"},
		NotAfter: time.Now().Add(time.Hour),
		IsCA:     true, BasicConstraintsValid: true, KeyUsage: x509.KeyUsageCertSign,
	}
	ca, err := x509.CreateCertificate(rand.Reader, authority, authority, &key.PublicKey, key)
	must(err)
	leaf := &x509.Certificate{
		SerialNumber: big.NewInt(2), Subject: pkix.Name{CommonName: "leaf"},
		NotAfter:    time.Now().Add(time.Hour),
		IPAddresses: []net.IP{net.IPv4(127, 0, 0, 1)}, DNSNames: []string{"localhost"},
		KeyUsage: x509.KeyUsageDigitalSignature,
	}
	der, err := x509.CreateCertificate(rand.Reader, leaf, authority, &key.PublicKey, key)
	must(err)
	return tls.Certificate{Certificate: [][]byte{der}, PrivateKey: key},
		pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: ca})
}

// secure serves h on loopback under a certificate that this process trusts.
func secure(t *testing.T, h http.Handler) string {
	t.Helper()
	s := httptest.NewUnstartedServer(h)
	s.Config.ErrorLog = log.New(io.Discard, "", 0)
	s.TLS = &tls.Config{Certificates: []tls.Certificate{trusted}, MinVersion: tls.VersionTLS12}
	s.StartTLS()
	t.Cleanup(s.Close)
	return s.URL
}

// distrusted serves h under a certificate that this process does not trust.
func distrusted(t *testing.T, h http.Handler) string {
	t.Helper()
	s := httptest.NewUnstartedServer(h)
	s.Config.ErrorLog = log.New(io.Discard, "", 0)
	s.StartTLS()
	t.Cleanup(s.Close)
	return s.URL
}

// certificateOf is the certificate, in PEM, with which a server answers.
func certificateOf(t *testing.T, address string) string {
	t.Helper()
	at, err := url.Parse(address)
	if err != nil {
		t.Fatal(err)
	}
	c, err := tls.Dial("tcp", at.Host, &tls.Config{InsecureSkipVerify: true})
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	return string(pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE",
		Bytes: c.ConnectionState().PeerCertificates[0].Raw}))
}

// world is everything that a cluster like mini relies on, healthy.
type world struct {
	hypervisor *proxmox.Server
	vault      *infisical.Server
	folder     infisical.Folder
	vars       map[string]string
	environ    []string
	target     Target
	skew       time.Duration // of every clock
	refs       string        // what the repository has
	lacks      string        // the provider that the mirror lacks
}

func newWorld(t *testing.T, c proxmox.Config) *world {
	t.Helper()
	c.Token = tokenID + "=" + tokenSecret
	if c.Storages == nil {
		c.Storages = storages("import", "images")
	}
	w := &world{
		hypervisor: proxmox.New(c), folder: infisical.Folder{Workspace: "p1", Environment: "prod",
			Path: "/ephemeral-castle/mini/proxmox"},
		vault: infisical.New(infisical.Config{ClientID: "castle", ClientSecret: password}),
		refs:  "refs/heads/master",
		environ: []string{"INFISICAL_UNIVERSAL_AUTH_CLIENT_ID=castle",
			"INFISICAL_UNIVERSAL_AUTH_CLIENT_SECRET=" + password, "HOME=" + t.TempDir()},
	}
	t.Cleanup(w.hypervisor.Close)
	w.limit(t, realproxmox.Footprint{Pool: "mini", Nodes: []string{"proxmox"}, Images: []string{"local"},
		Disks: []string{"local-lvm"}, Bridges: []string{"vmbr0"}}.Commands("castle@pve!blue")...)
	for name, value := range map[string]string{
		"PROXMOX_TOKEN_ID": tokenID, "PROXMOX_TOKEN_SECRET": tokenSecret, "GITHUB_TOKEN": gitToken,
		"ESO_CLIENT_ID": "external", "ESO_CLIENT_SECRET": "external-secret",
	} {
		w.vault.SetSecret(w.folder, name, value)
	}
	late := func(h http.Handler) http.Handler {
		return http.HandlerFunc(func(rw http.ResponseWriter, r *http.Request) {
			rw.Header().Set("Date", time.Now().Add(w.skew).UTC().Format(http.TimeFormat))
			h.ServeHTTP(rw, r)
		})
	}
	w.vars = map[string]string{
		"proxmox_pool":         "mini",
		"proxmox_endpoint":     secure(t, late(w.hypervisor.Handler())),
		"infisical_host":       secure(t, late(w.vault.Handler())),
		"infisical_project_id": "p1", "git_url": secure(t, http.HandlerFunc(w.git)) + "/me/cluster",
		"vip": "127.13.0.10", "network": `{ gateway = "127.13.0.1" }`, "talos_image_factory": "localhost",
		"nodes": `{ cp-01 = { role = "controlplane", vm_id = 441, address = "127.13.0.11" },
			worker-01 = { role = "worker", vm_id = 442, address = "127.13.0.12" } }`,
	}
	for _, chart := range []string{"metallb", "longhorn", "external_secrets", "flux"} {
		w.vars[chart+"_chart_repository"] = "https://localhost/charts"
	}
	w.target = Target{
		Platforms: all.Platforms(),
		Known:     func(*config.Stage) ([]gate.Known, error) { return nil, nil },
		Started:   func(*config.Stage) bool { return false },
		Plugins:   t.TempDir(),
	}
	return w
}

// limit takes all rights from the token, and runs commands of pveum that give it others.
func (w *world) limit(t *testing.T, commands ...string) {
	t.Helper()
	for _, command := range append([]string{"pveum acl delete / --users castle@pve --roles Administrator"},
		commands...) {
		if _, err := w.hypervisor.Pveum(command); err != nil {
			t.Fatal(err)
		}
	}
}

// storages are the two of a fresh installation.
func storages(local, lvm string) []proxmox.Storage {
	return []proxmox.Storage{{ID: "local", Type: "dir", Content: []string{local}},
		{ID: "local-lvm", Type: "lvmthin", Content: []string{lvm}}}
}

// git serves a repository that only the token can read.
func (w *world) git(rw http.ResponseWriter, r *http.Request) {
	if _, password, _ := r.BasicAuth(); password != gitToken {
		rw.WriteHeader(http.StatusUnauthorized)
		return
	}
	if r.URL.Path != "/me/cluster/info/refs" || r.URL.Query().Get("service") != "git-upload-pack" {
		rw.WriteHeader(http.StatusNotFound)
		return
	}
	rw.Header().Set("Content-Type", "application/x-git-upload-pack-advertisement")
	line := strings.Repeat("a", 40) + " " + w.refs + "\n"
	fmt.Fprintf(rw, "001e# service=git-upload-pack\n0000%04x%s0000", len(line)+4, line)
}

// load reads the cluster mini with the values of this world.
func (w *world) load(t *testing.T) {
	t.Helper()
	cluster, diags := config.Load(config.Options{
		Repository: "../..", Cluster: "mini", Vars: w.vars, CastleVersion: "1.0.0", Library: stages.Library,
		Templates: templates.Files,
		Gates: slices.Concat(kube.GateTypes(), talos.GateTypes(), probe.GateTypes(),
			tailscale.GateTypes()),
		Preflights: slices.Concat(realproxmox.PreflightTypes(), talos.PreflightTypes(),
			tailscale.PreflightTypes()),
		Exists: slices.Concat(kube.ExistsTypes(), talos.ExistsTypes(), realvault.ExistsTypes()),
	})
	if diags.HasErrors() {
		t.Fatal(diags)
	}
	w.target.Name, w.target.Platform, w.target.Stages, w.target.Masker = cluster.Name, cluster.Platform,
		cluster.Stages, &secret.Masker{}
}

// mirror sets up a filesystem mirror with every provider of the stages, and no registry.
func (w *world) mirror(t *testing.T) {
	t.Helper()
	dir := t.TempDir()
	for _, s := range w.target.Stages {
		for _, source := range s.Providers {
			if w.lacks != "" && strings.HasSuffix(source, w.lacks) {
				continue
			}
			if err := os.MkdirAll(filepath.Join(dir, source, "1.0.0", runtime.GOOS+"_"+runtime.GOARCH),
				0o700); err != nil {
				t.Fatal(err)
			}
		}
	}
	rc := filepath.Join(dir, "rc")
	if err := os.WriteFile(rc, []byte("provider_installation {\n  filesystem_mirror {\n    path = "+
		"\""+dir+"\"\n  }\n}\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	w.environ = append(w.environ, "TF_CLI_CONFIG_FILE="+rc)
}

// resolve resolves localhost only.
func resolve(_ context.Context, host string) ([]string, error) {
	if host == "localhost" {
		return []string{"127.0.0.1"}, nil
	}
	return nil, &net.DNSError{Err: "no such host", Name: host, IsNotFound: true}
}

// look checks the cluster in this world.
func (w *world) look(t *testing.T) *Report {
	t.Helper()
	w.load(t)
	return w.ask(t)
}

// ask checks the loaded cluster. No finding may contain a secret.
func (w *world) ask(t *testing.T) *Report {
	t.Helper()
	w.mirror(t)
	root := filepath.Join(t.TempDir(), "state")
	m := Machine{Environ: w.environ, StateRoot: root, Resolve: resolve,
		Terraform: func(context.Context) (terraform.Candidate, error) {
			return terraform.Candidate{Path: "/bin/terraform", Version: "1.14.0"}, nil
		}}
	report, err := OfCluster(t.Context(), m, w.target)
	if err != nil {
		t.Fatal(err)
	}
	for _, f := range report.Findings {
		for _, hidden := range []string{tokenSecret, gitToken, password, "external-secret"} {
			if strings.Contains(f.Text+f.Fix, hidden) {
				t.Errorf("%s contains %q", f.Name, hidden)
			}
		}
	}
	return report
}
