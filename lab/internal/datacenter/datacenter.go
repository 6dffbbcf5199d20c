// Package datacenter simulates the environment of a rehearsal: Proxmox, Talos, Infisical, Vault, S3,
// chart repositories and Kubernetes, connected as the real ones are.
//
//	a VM is started          its machine boots Talos at the address of its ipconfig0
//	a machine is bootstrapped  a control plane starts, with the CA, keys and names
//	                         of the machine's configuration
//	a virtual address moves  the API follows it
//	a machine is configured  its node registers; a control plane also answers on :6443
//	its card is in another VLAN  nobody reaches it
//	a VM is stopped          its machine is off, its node stops its heartbeat
//	a VM is shut down        its machine ends its services first, its node is not ready
//	a machine restarts       likewise, until it is up again; its Pods start anew
//	a control plane names another release  its API server restarts, the others stay
//	the last control plane is off  Kubernetes is gone, without a shutdown
//	its VM is destroyed      and so are its disks
//	a machine is reset       likewise, and it waits for a configuration again, unless it keeps that
//	etcd has no quorum       the API answers and refuses, until there is one again
//	etcd is recovered        Kubernetes starts with the content of the snapshot
//
// The package knows neither castle nor the stages. It learns from the requests that it serves, as
// the real services do.
package datacenter

import (
	"context"
	"fmt"
	"io"
	"maps"
	"net"
	"net/http"
	"net/netip"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/ephemeral-castle/castle/internal/emulator/imagefactory"
	"github.com/ephemeral-castle/castle/internal/emulator/infisical"
	"github.com/ephemeral-castle/castle/internal/emulator/proxmox"
	"github.com/ephemeral-castle/castle/internal/emulator/talos"
	"github.com/ephemeral-castle/castle/lab/charts"
	"github.com/ephemeral-castle/castle/lab/internal/controlplane"
	"github.com/ephemeral-castle/castle/lab/internal/front"
	"github.com/ephemeral-castle/castle/lab/internal/namespace"
	"github.com/ephemeral-castle/castle/lab/internal/network"
	"github.com/ephemeral-castle/castle/lab/internal/sources"
)

// Config describes the datacenter.
type Config struct {
	Proof     namespace.Proof
	Dir       string             // what it writes, 0700
	Front     netip.Addr         // where host names resolve to
	FrontPort uint16             // where it always listens; 0 is 443
	Endpoints []network.Endpoint // where URLs lead
	Authority *front.Authority
	Speed     float64 // 1: everything takes as long as outside
	Faults    Faults
	Hosts     Hosts
	// Machines are there without Proxmox and wait for a configuration.
	Machines []talos.Machine
	// ProxmoxToken is let in; empty for one that only Infisical knows.
	ProxmoxToken string
	// Secrets are names of further secrets that every Infisical folder holds.
	Secrets []string
	// Vault is nil for a cluster that names none.
	Vault *Vault
	// Cloud is nil for a cluster that is not in Hetzner Cloud.
	Cloud *Cloud
	// Both is true if there is a cluster in Hetzner Cloud, and another one elsewhere.
	Both bool
	// ObjectStore is nil for a cluster that names none.
	ObjectStore *ObjectStore
	// Schematics are those that the image factory knows from the beginning.
	Schematics []string
	// Branches are the branches of every Git repository.
	Branches []string
	// Tags are the tags of every OCI artifact, or ranges with them.
	Tags []string
	// Repository is the folder that is served as Flux's repository or artifact; empty for an empty one.
	Repository string
	// Sources are folders of further repositories of Flux's, by URL, and Missing the URLs of those that are
	// not there.
	Sources map[string]string
	Missing []string
	// Charts is the folder with the user's charts, which those that are not there have; or empty.
	Charts string
	// Controllers is the folder with Flux's real controllers; empty for the doubles.
	Controllers string
	// TailnetTags are those that the OAuth client of the tailnet may give.
	TailnetTags []string
	// Keys belong to the servers of the repository and to secrets; without any, they are new.
	Keys sources.Keys
	// Log gets a line for everything that happens; never a secret.
	Log io.Writer
	// Kubernetes starts a control plane; nil is controlplane.Start.
	Kubernetes func(context.Context, controlplane.Order) (*controlplane.Process, error)
}

// ControllerLogs is the folder in Config.Dir with the logs of the real controllers.
const ControllerLogs = "controllers"

// Hosts are the hypervisors with what machines use of them.
type Hosts struct {
	Nodes    []string
	Storages []string
	Bridges  []string
	// VLANs are those that the machines' network is in, 0 for none or AnyVLAN, by the bridge. There is no
	// other network.
	VLANs   map[string]int
	Devices []string // mapped ones: pci/gpu
	Sources []string // images that castle does not download: files, and disks of templates
	// Templates are those that machines are cloned from, pve1/9000, with disks on shared storage, if any.
	Templates []string
	// Reserved are the addresses that the DHCP server has reserved, by the MAC of a card in upper case.
	Reserved map[string]netip.Addr
	// Leases are those that it has for other cards.
	Leases []netip.Addr
	// Commands of pveum have made the pool of the cluster and limited its API token. Without any, the token
	// may do everything.
	Commands []string
}

// Datacenter is one that runs.
type Datacenter struct {
	config  Config
	log     *logger
	kube    *kube
	clouds  *kube // that of machines in Hetzner Cloud; the same one unless there are two
	proxmox *proxmox.Server
	fleet   *talos.Fleet
	folders *folders
	images  *imagefactory.Server
	tailnet *tailnet
	leases  *leases
	vault   *landing // nil without one
	objects *shelf   // nil without one
	cloud   *cloud   // nil without one
	git     *sources.Git
	others  func(host, path string) http.Handler // of further repositories
	dead    *dead
	first   firstSnapshot
	full    full
	admin   string // an API token of the people who run Proxmox
}

// Start builds the datacenter; it lasts until ctx ends and Close is called.
func Start(ctx context.Context, c Config) (*Datacenter, error) {
	if c.Kubernetes == nil {
		c.Kubernetes = controlplane.Start
	}
	options, err := c.charts()
	if err != nil {
		return nil, err
	}
	repositories, err := charts.New(options)
	if err != nil {
		return nil, err
	}
	if c.Keys.Deploy == "" {
		if c.Keys, err = sources.NewKeys(nil, nil); err != nil {
			return nil, err
		}
	}
	folders, err := newFolders(c)
	if err != nil {
		return nil, err
	}
	d := &Datacenter{config: c, log: newLogger(c), folders: folders, dead: &dead{},
		images: &imagefactory.Server{Known: c.Schematics}, tailnet: newTailnet(c),
		leases: &leases{free: slices.Clone(c.Hosts.Leases), of: map[string]netip.Addr{}}}
	d.kube = newKube(ctx, c, d.log)
	d.clouds = d.kube
	if c.Both {
		apart := c
		apart.Dir = filepath.Join(c.Dir, "cloud")
		d.clouds = newKube(ctx, apart, d.log)
	}
	if c.Vault != nil {
		if d.vault, err = d.land(ctx); err != nil {
			return nil, err
		}
	}
	if c.ObjectStore != nil {
		if d.objects, err = d.shelve(ctx); err != nil {
			return nil, err
		}
		c.Endpoints = append(slices.Clone(c.Endpoints), c.ObjectStore.endpoint())
	}
	d.log.say("the clock starts at %s", d.log.began.Format(time.RFC3339Nano))
	d.proxmox = proxmox.New(proxmox.Config{
		Token: d.folders.token, Nodes: c.Hosts.Nodes, Storages: storages(c.Hosts.Storages),
		Bridges: bridges(c.Hosts.Bridges), Mappings: mappings(c.Hosts.Devices),
		Durations: taskDurations(c.Speed),
		Patience:  scaled(5*time.Minute, c.Speed), // as long as castle waits
		Fetch:     d.images.Refusal,
		OnStart:   d.leased(d.started), OnShutdown: d.leased(d.pressed), OnStop: d.leased(d.stopped),
		OnDestroy: d.leased(d.destroyed), OnNetwork: d.leased(d.rewired),
		Agent: d.agent,
	})
	d.addSources()
	if c.Cloud != nil {
		d.cloud = d.found()
	}
	for _, command := range c.Hosts.Commands {
		if _, err := d.proxmox.Pveum(command); err != nil {
			return nil, err
		}
	}
	if d.admin, err = administrator(d.proxmox); err != nil {
		return nil, err
	}
	d.fleet = talos.New(talos.Config{
		Delays: talos.Realistic().Times(1 / c.Speed), HasSchematic: d.images.Has,
		Hooks: talos.Hooks{
			OnBootstrap: d.bootstrapped, OnMachineConfigured: d.configured,
			OnShutdown: d.switchedOff, OnDown: d.down,
			OnVirtualIP: d.kube.virtualIP, OnReset: d.reset,
			OnError:  func(address string, err error) { d.log.say("talos %s: %v", address, err) },
			OnQuorum: d.quorum, DatabaseSize: d.databaseSize, OnDefragment: d.defragmented,
			Snapshot: d.snapshot, Recover: d.recover,
		},
	})
	for _, k := range d.kubes() {
		k.proxmox, k.fleet = d.proxmox, d.fleet
	}
	if held := c.Faults.Times["etcd-learner"]; held != 0 {
		d.fleet.HoldLastLearner(held, func() { d.log.begins("etcd-learner") },
			func() { d.log.ends("etcd-learner") })
	}
	if node := c.Faults.Nodes["upgrade-fails"]; node != "" {
		d.fleet.FailUpgrade(node)
	}
	if id := c.Faults.GhostVM; id != 0 {
		d.proxmox.AddVM(ghost(id))
	}
	for _, m := range c.Machines {
		if err := d.place(m); err != nil {
			return nil, err
		}
	}
	if d.git, err = sources.NewGit(ctx, filepath.Join(c.Dir, "git"), c.Repository, c.Branches); err != nil {
		return nil, err
	}
	if d.others, err = sources.Elsewhere(ctx, filepath.Join(c.Dir, "git", "others"), c.Sources, c.Missing,
		c.Branches, c.Tags); err != nil {
		return nil, err
	}
	f := &front.Front{Authority: c.Authority, Proof: c.Proof, Address: c.Front, Port: c.FrontPort,
		Handler: d.handler(repositories)}
	if slices.ContainsFunc(c.Endpoints, func(e network.Endpoint) bool { return e.SSH }) {
		f.SSH = func(l net.Listener) {
			d.log.say("git over ssh: %v", d.git.ServeSSH(l, c.Keys)) // it ends with the lab
		}
	}
	if err := f.Serve(ctx, c.Endpoints); err != nil {
		return nil, err
	}
	if d.cloud != nil {
		go d.cloud.balance(ctx)
	}
	return d, nil
}

// administrator makes an API token that may do what castle's may not, such as move a machine.
func administrator(p *proxmox.Server) (token string, err error) {
	for _, command := range []string{"user add admin@pve",
		"acl modify / --users admin@pve --roles Administrator",
		"user token add admin@pve lab --privsep 0"} {
		if token, err = p.Pveum("pveum " + command); err != nil {
			return "", err
		}
	}
	return "admin@pve!lab=" + token, nil
}

// handler serves every host. The configuration may put Proxmox, Infisical or Vault at any host, so
// the path selects the service; charts belong to their hosts.
func (d *Datacenter) handler(repositories *charts.Repositories) func(host string) http.Handler {
	shops := map[string]http.Handler{}
	for _, h := range charts.Hosts() {
		shops[h] = repositories.Handler(h)
	}
	hypervisor, infisical, repository := d.proxmox.Handler(), d.folders.handler(), d.git
	if d.objects != nil {
		shops[d.config.ObjectStore.Host()] = d.objects.handler()
	}
	schematics, vault := d.images.Handler(), http.NotFoundHandler()
	devices := d.tailnet.server.Handler()
	artifacts := sources.Registry(d.config.Repository, d.config.Tags, d.config.Keys)
	if d.vault != nil {
		vault = d.vault.handler()
	}
	return func(host string) http.Handler {
		return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			shop := shops[host]
			if repositories.Serves(host, r.URL.Path) {
				shop = repositories.Handler(host)
			} else if other := d.others(host, r.URL.Path); other != nil {
				shop = other
			}
			switch {
			case shop != nil:
				shop.ServeHTTP(w, r)
			case strings.HasPrefix(r.URL.Path, "/api2/"):
				hypervisor.ServeHTTP(w, r)
			case strings.HasPrefix(r.URL.Path, "/api/v2/"), r.URL.Path == "/machine/register":
				devices.ServeHTTP(w, r)
			case strings.HasPrefix(r.URL.Path, "/api/"):
				infisical.ServeHTTP(w, r)
			case strings.HasPrefix(r.URL.Path, "/schematics"):
				schematics.ServeHTTP(w, r)
			case strings.HasPrefix(r.URL.Path, "/v2/"):
				artifacts.ServeHTTP(w, r)
			case d.cloud != nil && d.cloud.server.Serves(r):
				d.cloud.server.ServeHTTP(w, r)
			case strings.HasPrefix(r.URL.Path, "/v1/"):
				vault.ServeHTTP(w, r)
			case strings.HasSuffix(r.URL.Path, "/info/refs"),
				strings.HasSuffix(r.URL.Path, "/git-upload-pack"):
				repository.ServeHTTP(w, r)
			default:
				http.Error(w, fmt.Sprintf("the lab has nothing at %s%s", host, r.URL.Path),
					http.StatusNotFound)
			}
		})
	}
}

// Credentials returns the user's credentials by environment variable.
func (d *Datacenter) Credentials() map[string]string {
	all := map[string]string{
		"PROXMOX_VE_API_TOKEN":                   d.folders.token,
		"CASTLE_LAB_PROXMOX_ADMIN":               d.admin,
		"INFISICAL_UNIVERSAL_AUTH_CLIENT_ID":     d.folders.clientID,
		"INFISICAL_UNIVERSAL_AUTH_CLIENT_SECRET": d.folders.clientSecret,
	}
	if d.cloud != nil {
		all[CloudToken] = d.cloud.token
	}
	if d.vault != nil {
		maps.Copy(all, d.vault.credentials())
	}
	if d.objects != nil {
		all[bucketFolder] = d.objects.server.Folder()
	}
	return all
}

// Close switches everything off.
func (d *Datacenter) Close() {
	d.fleet.Close()
	d.proxmox.Close()
	if d.cloud != nil {
		d.cloud.server.Close()
	}
	if d.vault != nil {
		d.vault.server.Close() //nolint:errcheck // it ends with its standard input
	}
	if d.objects != nil {
		d.objects.server.Close() //nolint:errcheck // it ends with the lab
	}
	for _, k := range d.kubes() {
		k.end()
	}
}

// folderName names a folder as Infisical's users do.
func folderName(f infisical.Folder) string { return f.Path + " (" + f.Environment + ")" }
