package main

import (
	"encoding/pem"
	"errors"
	"fmt"
	"net/http/httptest"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/rogpeppe/go-internal/testscript"

	emulator "github.com/ephemeral-castle/castle/internal/emulator/proxmox"
)

const nukeToken = "castle@pve!test=7d1f0c3e-2b54-4a68-9f0e-1c2d3e4f5a6b"

// TestNuke runs `castle nuke` against an emulated Proxmox on loopback. The fake
// Terraform of TestScript creates the clusters that exist before.
func TestNuke(t *testing.T) {
	run(t, "testdata/nuke", withFleet, map[string]func(*testscript.TestScript, bool, []string){"vm": vm,
		"collector": startCollector, "spans": spans, "killing": killing})
}

// killing kills a command of castle before changes that it makes, each time in the datacenter and with the
// state directory of the beginning, and gives it again: killing castle ARGS…. Not every change has its turn,
// because there are many.
func killing(ts *testscript.TestScript, neg bool, args []string) {
	f, _ := ts.Value(fleetKey{}).(*fleet)
	state, before := ts.MkAbs("../state"), ts.MkAbs("../before")
	ts.Check(os.CopyFS(before, os.DirFS(state)))
	const stride = 7
	for nth := 1; ; nth += stride {
		for _, v := range []emulator.VM{
			{ID: 421, Name: "blue-cp-01", Tags: []string{"blue", "castle"}, Running: true},
			{ID: 422, Name: "blue-cp-02", Tags: []string{"blue", "castle"}, Running: true},
			{ID: 425, Name: "prod-database", Running: true},
		} {
			f.proxmox.RemoveVM(v.ID)
			f.add(v)
		}
		ts.Check(os.RemoveAll(state))
		ts.Check(os.CopyFS(state, os.DirFS(before)))
		err := ts.Exec("killed-at-change", append([]string{strconv.Itoa(nth)}, args...)...)
		if err != nil && !strings.Contains(ts.ReadFile("stderr"), "killed at") {
			if nth == 1 {
				ts.Fatalf("it makes no change: %v", err)
			}
			fmt.Fprintln(ts.Stdout(), "fewer than", nth, "changes")
			return
		}
		f.proxmox.Idle()
		killed := ts.ReadFile("stderr")
		err = ts.Exec(args[0], args[1:]...)
		const foreignLeft = 6
		if exit := new(exec.ExitError); !errors.As(err, &exit) || exit.ExitCode() != foreignLeft {
			ts.Fatalf("after a kill at change %d: %v\n%s\n%s", nth, err, killed, ts.ReadFile("stderr"))
		}
		f.proxmox.Idle()
		if left := f.left(); !slices.Equal(left, []string{"VM 425 running true", "local-lvm:vm-425-disk-0"}) {
			ts.Fatalf("after a kill at change %d these are left: %v\n%s", nth, left, killed)
		}
		names, err := filepath.Glob(filepath.Join(state, "blue/proxmox/stages/*/terraform.tfstate"))
		if err != nil || len(names) > 0 {
			ts.Fatalf("after a kill at change %d states are left: %v, %v\n%s", nth, names, err, killed)
		}
	}
}

// left are the machines that there are, and then the volumes.
func (f *fleet) left() (all []string) {
	for _, v := range f.proxmox.VMs() {
		all = append(all, fmt.Sprintf("VM %d running %t", v.ID, v.Running))
	}
	for _, disk := range f.proxmox.Disks() {
		all = append(all, disk.Volume)
	}
	return all
}

// withFleet gives a script an emulated Proxmox, and the fake Terraform.
func withFleet(env *testscript.Env) error {
	f := newFleet(env)
	env.Values[fleetKey{}], env.Values[collectedKey{}] = f, &collected{}
	env.Setenv("PROXMOX_VE_ENDPOINT", f.server.URL)
	env.Setenv("PROXMOX_VE_API_TOKEN", nukeToken)
	env.Setenv("TF_VAR_endpoint", f.server.URL)
	env.Setenv("ELSEWHERE", strings.Replace(f.server.URL, "127.0.0.1", "localhost", 1))
	env.Setenv("TF_VAR_token", nukeToken)
	ca := filepath.Join(env.WorkDir, "ca.pem")
	env.Setenv("SSL_CERT_FILE", ca)
	block := pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: f.server.Certificate().Raw})
	if err := os.WriteFile(ca, block, 0o600); err != nil {
		return err
	}
	return fakeOnPath(env)
}

type fleetKey struct{}

// fleet is the datacenter of one script.
type fleet struct {
	proxmox *emulator.Server
	server  *httptest.Server

	mu     sync.Mutex
	swaps  map[int]bool
	spawns map[int]int
	added  int
	holds  *heldStop
}

// heldStop keeps a machine's stop from coming to its end.
type heldStop struct {
	id                int
	reached, released chan struct{}
}

func newFleet(env *testscript.Env) *fleet {
	f := &fleet{swaps: map[int]bool{}, spawns: map[int]int{}}
	f.proxmox = emulator.New(emulator.Config{Token: nukeToken, OnStop: f.stopped})
	f.server = httptest.NewUnstartedServer(f.proxmox.Handler())
	f.server.Config = f.proxmox.HTTPServer()
	f.server.StartTLS()
	env.Defer(func() { f.release(); f.server.Close(); f.proxmox.Close() })
	return f
}

// stopped runs when a machine stops. If the script requested it, stopped replaces the
// machine, adds another of the same name beside it, or keeps the task running.
func (f *fleet) stopped(was emulator.VM) {
	f.mu.Lock()
	swap, beside, held := f.swaps[was.ID], f.spawns[was.ID], f.holds
	delete(f.swaps, was.ID)
	delete(f.spawns, was.ID)
	f.mu.Unlock()
	if held != nil && held.id == was.ID {
		close(held.reached)
		<-held.released
	}
	if beside != 0 {
		f.add(emulator.VM{ID: beside, Name: was.Name, Tags: was.Tags})
	}
	if swap {
		f.proxmox.RemoveVM(was.ID)
		f.add(emulator.VM{ID: was.ID, Name: was.Name, Tags: was.Tags})
	}
}

// release lets what was held go on.
func (f *fleet) release() {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.holds != nil {
		close(f.holds.released)
		f.holds = nil
	}
}

// add gives a machine what tells it from all others, and a disk.
func (f *fleet) add(v emulator.VM) {
	f.mu.Lock()
	f.added++
	v.Config = map[string]string{
		"smbios1": fmt.Sprintf("uuid=00000000-0000-4000-8000-%012d", f.added),
		"scsi0":   fmt.Sprintf("local-lvm:vm-%d-disk-0,size=20G", v.ID),
	}
	f.mu.Unlock()
	f.proxmox.AddVM(v)
}

// vm acts on the script's datacenter:
//
//	vm add ID NAME [TAG…] [+PROPERTY…]   adds a running machine
//	vm disk ID VOLUME [USER]             adds a disk with its id, used by the machine USER if named
//	vm remove ID                         removes the machine and its disks
//	vm swap ID                           replaces the machine by another as soon as it stops
//	vm spawn ID OTHER                    adds another machine beside it as soon as it stops
//	vm hold ID                           keeps the task that stops it running
//	vm await                             waits until that task has begun
//	vm release                           lets that task continue
//	vm stick ID                          makes its disk impossible to free
//	vm list                              prints machines and volumes to stdout, one a line
//	vm asked                             prints the requests that change anything to stdout
func vm(ts *testscript.TestScript, neg bool, args []string) {
	if neg || len(args) == 0 {
		ts.Fatalf("usage: vm add|disk|remove|swap|spawn|hold|await|release|stick|list|asked")
	}
	f, _ := ts.Value(fleetKey{}).(*fleet)
	id := 0
	if len(args) > 1 {
		var err error
		id, err = strconv.Atoi(args[1])
		ts.Check(err)
	}
	switch args[0] {
	case "add":
		f.add(described(ts, id, args[2:]))
	case "disk":
		f.proxmox.AddDisk(emulator.Disk{Volume: args[2], Owner: id, Content: "images", Size: 20 << 30})
		if len(args) > 3 {
			for _, v := range f.proxmox.VMs() {
				if strconv.Itoa(v.ID) == args[3] {
					v.Config["scsi7"] = args[2]
					f.proxmox.AddVM(v)
				}
			}
		}
	case "remove":
		f.proxmox.RemoveVM(id)
	case "swap":
		f.mu.Lock()
		f.swaps[id] = true
		f.mu.Unlock()
	case "spawn":
		other, err := strconv.Atoi(args[2])
		ts.Check(err)
		f.mu.Lock()
		f.spawns[id] = other
		f.mu.Unlock()
	case "hold":
		f.mu.Lock()
		f.holds = &heldStop{id: id, reached: make(chan struct{}), released: make(chan struct{})}
		f.mu.Unlock()
	case "await":
		f.mu.Lock()
		reached := f.holds.reached
		f.mu.Unlock()
		select {
		case <-reached:
		case <-time.After(time.Minute):
			ts.Fatalf("it was never stopped")
		}
	case "release":
		f.release()
		f.proxmox.Idle()
	case "stick":
		f.proxmox.AddDisk(emulator.Disk{Volume: fmt.Sprintf("local-lvm:vm-%d-disk-0", id), Owner: id,
			Content: "images", Stuck: true})
	case "list":
		f.proxmox.Idle()
		var lines []string
		for _, v := range f.proxmox.VMs() {
			lines = append(lines, fmt.Sprintf("VM %d %s running=%v %s", v.ID, v.Name, v.Running,
				v.Config["smbios1"]))
		}
		for _, disk := range f.proxmox.Disks() {
			lines = append(lines, "volume "+disk.Volume)
		}
		fmt.Fprintln(ts.Stdout(), strings.Join(lines, "\n"))
	case "asked":
		var lines []string
		for _, r := range f.proxmox.Requests() {
			if r.Method != "GET" {
				lines = append(lines, r.Method+" "+r.Path)
			}
		}
		fmt.Fprintln(ts.Stdout(), strings.Join(lines, "\n"))
	default:
		ts.Fatalf("vm: unknown %q", args[0])
	}
}

func described(ts *testscript.TestScript, id int, words []string) emulator.VM {
	v := emulator.VM{ID: id, Name: words[0], Running: true}
	for _, word := range words[1:] {
		property, ok := strings.CutPrefix(word, "+")
		switch {
		case !ok:
			v.Tags = append(v.Tags, word)
		case property == "protected":
			v.Protection = true
		case property == "template":
			v.Template, v.Running = true, false
		case property == "backup":
			v.Lock = "backup"
		case property == "ha":
			v.HA = true
		case property == "replicated":
			v.Replicated = true
		case property == "lxc":
			v.Kind = "lxc"
		case property == "hidden":
			v.Hidden = true
		case property == "pooled":
			v.Pool = "castle"
		default:
			ts.Fatalf("vm: unknown +%s", property)
		}
	}
	slices.Sort(v.Tags) // as Proxmox keeps them
	return v
}
