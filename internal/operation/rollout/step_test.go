package rollout

import (
	"context"
	"errors"
	"slices"
	"strings"
	"testing"

	"github.com/ephemeral-castle/castle/internal/cluster"
	"github.com/ephemeral-castle/castle/internal/config"
	"github.com/ephemeral-castle/castle/internal/effect"
	"github.com/ephemeral-castle/castle/internal/event"
	"github.com/ephemeral-castle/castle/internal/kube"
	"github.com/ephemeral-castle/castle/internal/module"
	"github.com/ephemeral-castle/castle/internal/run"
	"github.com/ephemeral-castle/castle/internal/secret"
	"github.com/ephemeral-castle/castle/internal/state"
	"github.com/ephemeral-castle/castle/internal/talos"
)

const (
	schematicA = "613e1592b2da41ae5e265e8789429f22e121aab91cb4deb6bc3c0b6262961245"
	schematicB = "376567988ad370138ad8b2698212367b8edcb69b5fd68c80be1f2ec7d603b4ba"
)

// newMachine is a machine that runs what it is configured with.
func newMachine(name string, change func(*machine)) *machine {
	m := &machine{name: name, node: "blue-" + name, address: name, joined: true, wanted: true,
		controlPlane: strings.HasPrefix(name, "cp"),
		condition:    talos.Condition{Release: "v1.13.0", Schematic: schematicA, BootID: "1"}}
	m.is = talos.Configured{ControlPlane: m.controlPlane, Kubelet: "1.36.3",
		Installer: "factory.talos.dev/nocloud-installer/" + schematicA + ":v1.13.0"}
	if m.controlPlane {
		m.is.APIServer = "1.36.3"
	}
	m.will = m.is
	if change != nil {
		change(m)
	}
	return m
}

func upgradesTalos(m *machine) {
	m.will.Installer = strings.Replace(m.will.Installer, "v1.13.0", "v1.13.1", 1)
}

func upgradesKubernetes(m *machine) {
	m.will.Kubelet = "1.36.4"
	if m.controlPlane {
		m.will.APIServer = "1.36.4"
	}
	m.configuration = append(m.configuration, effect.Effect{Kind: effect.Interrupts,
		Text: "Kubernetes 1.36.3 → 1.36.4 restarts its part of Kubernetes"})
}

func grows(m *machine) {
	m.hardware = []effect.Effect{{Kind: effect.Pending, Text: "memory.dedicated 4096 → 8192"},
		{Kind: effect.None, Text: "tags"}}
}

func both(m *machine) { upgradesTalos(m); upgradesKubernetes(m) }

func TestStepsAndTheirOrder(t *testing.T) {
	all := func(change func(*machine)) (machines []*machine) {
		for _, name := range []string{"cp-01", "cp-02", "cp-03", "w-01", "w-02"} {
			machines = append(machines, newMachine(name, change))
		}
		return machines
	}
	one := func(name string, change func(*machine)) []*machine {
		machines := all(nil)
		for i, m := range machines {
			if m.name == name {
				machines[i] = newMachine(name, change)
			}
		}
		return machines
	}
	for _, tt := range []struct {
		name     string
		machines []*machine
		replace  string
		want     []string
	}{
		{"nothing to do", all(nil), "", nil},
		// cp-02 leads etcd, and cp-01 holds the virtual address.
		{"Talos: workers, then control planes, the leader last", all(upgradesTalos), "", []string{
			"w-01 changes: Talos v1.13.0 → v1.13.1; it is drained, and restarts",
			"w-02 changes: Talos v1.13.0 → v1.13.1; it is drained, and restarts",
			"cp-03 changes: Talos v1.13.0 → v1.13.1; it is drained, and restarts",
			"cp-01 changes: Talos v1.13.0 → v1.13.1; it is drained, and restarts",
			"cp-02 changes: Talos v1.13.0 → v1.13.1; it is drained, and restarts"}},
		{"Kubernetes: no kubelet is newer than an API server", all(upgradesKubernetes), "", []string{
			"cp-03 changes its control plane: API server, controller manager and scheduler 1.36.3 → 1.36.4",
			"cp-01 changes its control plane: API server, controller manager and scheduler 1.36.3 → 1.36.4",
			"cp-02 changes its control plane: API server, controller manager and scheduler 1.36.3 → 1.36.4",
			"w-01 changes: Kubernetes 1.36.3 → 1.36.4 restarts its part of Kubernetes",
			"w-02 changes: Kubernetes 1.36.3 → 1.36.4 restarts its part of Kubernetes",
			"cp-03 changes: Kubernetes 1.36.3 → 1.36.4 restarts its part of Kubernetes",
			"cp-01 changes: Kubernetes 1.36.3 → 1.36.4 restarts its part of Kubernetes",
			"cp-02 changes: Kubernetes 1.36.3 → 1.36.4 restarts its part of Kubernetes"}},
		{"Talos before Kubernetes", one("w-01", both), "", []string{
			"w-01 changes: Talos v1.13.0 → v1.13.1; it is drained, and restarts",
			"w-01 changes: Kubernetes 1.36.3 → 1.36.4 restarts its part of Kubernetes"}},
		{"one restart for Talos and hardware", one("w-01", func(m *machine) { upgradesTalos(m); grows(m) }),
			"", []string{"w-01 changes: Talos v1.13.0 → v1.13.1, memory.dedicated 4096 → 8192; it is " +
				"drained, and restarts"}},
		{"another schematic of the same release", one("w-01", func(m *machine) {
			m.will.Installer = strings.Replace(m.will.Installer, schematicA, schematicB, 1)
		}), "", []string{"w-01 changes: Talos' schematic 613e1592… → 37656798…; it is drained, and " +
			"restarts"}},
		{"hardware that a create has left pending", one("cp-01", func(m *machine) {
			m.pending = []string{"memory 4096 → 8192"}
		}), "", []string{"cp-01 changes: memory 4096 → 8192; it is drained, and restarts"}},
		{"what harms nobody needs no step", one("w-01", func(m *machine) {
			m.hardware = []effect.Effect{{Kind: effect.None, Text: "tags"}}
		}), "", nil},
		{"a new machine comes first, and one that leaves last", append(one("w-01", func(m *machine) {
			m.wanted = false
		}), newMachine("w-03", func(m *machine) { m.joined = false }), newMachine("w-00", upgradesTalos)),
			"", []string{"w-03 joins", "w-00 changes: Talos v1.13.0 → v1.13.1; it is drained, and restarts",
				"w-01 leaves; it is drained"}},
		{"a new machine brings no newer kubelet", append(all(upgradesKubernetes)[:1],
			newMachine("w-03", func(m *machine) { m.joined = false })), "", []string{
			"cp-01 changes its control plane: API server, controller manager and scheduler 1.36.3 → 1.36.4",
			"w-03 joins", "cp-01 changes: Kubernetes 1.36.3 → 1.36.4 restarts its part of Kubernetes"}},
		{"a renamed machine leaves before the new one has its address", append(one("w-01",
			func(m *machine) { m.wanted, m.address = false, "10.0.0.4" }), newMachine("w-09",
			func(m *machine) { m.joined, m.address = false, "10.0.0.4" })), "", []string{
			"w-01 leaves; it is drained", "w-09 joins"}},
		{"two renamed machines do not leave together", []*machine{newMachine("w-03", nil),
			newMachine("w-01", func(m *machine) { m.wanted, m.address = false, "10.0.0.4" }),
			newMachine("w-02", func(m *machine) { m.wanted, m.object.VM = false, 425 }),
			newMachine("w-08", func(m *machine) { m.joined, m.id = false, 425 }),
			newMachine("w-09", func(m *machine) { m.joined, m.address = false, "10.0.0.4" })}, "", []string{
			"w-02 leaves; it is drained", "w-08 joins", "w-01 leaves; it is drained", "w-09 joins"}},
		{"what is stopped starts first, with its old kubelet", append(all(upgradesKubernetes)[:1], newMachine(
			"w-01", func(m *machine) {
				upgradesKubernetes(m)
				m.stopped, m.down = true, errors.New("no route to host")
			})), "", []string{"w-01 changes: is stopped, and starts",
			"cp-01 changes its control plane: API server, controller manager and scheduler 1.36.3 → 1.36.4",
			"w-01 changes: Kubernetes 1.36.3 → 1.36.4 restarts its part of Kubernetes",
			"cp-01 changes: Kubernetes 1.36.3 → 1.36.4 restarts its part of Kubernetes"}},
		{"what is dead goes first, and one that joins follows", append(one("w-02", func(m *machine) {
			m.wanted, m.down = false, errors.New("no route to host")
		}), newMachine("w-03", func(m *machine) { m.joined = false })), "", []string{"w-02 leaves",
			"w-03 joins"}},
		{"replaced on request", all(nil), "w-02", []string{"w-02 is made anew; it is drained"}},
		{"cordoned by a rollout that was killed", one("w-02", func(m *machine) { m.cordoned = true }), "",
			[]string{"w-02 is completed: is cordoned by an interrupted rollout"}},
		{"one that leaves goes on first, cordoned or gone", []*machine{newMachine("w-00", upgradesTalos),
			newMachine("w-01", func(m *machine) { m.wanted, m.cordoned = false, true }),
			newMachine("w-02", func(m *machine) { m.left = true })}, "w-02", []string{
			"w-01 leaves; it is drained", "w-02 is made anew",
			"w-00 changes: Talos v1.13.0 → v1.13.1; it is drained, and restarts"}},
		{"stopped by one that was killed", one("w-02", func(m *machine) {
			m.stopped, m.down = true, errors.New("no route to host")
		}), "", []string{"w-02 changes: is stopped, and starts"}},
		{"somebody else has cordoned a node", one("w-02", func(m *machine) { grows(m); m.keeps = true }), "",
			[]string{"w-02 changes: memory.dedicated 4096 → 8192; it is drained, and restarts; somebody " +
				"else has cordoned it, and it stays so"}},
	} {
		t.Run(tt.name, func(t *testing.T) {
			replaced := func(m *machine) bool { return m.name == tt.replace }
			late := func(m *machine) int { return map[string]int{"cp-01": 1, "cp-02": 2}[m.name] }
			var got []string
			for _, s := range stepsOf(tt.machines, replaced, late) {
				got = append(got, s.Machine+" "+s.String())
			}
			if !slices.Equal(got, tt.want) {
				t.Errorf("got\n  %s\nwant\n  %s", strings.Join(got, "\n  "), strings.Join(tt.want, "\n  "))
			}
		})
	}
}

func TestTheLastControlPlaneIsFoundAmongTheSteps(t *testing.T) {
	leaves := func(m *machine) { m.wanted = false }
	joins := func(m *machine) { m.joined = false }
	worker := func(m *machine) { m.controlPlane = false }
	for _, tt := range []struct {
		name, want string
		control    int
		machines   []*machine
	}{
		{"two of three leave", "", 3, []*machine{newMachine("cp-01", leaves), newMachine("cp-02", leaves)}},
		{"all leave", "cp-02", 2, []*machine{newMachine("cp-01", leaves), newMachine("cp-02", leaves)}},
		{"another joins before", "", 1, []*machine{newMachine("cp-01", leaves), newMachine("cp-02", joins)}},
		{"one becomes a worker after another left", "cp-01", 2,
			[]*machine{newMachine("cp-01", worker), newMachine("cp-02", func(m *machine) {
				leaves(m)
				m.down = errors.New("no route to host")
			})}},
	} {
		replaced := func(m *machine) bool { return m.is.ControlPlane != m.controlPlane }
		steps := stepsOf(tt.machines, replaced, func(*machine) int { return 0 })
		got := ""
		if s := takesLast(steps, tt.control); s != nil {
			got = s.Machine
		}
		if got != tt.want {
			t.Errorf("%s: %q", tt.name, got)
		}
	}
}

func TestARollbackIsTold(t *testing.T) {
	s := &Step{installs: "factory.talos.dev/nocloud-installer/" + schematicB + ":v1.13.1"}
	for _, tt := range []struct {
		is   talos.Condition
		want string
	}{
		{talos.Condition{Release: "v1.13.1", Schematic: schematicB}, ""},
		{talos.Condition{Release: "v1.13.1"}, ""}, // an image that tells none
		{talos.Condition{Release: "v1.13.0", Schematic: schematicA}, "has gone back to v1.13.0"},
		{talos.Condition{Release: "v1.13.1", Schematic: schematicA}, "lacks an extension"},
	} {
		err := s.proveRelease(tt.is)
		if err == nil != (tt.want == "") || err != nil && !strings.Contains(err.Error(), tt.want) {
			t.Errorf("%+v: %v", tt.is, err)
		}
	}
}

func TestAMachineThatIsLongInComingBackIsToldWithTheWayOut(t *testing.T) {
	for installs, undecided := range map[string]bool{"": false, "factory.talos.dev/x:v1.13.1": true} {
		text := (&Step{Machine: "w-01", installs: installs}).late()
		if !strings.Contains(text, "--replace w-01") || strings.Contains(text, "70 minutes") != undecided {
			t.Errorf("installs %q: %s", installs, text)
		}
	}
}

func TestCastleWaitsForAMachineThatItRestarts(t *testing.T) {
	off := errors.New("no route to host")
	for _, tt := range []struct {
		name   string
		change func(*machine)
		want   bool
	}{
		{"it restarts", func(m *machine) { m.cordoned, m.down = true, off }, true},
		{"it answers", func(m *machine) { m.cordoned = true }, false},
		{"nobody has touched it", func(m *machine) { m.down = off }, false},
		{"it is off, and has to be started", func(m *machine) {
			m.cordoned, m.down, m.stopped = true, off, true
		}, false},
		{"it leaves", func(m *machine) { m.cordoned, m.down, m.wanted = true, off, false }, false},
		{"it has not joined yet", func(m *machine) {
			m.cordoned, m.down, m.joined = true, off, false
		}, false},
	} {
		if got := newMachine("w-01", tt.change).returns(); got != tt.want {
			t.Errorf("%s: %t", tt.name, got)
		}
	}
}

func TestOnlyWhatChangesMachinesThatRunNeedsARollout(t *testing.T) {
	for _, tt := range []struct {
		name   string
		change func(*machine)
		want   bool
	}{
		{"nothing", nil, false},
		{"only its tags", func(m *machine) { m.hardware = []effect.Effect{{Kind: effect.None}} }, false},
		{"it joins, by a create", func(m *machine) { m.joined = false; grows(m) }, false},
		{"its hardware", grows, true},
		{"its Talos, which no plan shows", upgradesTalos, true},
		{"it leaves", func(m *machine) { m.wanted = false }, true},
		{"it is replaced", func(m *machine) { m.replaces = true }, true},
	} {
		if got := newMachine("w-01", tt.change).differs(); got != tt.want {
			t.Errorf("%s: %t", tt.name, got)
		}
	}
}

func TestAFailedStepTellsWhetherItsNodeIsCordoned(t *testing.T) {
	for _, cordoned := range []bool{false, true} {
		s := newMachine("w-01", func(m *machine) { grows(m); m.cordoned = cordoned }).changes(false)[0]
		text := (&StepError{Step: s, Err: errors.New("volume a is degraded")}).Error()
		if strings.Contains(text, "node blue-w-01 stays cordoned until then") != cordoned {
			t.Errorf("cordoned %t: %s", cordoned, text)
		}
	}
}

// notices keeps the texts of notices.
type notices []string

func (n *notices) Report(e event.Event) {
	if e.Kind == event.Notice {
		*n = append(*n, e.Text)
	}
}

func TestAnInterruptedStepTellsThatItsNodeStaysCordoned(t *testing.T) {
	interrupt := errors.New("interrupt signal received")
	for _, cordoned := range []bool{false, true} {
		var told notices
		c := &cluster.Cluster{Masker: &secret.Masker{}, Options: cluster.Options{Reporter: &told}}
		x := &rollout{run: &run.Run{Cluster: c, Outputs: run.NewOutputs(c.Masker)}}
		s := newMachine("w-01", func(m *machine) { grows(m); m.cordoned = cordoned }).changes(false)[0]
		ctx, stop := context.WithCancelCause(t.Context())
		stop(interrupt)
		if err := x.step(ctx, s, 0, 2); !errors.Is(err, interrupt) {
			t.Errorf("the step ends with %v", err)
		}
		var want notices
		if cordoned {
			want = notices{"node blue-w-01 stays cordoned; the same command completes the step, and lifts " +
				"the cordon"}
		}
		if !slices.Equal(told, want) {
			t.Errorf("cordoned %t: %q", cordoned, told)
		}
	}
}

func TestTheLastReplicasOfADeadMachineKeepIt(t *testing.T) {
	for _, volumes := range [][]string{nil, {"pvc-1"}} {
		m := newMachine("w-01", func(m *machine) { m.wanted, m.down = false, errors.New("no route to host") })
		x := &rollout{machines: map[string]*machine{"w-01": m, "w-02": newMachine("w-02", nil)}}
		s := m.step(Remove)
		s.Volumes = volumes
		added := newMachine("w-03", func(m *machine) { m.joined = false }).step(Add)
		found := x.obstacles(t.Context(), []*Step{s, added})
		if len(found) != len(volumes) ||
			len(found) > 0 && !strings.Contains(found[0], "would be lost: pvc-1") {
			t.Errorf("%q: %q", volumes, found)
		}
	}
}

func TestAMachineThatIsMadeAnewGivesUpWhatTwoOthersHave(t *testing.T) {
	stuck := []kube.Stuck{{Volume: "a", Spared: true, Text: "a sticks"}, {Volume: "b", Text: "b sticks"}}
	for action, want := range map[Action][]string{Replace: {"b sticks"}, Remove: {"a sticks", "b sticks"}} {
		s := newMachine("w-01", nil).step(action)
		if got := s.keeps(stuck); !slices.Equal(got, want) {
			t.Errorf("%s: %q, want %q", action, got, want)
		}
	}
}

// A kill may come between the intent to make a machine anew and its end: its Node is gone then, and the plan
// takes its configuration for that of another machine.
func TestAMachineWhoseReplacementWasInterruptedIsMadeAnew(t *testing.T) {
	dir, err := state.Open(t.TempDir(), "blue", "proxmox")
	if err != nil {
		t.Fatal(err)
	}
	makes := &config.Stage{Name: "machines", Layer: cluster.PlatformLayer,
		Outputs: map[string]module.Output{cluster.MachinesOutput: {}}}
	c := &cluster.Cluster{Dir: dir, Config: &config.Cluster{Stages: []*config.Stage{makes}}}
	x := &rollout{run: &run.Run{Cluster: c}}
	if err := x.record("w-01", func(p *progress) { p.Leaves = true }); err != nil {
		t.Fatal(err)
	}
	for want, change := range map[Action]func(*machine){
		Replace: func(m *machine) { m.joined = false },
		Add:     func(m *machine) { m.joined, m.is, m.will = false, talos.Configured{}, talos.Configured{} },
		Remove:  func(m *machine) { m.joined, m.wanted = false, false },
	} {
		x.machines = map[string]*machine{"w-01": newMachine("w-01", change)}
		if err := x.recall(t.Context(), nil); err != nil {
			t.Fatal(err)
		}
		steps := stepsOf(x.sorted(), x.isReplaced, func(*machine) int { return 0 })
		if len(steps) != 1 || steps[0].Action != want {
			t.Errorf("%s: %v", want, steps)
		}
	}
}

// The published form has lists, also without any obstacle.
func TestAMaskKeepsEmptyLists(t *testing.T) {
	l := &List{Steps: []*Step{{Changes: []string{}}}, Obstacles: []string{}}
	l.Mask(func(text string) string { return text })
	if l.Obstacles == nil || l.Steps[0].Changes == nil {
		t.Errorf("%#v, %#v", l.Obstacles, l.Steps[0].Changes)
	}
}
