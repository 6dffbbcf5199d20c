package datacenter

import (
	"errors"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/ephemeral-castle/castle/internal/emulator/proxmox"
	"github.com/ephemeral-castle/castle/internal/fault"
	"github.com/ephemeral-castle/castle/lab/charts"
	"github.com/ephemeral-castle/castle/lab/internal/operators"
	"github.com/ephemeral-castle/castle/lab/internal/operators/upstream"
)

// Faults are the failures to inject.
type Faults struct {
	// Times are those of the faults whose value is a DURATION, by name.
	Times map[string]time.Duration
	// Frozen is kustomization-frozen.
	Frozen bool
	// GhostVM is the id of a running foreign VM.
	GhostVM int
	// Nodes are those of the faults whose value is a NODE, by name.
	Nodes map[string]string
	// SecretExists leaves the kubeconfig of an earlier cluster in Infisical.
	SecretExists bool
	// EtcdFull is etcd-full.
	EtcdFull bool
	// SnapshotCut and ControlPlanesLost are about the first snapshot of etcd.
	SnapshotCut, ControlPlanesLost bool
	// PlacementFull and ActionFails are about the creation of servers.
	PlacementFull, ActionFails bool
	// BackupIncomplete and PasswordDiverged are about the backups of a database.
	BackupIncomplete, PasswordDiverged bool
}

// ParseFaults reads NAME=VALUE, one for each.
func ParseFaults(texts []string) (Faults, error) {
	f := Faults{Times: map[string]time.Duration{}}
	for _, text := range texts {
		name, value, ok := strings.Cut(text, "=")
		if !ok {
			return f, fmt.Errorf("fault %q: write it as NAME=VALUE", text)
		}
		if err := f.set(name, value); err != nil {
			return f, fmt.Errorf("fault %s: %w", name, err)
		}
	}
	return f, nil
}

func (f *Faults) set(name, value string) (err error) {
	var names []string
	for _, known := range fault.All() {
		names = append(names, known.String())
		if known.Name == name && known.Value == fault.Duration {
			if f.Times[name], err = time.ParseDuration(value); err != nil || f.Times[name] <= 0 {
				return fmt.Errorf(`invalid duration %q; use "90s" or "5m"`, value)
			}
			return nil
		}
		if known.Name == name && known.Value == fault.Node {
			if value == "" {
				return errors.New("name a node, such as worker-01")
			}
			if f.Nodes == nil {
				f.Nodes = map[string]string{}
			}
			f.Nodes[name] = value
			return nil
		}
	}
	switch name {
	case "ghost-vm":
		if f.GhostVM, err = strconv.Atoi(value); err != nil || f.GhostVM < 100 {
			return fmt.Errorf("%s is not a VM id; use a number of at least 100", value)
		}
	case "infisical-secret-exists":
		f.SecretExists, err = strconv.ParseBool(value)
	case "kustomization-frozen":
		f.Frozen, err = strconv.ParseBool(value)
	case "placement-full":
		f.PlacementFull, err = strconv.ParseBool(value)
	case "action-fails":
		f.ActionFails, err = strconv.ParseBool(value)
	case "etcd-full":
		f.EtcdFull, err = strconv.ParseBool(value)
	case "snapshot-cut":
		f.SnapshotCut, err = strconv.ParseBool(value)
	case "control-planes-lost":
		f.ControlPlanesLost, err = strconv.ParseBool(value)
	case "backup-incomplete":
		f.BackupIncomplete, err = strconv.ParseBool(value)
	case "password-diverged":
		f.PasswordDiverged, err = strconv.ParseBool(value)
	default:
		return fmt.Errorf("unknown fault; use one of %s", strings.Join(names, ", "))
	}
	if err != nil {
		return fmt.Errorf("invalid value %q; use 1, or 0 for none", value)
	}
	return nil
}

// Complete gives the nodes of faults their full names, as the cluster has them. An unknown one is an error.
func (f *Faults) Complete(cluster string, known []string) error {
	for _, name := range slices.Sorted(maps.Keys(f.Nodes)) {
		node := f.Nodes[name]
		if !slices.Contains(known, node) {
			node = cluster + "-" + node
		}
		if !slices.Contains(known, node) {
			return fmt.Errorf("fault %s: the cluster has no node %s; its nodes are %s", name, f.Nodes[name],
				strings.Join(known, ", "))
		}
		f.Nodes[name] = node
	}
	return nil
}

// spell is when a fault was there.
type spell struct{ begins, ends time.Time }

// logger writes the datacenter's log and keeps the times of faults.
type logger struct {
	config Config
	began  time.Time

	mu     sync.Mutex
	spells map[string]spell // by fault
}

func newLogger(c Config) *logger {
	return &logger{config: c, began: time.Now(), spells: map[string]spell{}}
}

func (l *logger) say(format string, args ...any) { l.sayAt(time.Now(), format, args...) }

// sayAt is about a moment that may be a little past.
func (l *logger) sayAt(at time.Time, format string, args ...any) {
	if l.config.Log == nil {
		return
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	fmt.Fprintf(l.config.Log, "%8.3fs %s\n", at.Sub(l.began).Seconds(), fmt.Sprintf(format, args...))
}

// begins logs that a fault begins, once.
func (l *logger) begins(name string) { l.turn(name, time.Now(), false) }

// ends reports the end of a fault.
func (l *logger) ends(name string) { l.turn(name, time.Now(), true) }

func (l *logger) turn(name string, at time.Time, ends bool) {
	l.mu.Lock()
	s := l.spells[name]
	word := ""
	switch {
	case !ends && s.begins.IsZero():
		s.begins, word = at, "begins"
	case ends && s.ends.IsZero():
		s.ends, word = at, "ends"
	}
	l.spells[name] = s
	l.mu.Unlock()
	if word != "" {
		l.sayAt(at, "fault %s: %s", name, word)
	}
}

// underway reports whether a fault has begun and not ended.
func (l *logger) underway(name string) bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	s := l.spells[name]
	return !s.begins.IsZero() && s.ends.IsZero()
}

// remaining returns the faults for operators that start now. The datacenter keeps the faults'
// progress, which an operator loses with its process.
func (l *logger) remaining() operators.Faults {
	f := operators.Faults{Times: maps.Clone(l.config.Faults.Times), Frozen: l.config.Faults.Frozen,
		ReplicaLast:      l.config.Faults.Nodes["replica-last"],
		BackupIncomplete: l.config.Faults.BackupIncomplete,
		PasswordDiverged: l.config.Faults.PasswordDiverged}
	l.mu.Lock()
	defer l.mu.Unlock()
	for name, s := range l.spells {
		_, timed := f.Times[name]
		switch over := !s.ends.IsZero(); {
		case name == "kustomization-frozen":
			f.Frozen = !over
		case name == "backup-incomplete":
			f.BackupIncomplete = false
		case name == "password-diverged":
			f.PasswordDiverged = false
		case timed && over:
			f.Times[name] = 0
		case timed:
			f.Times[name] = max(1, f.Times[name]-time.Since(s.begins))
		}
	}
	return f
}

// charts are the repositories, with those faults that the charts themselves have.
func (c Config) charts() (charts.Options, error) {
	o := charts.Options{Speed: c.Speed, LateCRDs: c.Faults.Times["crd-absent"] != 0}
	if c.Faults.Times["daemonset-no-node"] != 0 {
		o.SpeakerNodes = operators.SpeakerLabel
	}
	var err error
	if c.Charts != "" {
		o.Elsewhere = c.Missing
		if o.Pulled, err = charts.ReadFolder(c.Charts); err != nil {
			return o, err
		}
		for _, fault := range []string{"crd-absent", "daemonset-no-node"} {
			if c.Faults.Times[fault] != 0 && charts.Has(o.Pulled, "metallb", "") {
				return o, fmt.Errorf("%s is of the stand-in of MetalLB's chart, and --charts has the real "+
					"one: rehearse without one of them", fault)
			}
		}
	}
	if c.Controllers == "" {
		return o, nil
	}
	o.Definitions, err = upstream.Definitions(c.Controllers)
	return o, err
}

// ghost is a VM that has run for long and has nothing to do with any cluster.
func ghost(id int) proxmox.VM {
	return proxmox.VM{ID: id, Name: "prod-database", Running: true,
		Started: time.Now().Add(-12 * 24 * time.Hour), Config: map[string]string{
			"smbios1": "uuid=5f0c1d7a-90b4-4c1e-8a55-3f1f6a2b7c01",
			"net0":    "virtio=BC:24:11:5F:0C:1D,bridge=vmbr0",
			"cores":   "4", "memory": "16384", "ostype": "l26", "scsihw": "virtio-scsi-pci",
			"scsi0": fmt.Sprintf("local-lvm:vm-%d-disk-0,size=200G", id),
		}}
}
