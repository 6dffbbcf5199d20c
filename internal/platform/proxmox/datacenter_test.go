package proxmox

import (
	"context"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"io"
	"math/big"
	"net"
	"net/http"
	"net/url"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	emulator "github.com/ephemeral-castle/castle/internal/emulator/proxmox"
	"github.com/ephemeral-castle/castle/internal/platform"
	"github.com/ephemeral-castle/castle/internal/platform/proxmox/session"
	"github.com/ephemeral-castle/castle/internal/platform/proxmox/values"
)

const token = "castle@pve!castle=3f0c9a52-1b7e-4d55-9a51-0c8f3d1f6b27"

// datacenter is an emulator that listens on loopback under a CA of its own.
type datacenter struct {
	server    *emulator.Server
	endpoint  string
	ca        string // file
	authority string // its content
	requests  *requests
}

// requests counts requests by path.
type requests struct {
	mu    sync.Mutex
	grown *sync.Cond
	count map[string]int
}

// counting returns h with every request counted.
func (r *requests) counting(h http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, request *http.Request) {
		r.mu.Lock()
		r.count[strings.TrimPrefix(request.URL.Path, "/api2/json/")]++
		r.grown.Broadcast()
		r.mu.Unlock()
		h.ServeHTTP(w, request)
	})
}

// await returns when a path was requested n times.
func (d datacenter) await(t *testing.T, path string, n int) {
	t.Helper()
	defer context.AfterFunc(t.Context(), d.requests.grown.Broadcast)()
	d.requests.mu.Lock()
	defer d.requests.mu.Unlock()
	for d.requests.count[path] < n && t.Context().Err() == nil {
		d.requests.grown.Wait()
	}
}

// soon is a context with so little time that a read which keeps failing is repeated only twice.
func soon(t *testing.T) context.Context {
	t.Helper()
	ctx, stop := context.WithTimeout(t.Context(), 4*time.Second)
	t.Cleanup(stop)
	return ctx
}

func newDatacenter(t *testing.T, config emulator.Config) datacenter {
	t.Helper()
	config.Token = token
	d := datacenter{server: emulator.New(config), ca: filepath.Join(t.TempDir(), "ca.pem")}
	d.requests = &requests{count: map[string]int{}}
	d.requests.grown = sync.NewCond(&d.requests.mu)
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	certificate, authority := certificates(t)
	if err := os.WriteFile(d.ca, authority, 0o600); err != nil {
		t.Fatal(err)
	}
	d.authority = string(authority)
	server := d.server.HTTPServer()
	server.Handler = d.requests.counting(server.Handler)
	server.TLSConfig = &tls.Config{Certificates: []tls.Certificate{certificate}, MinVersion: tls.VersionTLS13}
	go server.ServeTLS(listener, "", "") //nolint:errcheck // ends with Close
	t.Cleanup(func() {
		server.Close() //nolint:errcheck // the test is over
		d.server.Close()
	})
	d.endpoint = "https://" + listener.Addr().String()
	return d
}

// limit takes all rights from the token, and runs commands of pveum that give it others.
func (d datacenter) limit(t *testing.T, commands ...string) {
	t.Helper()
	for _, command := range append([]string{"pveum acl delete / --users castle@pve --roles Administrator"},
		commands...) {
		if _, err := d.server.Pveum(command); err != nil {
			t.Fatal(err)
		}
	}
}

// certificates makes a CA and a certificate of it for 127.0.0.1.
func certificates(t *testing.T) (tls.Certificate, []byte) {
	t.Helper()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	authority := &x509.Certificate{
		SerialNumber: big.NewInt(1), Subject: pkix.Name{CommonName: "test CA"},
		NotAfter: time.Now().Add(time.Hour),
		IsCA:     true, BasicConstraintsValid: true, KeyUsage: x509.KeyUsageCertSign,
	}
	caDER, err := x509.CreateCertificate(rand.Reader, authority, authority, &key.PublicKey, key)
	if err != nil {
		t.Fatal(err)
	}
	leaf := &x509.Certificate{
		SerialNumber: big.NewInt(2), Subject: pkix.Name{CommonName: "proxmox"},
		NotAfter:    time.Now().Add(time.Hour),
		IPAddresses: []net.IP{net.IPv4(127, 0, 0, 1)}, KeyUsage: x509.KeyUsageDigitalSignature,
	}
	leafDER, err := x509.CreateCertificate(rand.Reader, leaf, authority, &key.PublicKey, key)
	if err != nil {
		t.Fatal(err)
	}
	return tls.Certificate{Certificate: [][]byte{leafDER}, PrivateKey: key},
		pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: caDER})
}

// client talks to the datacenter with the token that it lets in.
func (d datacenter) client(t *testing.T) *Client {
	t.Helper()
	c, err := NewClient(platform.Account{Endpoint: d.endpoint, Token: token, CA: d.ca})
	if err != nil {
		t.Fatal(err)
	}
	return c
}

// build asks for a virtual machine as the provider does, up to the moment in which the answer would reach
// Terraform.
func (d datacenter) build(t *testing.T, id int, name, tags string, pool ...string) {
	t.Helper()
	if err := d.order(t, id, name, tags, pool...); err != nil {
		t.Fatalf("build VM %d: %v", id, err)
	}
}

func (d datacenter) order(t *testing.T, id int, name, tags string, pool ...string) error {
	t.Helper()
	form := url.Values{
		"vmid": {strconv.Itoa(id)}, "name": {name}, "tags": {tags}, "memory": {"4096"}, "cores": {"4"},
		"machine": {"q35"}, "ostype": {"l26"},
		"boot": {"order=scsi0;net0"}, "scsihw": {"virtio-scsi-single"}, "onboot": {"1"},
		"cpu": {"x86-64-v2-AES"}, "sockets": {"1"},
		"agent": {"enabled=0,fstrim_cloned_disks=0,type=virtio"}, "acpi": {"1"}, "bios": {"seabios"},
		"balloon": {"0"}, "keyboard": {"en-us"},
		"numa": {"0"}, "protection": {"0"}, "tablet": {"1"}, "template": {"0"}, "nameserver": {"127.10.0.1"},
		"net0": {"model=virtio,bridge=vmbr0,firewall=0"}, "ipconfig0": {"gw=127.10.0.1,ip=127.10.0.21/24"},
		"ide2": {"file=local-lvm:cloudinit,"}, "smbios1": {"uuid=" + values.UUIDOf("our key", name)},
		"scsi0": {"file=local-lvm:0,import-from=local:import/blue-talos-v1.13.0.qcow2," +
			"size=21474836480,aio=io_uring,backup=1,iothread=1,ssd=0,discard=on,cache=none,replicate=1"},
		"scsi1": {"file=local-lvm:50,format=raw," +
			"size=53687091200,aio=io_uring,backup=1,iothread=1,ssd=0,discard=on,cache=none,replicate=1"},
	}
	if len(pool) > 0 {
		form.Set("pool", pool[0])
	}
	return d.send(t, http.MethodPost, "nodes/proxmox/qemu", form)
}

// send makes a request that castle itself never makes.
func (d datacenter) send(t *testing.T, method, path string, form url.Values) error {
	t.Helper()
	r, err := http.NewRequestWithContext(t.Context(), method, d.endpoint+"/api2/json/"+path,
		strings.NewReader(form.Encode()))
	if err != nil {
		t.Fatal(err)
	}
	r.Header.Set("Authorization", "PVEAPIToken="+token)
	insecure := &http.Client{Transport: &http.Transport{DisableKeepAlives: true,
		TLSClientConfig: &tls.Config{InsecureSkipVerify: true}}}
	answer, err := insecure.Do(r)
	if err != nil {
		return err
	}
	defer answer.Body.Close() //nolint:errcheck // it was read
	body, err := io.ReadAll(answer.Body)
	if err == nil && answer.StatusCode != http.StatusOK {
		err = values.NewError(answer, body)
	}
	return err
}

// newClient makes a client whose requests a transport sends.
func newClient(token, address string, base http.RoundTripper) (*Client, error) {
	return clientOn(session.New(token, address, base))
}

// image is the disk image that build imports.
func image() emulator.Disk {
	return emulator.Disk{
		Volume: "local:import/blue-talos-v1.13.0.qcow2", Size: 1 << 30, Format: "qcow2", Content: "import",
		Source: "https://factory.talos.dev/image/abc/v1.13.0/nocloud-amd64.qcow2",
	}
}
