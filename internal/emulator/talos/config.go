package talos

import (
	"context"
	"io"
	"net/netip"
	"time"

	"github.com/ephemeral-castle/castle/internal/emulator/talos/machineconfig"
)

// Config is how a Fleet behaves. Its zero value is a fleet that takes no time.
type Config struct {
	Delays Delays
	Hooks  Hooks
	// Registries are hosts that have installer images, beside factory.talos.dev, ghcr.io and the mirrors that
	// a machine's configuration names.
	Registries []string
	// HasSchematic reports whether the image factory knows the schematic of an installer; nil means that it
	// knows all.
	HasSchematic func(id string) bool
	// AfterFunc runs f once d has passed. Tests that drive time themselves set it; nil means time.AfterFunc.
	AfterFunc func(d time.Duration, f func())
}

// ClusterSpec describes the Kubernetes API that would now start, as the bootstrapped machine's configuration
// has it.
type ClusterSpec = machineconfig.ClusterSpec

// MachineSpec is the Node that a configured machine's kubelet would register.
type MachineSpec = machineconfig.MachineSpec

// Delays is how long a machine takes for each step.
type Delays struct {
	Boot       time.Duration // power on to an API that answers
	Install    time.Duration // first configuration accepted to the API of the installed system; an upgrade
	Pull       time.Duration // of an installer image
	Stop       time.Duration // order to restart to the end of the API
	Services   time.Duration // that API to "bootstrap is available"
	Etcd       time.Duration // bootstrap to a first etcd member that serves
	Join       time.Duration // learner added to learner running
	Promote    time.Duration // learner running to voter
	Kubernetes time.Duration // first etcd member to OnBootstrap
	Campaign   time.Duration // etcd member votes to the machine competes for its virtual addresses
	Session    time.Duration // power cut to the machine's loss of a virtual address
}

// Realistic returns the delays of small virtual machines that start from an image of Talos. With those of
// Proxmox, a script takes the 101 s for a platform that TazLab published ("Eliminating Ansible", June 2026).
func Realistic() Delays {
	return Delays{
		Boot: 12 * time.Second, Install: 18 * time.Second, Services: 6 * time.Second,
		Pull: 4 * time.Second, Stop: 5 * time.Second,
		Etcd: 8 * time.Second, Join: 7 * time.Second, Promote: 5 * time.Second,
		Kubernetes: 10 * time.Second, Campaign: 5 * time.Second, Session: 60 * time.Second,
	}
}

// Times returns the delays multiplied by factor: 0.1 is ten times as fast.
func (d Delays) Times(factor float64) Delays {
	for _, x := range []*time.Duration{
		&d.Boot, &d.Install, &d.Services, &d.Etcd, &d.Join, &d.Promote, &d.Kubernetes, &d.Campaign,
		&d.Session, &d.Pull, &d.Stop,
	} {
		*x = time.Duration(float64(*x) * factor)
	}
	return d
}

// Hooks report events to the fleet's owner, and do what the emulator cannot. All are optional. They run one
// after another in the goroutine that made the change, without a lock, so they may call the Fleet.
type Hooks struct {
	// OnBootstrap is called once for each cluster: its first etcd member serves
	// and a control plane would now start.
	OnBootstrap func(ClusterSpec)
	// OnMachineConfigured is called whenever a machine's installed system has come up, after a reboot too,
	// and whenever another configuration has restarted its kubelet, which would now register its node.
	OnMachineConfigured func(MachineSpec)
	// OnVirtualIP is called whenever a virtual address has another holder: the
	// machine with that address, or "" for none.
	OnVirtualIP func(virtual, holder string)
	// OnShutdown is called when a machine has switched itself off.
	OnShutdown func(address string)
	// OnDown is called when a machine that ran begins to restart, at a caller's word or because its boot has
	// failed: its API server and its kubelet have stopped, until OnMachineConfigured.
	OnDown func(address string)
	// OnReset is called when a caller has wiped a machine's disk, or a part of it: data says whether etcd's
	// data was there.
	OnReset func(address string, data bool)
	// OnQuorum is called whenever the etcd of an announced cluster has lost its quorum or has one again;
	// HasQuorum says which. The cluster is that of a Kubernetes CA.
	OnQuorum func(ca []byte)
	// OnError is called for errors that no client gets, such as an address in use.
	OnError func(address string, err error)
	// Snapshot reads etcd's database through the member of a machine: the file, then its SHA-256. Without
	// it, machines do not know EtcdSnapshot.
	Snapshot func(ctx context.Context, address string) (io.ReadCloser, error)
	// DatabaseSize is the size in bytes of etcd's database on a machine; without it, every one has 4 MiB. It
	// may not call the Fleet.
	DatabaseSize func(address string) int64
	// OnDefragment is called when a caller has a machine's member defragment its database.
	OnDefragment func(address string)
	// Recover makes the data directory of a new etcd from a snapshot that was uploaded to a machine. With an
	// error, written says whether it has left something there. Without it, machines refuse to recover etcd.
	Recover func(address string, snapshot []byte, skipHashCheck bool) (written bool, err error)
}

// Machine is one (virtual) computer that boots Talos from a blank disk.
type Machine struct {
	Address string // where apid listens
	// Further are its other addresses, on the same card.
	Further []netip.Prefix
	Name    string // on its platform; the hostname unless its configuration has one
	// Version is the release of the image on its disk, which its configuration does not change. A machine
	// without one boots an ISO and installs the release that its configuration names.
	Version string
	// Schematic is the image factory's id of what is in that image. When empty, it is that of the installer
	// which the first configuration names.
	Schematic string
	Disks     []Disk // one of 32 GiB when empty
	Memory    uint64 // in bytes; 4 GiB when 0
	// Links are the names of its network link, aliases included. When empty, every
	// name in its configuration matches.
	Links []string
	// Cards are its network cards, that with its address first; they replace Links.
	Cards []Card
}

// Disk is one block device of a Machine.
type Disk struct {
	Device string // "/dev/sda"
	Model  string
	Serial string
	Size   uint64 // bytes
}

// Stage is how far a machine has come.
type Stage string

// The stages of a machine's life.
const (
	Off         Stage = "off"
	Booting     Stage = "booting"     // on, no API
	Maintenance Stage = "maintenance" // the API waits for a configuration
	Running     Stage = "running"     // the configuration is in force and the API speaks mutual TLS
)
