//go:build integration

package main

import (
	"encoding/pem"
	"fmt"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/rogpeppe/go-internal/testscript"

	emulator "github.com/ephemeral-castle/castle/internal/emulator/proxmox"
)

const proxmoxToken = "castle@pve!test=0a1b2c3d-4e5f-6071-8293-a4b5c6d7e8f9"

// TestProxmox runs castle with real Terraform and the real bpg/proxmox provider
// against an emulated Proxmox on loopback.
func TestProxmox(t *testing.T) {
	provider, err := filepath.Abs("../../bin/terraform-provider-proxmox_v0.111.1")
	if err != nil {
		t.Fatal(err)
	}
	if _, err := os.Stat(provider); err != nil {
		t.Fatalf("the provider is not built (make build): %v", err)
	}
	run(t, "testdata/proxmox", func(env *testscript.Env) error {
		d := newDatacenter(env)
		env.Values[datacenterKey{}] = d
		env.Setenv("PROXMOX", d.server.URL)
		env.Setenv("TF_VAR_proxmox_endpoint", d.server.URL)
		env.Setenv("TF_VAR_proxmox_api_token", proxmoxToken)
		return d.writeFiles(env, provider)
	}, map[string]func(*testscript.TestScript, bool, []string){"proxmox": proxmox})
}

type datacenterKey struct{}

// datacenter is one script's Proxmox.
type datacenter struct {
	*emulator.Server
	server *httptest.Server
	held   chan struct{}
	once   sync.Once
	added  int
}

func newDatacenter(env *testscript.Env) *datacenter {
	d := &datacenter{
		Server: emulator.New(emulator.Config{Token: proxmoxToken, Duration: 10 * time.Millisecond}),
		held:   make(chan struct{}),
	}
	d.server = httptest.NewUnstartedServer(d.Handler())
	d.server.Config = d.HTTPServer()
	d.server.StartTLS()
	env.Defer(func() { d.release(); d.server.Close(); d.Close() })
	return d
}

func (d *datacenter) release() { d.once.Do(func() { close(d.held) }) }

// writeFiles writes the CA that the provider and castle trust, and a mirror
// that has the provider.
func (d *datacenter) writeFiles(env *testscript.Env, provider string) error {
	ca := filepath.Join(env.WorkDir, "ca.pem")
	block := pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: d.server.Certificate().Raw})
	mirror := filepath.Join(env.WorkDir, "mirror")
	home := filepath.Join(mirror, "registry.terraform.io/bpg/proxmox/0.111.1/linux_amd64")
	rc := filepath.Join(env.WorkDir, "terraformrc")
	env.Setenv("SSL_CERT_FILE", ca)
	env.Setenv("TF_CLI_CONFIG_FILE", rc)
	if err := os.MkdirAll(home, 0o700); err != nil {
		return err
	}
	if err := os.Symlink(provider, filepath.Join(home, filepath.Base(provider))); err != nil {
		return err
	}
	if err := os.WriteFile(rc, fmt.Appendf(nil, "provider_installation {\n  filesystem_mirror { path = %q }\n}\n", mirror), 0o600); err != nil {
		return err
	}
	return os.WriteFile(ca, block, 0o600)
}

// proxmox acts on the script's datacenter:
//
//	proxmox add ID NAME       somebody's running VM appears
//	proxmox remove ID         … and is gone
//	proxmox hold              VMs that are created stay under construction
//	proxmox wait N            until N VMs were asked for
//	proxmox release           what was held goes on
//	proxmox locked ID start   the VM's next start, or stop, finds its lock taken
//	proxmox drop              the next VM is created, but the answer is lost
//	proxmox break             no VM can be created any more
//	proxmox list              VMs and volumes, a line each, on stdout
//	proxmox created           how often a VM was asked for, on stdout
func proxmox(ts *testscript.TestScript, neg bool, args []string) {
	if neg || len(args) == 0 {
		ts.Fatalf("usage: proxmox add|remove|hold|wait|release|locked|drop|break|list|created")
	}
	d, _ := ts.Value(datacenterKey{}).(*datacenter)
	number := func() int {
		n, err := strconv.Atoi(args[1])
		ts.Check(err)
		return n
	}
	switch args[0] {
	case "add":
		d.added++ // every card has an address of its own
		card := fmt.Sprintf("virtio=BC:24:11:00:00:%02X,bridge=vmbr0", d.added)
		d.AddVM(emulator.VM{ID: number(), Name: args[2], Running: true, Config: map[string]string{"net0": card}})
	case "remove":
		d.RemoveVM(number())
	case "hold":
		d.Fail(emulator.Fault{Method: "POST", Path: "nodes/*/qemu", Hold: d.held})
	case "wait":
		for deadline := time.Now().Add(time.Minute); d.created() < number(); time.Sleep(10 * time.Millisecond) {
			if time.Now().After(deadline) {
				ts.Fatalf("only %d VMs were asked for", d.created())
			}
		}
	case "release":
		d.release()
		d.Idle()
	case "locked":
		d.Fail(emulator.Fault{
			Method: "POST", Path: fmt.Sprintf("nodes/*/qemu/%d/status/%s", number(), args[2]), Times: 1,
			Task: fmt.Sprintf("can't lock file '/var/lock/qemu-server/lock-%d.conf' - got timeout", number()),
		})
	case "drop":
		d.Fail(emulator.Fault{Method: "POST", Path: "nodes/*/qemu", Times: 1, Drop: true})
	case "break":
		d.Fail(emulator.Fault{Method: "POST", Path: "nodes/*/qemu", Code: 596, Text: "Connection timed out"})
	case "list":
		d.Idle()
		var lines []string
		for _, vm := range d.VMs() {
			lines = append(lines, fmt.Sprintf("VM %d %s running=%v %v", vm.ID, vm.Name, vm.Running, vm.Tags))
		}
		for _, disk := range d.Disks() {
			lines = append(lines, "volume "+disk.Volume)
		}
		_, err := fmt.Fprintln(ts.Stdout(), strings.Join(lines, "\n"))
		ts.Check(err)
	case "created":
		_, err := fmt.Fprintln(ts.Stdout(), d.created())
		ts.Check(err)
	default:
		ts.Fatalf("proxmox: unknown %q", args[0])
	}
}

func (d *datacenter) created() int {
	n := 0
	for _, r := range d.Requests() {
		if r.Method == "POST" && strings.HasSuffix(r.Path, "/qemu") && r.Status == 200 {
			n++
		}
	}
	return n
}
