package rollout

import (
	"cmp"
	"slices"
	"strings"

	"github.com/siderolabs/gen/xslices"

	"github.com/ephemeral-castle/castle/internal/effect"
	"github.com/ephemeral-castle/castle/internal/talos"
)

// Action is what a step does with a machine. The values are part of the output in JSON.
type Action string

// The actions.
const (
	Finish     Action = "finish"     // what an interrupted rollout has left
	Change     Action = "change"     // of Talos, hardware or configuration
	Kubernetes Action = "kubernetes" // of the control plane's components
	Add        Action = "add"
	Replace    Action = "replace"
	Remove     Action = "remove"
)

// Step is what a rollout does with one machine at a time.
type Step struct {
	Machine      string   `json:"machine"` // worker-01
	Node         string   `json:"node"`    // blue-worker-01
	Address      string   `json:"address"`
	ControlPlane bool     `json:"control_plane"`
	Action       Action   `json:"action"`
	Changes      []string `json:"changes"` // Talos v1.13.0 → v1.13.1
	Restarts     bool     `json:"restarts"`
	Drains       bool     `json:"drains"`
	Cordoned     bool     `json:"cordoned,omitempty"` // by somebody else, and it stays so
	// Disks end with the machine, and Volumes have their only intact replica on it now.
	Disks   []string `json:"disks,omitempty"`
	Volumes []string `json:"volumes,omitempty"`
	// UsualSeconds is the median of earlier steps of this kind; 0: there was none.
	UsualSeconds float64 `json:"usual_seconds,omitempty"`

	machine    *machine
	installs   string // the installer image; empty: Talos stays
	hardware   bool   // the platform stops and starts the machine
	applies    bool   // what stands for its hardware is applied
	configures bool   // its configuration is applied
	pair       string // the machine that has the address or the id of this one after it, as if renamed
	starts     bool   // the machine is stopped: what it runs is not known
	done       bool   // it has been made
}

// String says what the step does: changes: Talos v1.13.0 → v1.13.1; drains and restarts.
func (s *Step) String() string {
	text := map[Action]string{Finish: "is completed", Change: "changes",
		Kubernetes: "changes its control plane", Add: "joins", Replace: "is made anew",
		Remove: "leaves"}[s.Action]
	if len(s.Changes) > 0 {
		text += ": " + strings.Join(s.Changes, ", ")
	}
	switch {
	case s.Drains && s.Restarts:
		text += "; it is drained, and restarts"
	case s.Drains:
		text += "; it is drained"
	case s.Restarts && !s.starts:
		text += "; it restarts"
	}
	if s.Cordoned && s.Drains && s.Action == Change {
		text += "; somebody else has cordoned it, and it stays so"
	}
	return text
}

// stepsOf returns the steps of all machines in their order. Kubernetes' control planes change before any
// kubelet, because no kubelet may be newer than an API server; so what brings a machine a new configuration
// follows then. Without that, a machine has one step, and one restart.
func stepsOf(all []*machine, replaced func(*machine) bool, late func(*machine) int) []*Step {
	upgrades := slices.ContainsFunc(all, (*machine).upgradesKubernetes)
	var steps []*Step
	for _, m := range all {
		ends := !m.wanted || replaced(m)
		if m.cordoned && m.serves() && (!ends || upgrades) { // else the step that ends it goes on
			s := m.step(Finish)
			s.Changes = append(s.Changes, "is cordoned by an interrupted rollout")
			steps = append(steps, s)
		}
		switch {
		case !m.wanted:
			steps = append(steps, m.step(Remove))
		case !m.joined:
			steps = append(steps, m.step(Add))
		case replaced(m):
			steps = append(steps, m.step(Replace))
		default:
			steps = append(steps, m.changes(upgrades)...)
			if upgrades && m.controlPlane && m.is.APIServer != m.will.APIServer {
				steps = append(steps, m.kubernetes())
			}
		}
	}
	pairUp(steps)
	slices.SortStableFunc(steps, func(a, b *Step) int {
		return cmp.Or(cmp.Compare(phase(a, upgrades), phase(b, upgrades)), strings.Compare(a.pair, b.pair),
			cmp.Compare(rank(a), rank(b)), cmp.Compare(late(a.machine), late(b.machine)))
	})
	return steps
}

// rank orders the steps of a phase: of a pair the one that leaves comes first, else workers do.
func rank(s *Step) int {
	if s.pair == "" && s.ControlPlane || s.pair != "" && s.Action == Add {
		return 1
	}
	return 0
}

// pairUp finds the machines that leave and whose address or id another one gets. That one joins right after
// it: two such pairs must not leave the cluster together.
func pairUp(steps []*Step) {
	for _, joins := range steps {
		for _, leaves := range steps {
			same := leaves.Address == joins.Address ||
				joins.machine.id != 0 && leaves.machine.object.VM == joins.machine.id
			if joins.Action == Add && leaves.Action == Remove && leaves.pair == "" && same {
				joins.pair, leaves.pair = joins.Machine, joins.Machine
				break
			}
		}
	}
}

// phase orders steps by their action: first what is unfinished, then what the cluster has, and at last what
// takes a machine away, unless its address is needed. A machine that is added makes room for the others, but
// not if it would bring a kubelet that is newer than the API servers.
func phase(s *Step, upgrades bool) int {
	m, waits := s.machine, upgrades && (s.configures || s.Action == Kubernetes)
	ends := s.Action == Replace || s.Action == Remove
	if m.joined && !m.serves() && !waits || m.cordoned && ends && !upgrades {
		return 0 // the cluster is whole with it, or without it
	}
	switch s.Action {
	case Finish:
		return 0
	case Change:
		if upgrades && s.configures {
			return 6
		}
		return 3
	case Add:
		if !upgrades {
			return 2
		}
		return 5
	case Kubernetes:
		return 4
	case Replace:
		return 7
	}
	switch {
	case s.pair == "":
		return 8
	case upgrades:
		return 5
	}
	return 2
}

func (m *machine) step(action Action) *Step {
	s := &Step{Machine: m.name, Node: m.node, Address: m.address, ControlPlane: m.controlPlane,
		Action: action, Changes: []string{}, Cordoned: m.keeps, machine: m}
	switch action {
	case Replace, Remove:
		s.Disks, s.Drains = m.disks, m.down == nil && !m.left
		s.Changes = append(s.Changes, xslices.Map(effect.Harmful(m.effects()),
			func(e effect.Effect) string { return e.Text })...)
	}
	return s
}

// upgradesKubernetes reports whether the machine gets another release of Kubernetes.
func (m *machine) upgradesKubernetes() bool {
	return m.joined && m.wanted && m.down == nil &&
		(m.is.Kubelet != m.will.Kubelet || m.is.APIServer != m.will.APIServer)
}

func (m *machine) kubernetes() *Step {
	s := m.step(Kubernetes)
	s.Changes = []string{"API server, controller manager and scheduler " + m.is.APIServer + " → " +
		m.will.APIServer}
	return s
}

// changes returns the steps of a machine that stays: one, or two if it waits for control planes.
func (m *machine) changes(upgrades bool) []*Step {
	s := m.step(Change)
	if schematic, release := talos.Installs(m.will.Installer); m.down == nil {
		switch is := m.condition; {
		case release != is.Release:
			s.installs = m.will.Installer
			s.Changes = append(s.Changes, "Talos "+is.Release+" → "+release)
		case schematic != "" && is.Schematic != "" && schematic != is.Schematic:
			s.installs = m.will.Installer
			s.Changes = append(s.Changes, "Talos' schematic "+is.Schematic[:8]+"… → "+schematic[:8]+"…")
		}
	}
	s.hardware = len(m.pending) > 0 || m.stopped
	s.Changes = append(s.Changes, m.pending...)
	if m.stopped {
		s.Changes = append(s.Changes, "is stopped, and starts")
	}
	for _, e := range m.hardware {
		if e.Kind != effect.None {
			s.hardware = s.hardware || e.Kind == effect.Pending || e.Kind == effect.Restarts
			s.applies, s.Drains = true, true
			s.Changes = append(s.Changes, e.Text)
		}
	}
	s.Restarts = s.installs != "" || s.hardware
	configured := s
	if upgrades {
		configured = m.step(Change)
	}
	for _, e := range m.configuration {
		if e.Kind == effect.None {
			continue
		}
		configured.configures = true
		configured.Changes = append(configured.Changes, e.Text)
		configured.Restarts = configured.Restarts || e.Kind == effect.Restarts
		configured.Drains = configured.Drains || !m.isRelease(e)
	}
	var steps []*Step
	for _, one := range slices.Compact([]*Step{s, configured}) {
		one.starts = one == s && m.stopped // nothing runs there
		if one.Drains = (one.Drains || one.Restarts) && !one.starts; len(one.Changes) > 0 {
			steps = append(steps, one)
		}
	}
	return steps
}
