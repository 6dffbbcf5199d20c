//go:build integration

package main

import (
	"bytes"
	"cmp"
	"fmt"
	"math/rand/v2"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"
)

// These variables configure a soak. The names on the right reach the inside.
//
//	CASTLE_SOAK_KILLS   how many faults there are; the default is 3
//	CASTLE_SOAK_SEED    replays the schedule of a soak
//	CASTLE_SOAK_ROUND   the first round of that schedule, for the one that has failed
//	CASTLE_SOAK_MODE    faults of these kinds, such as kill,kill,syscall; the default is kill
//	CASTLE_SOAK_KEEP    any value: the rehearsal's work directory stays
var soakSettings = map[string]string{"CASTLE_SOAK_KILLS": "TF_VAR_castle_test_kills",
	"CASTLE_SOAK_SEED": "TF_VAR_castle_test_seed", "CASTLE_SOAK_ROUND": "TF_VAR_castle_test_round",
	"CASTLE_SOAK_MODE": "TF_VAR_castle_test_mode"}

// TestSoak disturbs castle again and again while it creates and destroys a cluster, and gives the same
// command again: it must end in the cluster that an undisturbed create makes, or in a datacenter with nothing
// but what was there before. soak_schedule_test.go has the faults.
func TestSoak(t *testing.T) {
	soakWith(t, func(k *soak) { k.kinds = []string{kill} })
}

// soakWith runs a soak, which prepare may change first, inside a rehearsal.
func soakWith(t *testing.T, prepare func(*soak)) {
	if here := os.Getenv(inLab); here != "" {
		t.Chdir(here)
		k := newSoak(t)
		prepare(k)
		if only := os.Getenv(soakSettings["CASTLE_SOAK_MODE"]); only != "" {
			k.kinds = strings.Split(only, ",")
		}
		k.run()
		return
	}
	defaults := map[string]string{"CASTLE_SOAK_KILLS": "3",
		"CASTLE_SOAK_SEED": strconv.FormatInt(time.Now().Unix(), 10), "CASTLE_SOAK_ROUND": "1"}
	var settings []string
	for name, inside := range soakSettings {
		settings = append(settings, inside+"="+cmp.Or(os.Getenv(name), defaults[name]))
	}
	// The machines take no time at all: the moments are to fall into castle's own.
	args := []string{"-C", "testdata/soak", "keep", "--speed", "1000"}
	if os.Getenv("CASTLE_SOAK_KEEP") != "" {
		args = append(args, "--keep")
	}
	rehearse(t, settings, args...)
}

// soak is one such test, inside its rehearsal.
type soak struct {
	t     *testing.T
	seed  uint64
	round uint64 // the next one
	rand  *rand.Rand
	drawn *rand.PCG // the source of rand
	kinds []string  // of the faults; one that stands twice is twice as likely
	kills int       // faults still to come
	disk  string    // mounted, of a few megabytes: all that castle keeps
	out   string    // folder of the outputs

	repository string
	cluster    string
	machine    *soakMachine // that each kill ends; nil if castle's state outlives them

	lengths   map[string]time.Duration // of an undisturbed create and destroy
	bare      []string                 // what there is before the first create
	reference []string                 // and after an undisturbed one
	others    map[string]string        // somebody else's things, as they were at first
	inCluster map[string]string        // and those in the cluster, as long as it lives
	keys      string                   // what must not change any more
	made      map[string]int           // how often each machine had been made when this round began

	lab   *soakLab
	files *soakFiles
	harm  *soakHarm

	began   int // how many castles
	longest time.Duration
	hits    soakHits
}

// soakLab is the datacenter and the cluster, as their own clients see them.
type soakLab struct {
	t     *testing.T
	state string // the cluster's state directory: it holds the kubeconfig
}

// soakFiles is the cluster's state directory.
type soakFiles struct {
	t     *testing.T
	state string
}

// soakHarm damages files as a power cut may.
type soakHarm struct {
	t     *testing.T
	rand  *rand.Rand
	files *soakFiles
}

func newSoak(t *testing.T) *soak {
	setting := func(name string) uint64 {
		n, err := strconv.ParseUint(os.Getenv(soakSettings[name]), 10, 64)
		if err != nil {
			t.Fatalf("%s: %v", name, err)
		}
		return n
	}
	seed := setting("CASTLE_SOAK_SEED")
	t.Logf("CASTLE_SOAK_SEED=%d", seed)
	disk := os.Getenv("CASTLE_STATE_DIR")
	if err := syscall.Mount("tmpfs", disk, "tmpfs", 0, "size=16m,mode=700"); err != nil {
		t.Fatal(err)
	}
	drawn := rand.NewPCG(seed, 0)
	random, state := rand.New(drawn), filepath.Join(disk, "keep", "proxmox")
	files := &soakFiles{t: t, state: state}
	return &soak{
		t: t, seed: seed, round: setting("CASTLE_SOAK_ROUND"), rand: random, drawn: drawn,
		kills: int(setting("CASTLE_SOAK_KILLS")), disk: disk, out: t.TempDir(),
		repository: "testdata/soak", cluster: "keep", lab: &soakLab{t: t, state: state}, files: files,
		harm:    &soakHarm{t: t, rand: random, files: files},
		lengths: map[string]time.Duration{}, hits: soakHits{},
	}
}

func (k *soak) run() {
	defer func() { k.t.Log(k.hits.report()) }() // also of a soak that has failed
	k.others = k.lab.settle()
	k.bare, k.made = k.inventory(), k.lab.machinesMade()
	for _, command := range []string{"create", "destroy"} {
		began := time.Now()
		k.complete(k.start(command))
		k.lengths[command] = time.Since(began)
		if command == "create" {
			k.reference = k.inventory()
			k.plant()
			k.raised()
		} else {
			k.checkGone(true)
		}
	}
	k.t.Logf("undisturbed: create %s, destroy %s", k.lengths["create"].Round(time.Millisecond),
		k.lengths["destroy"].Round(time.Millisecond))
	k.made = k.lab.machinesMade()
	if k.machine == nil {
		k.fill("create")
	}
	for ; k.kills > 0; k.round++ {
		plan := k.schedule()
		if k.endure("create", plan.create, plan.whole) {
			k.raised()
		}
		states, err := filepath.Glob(filepath.Join(k.files.state, "stages/*/terraform.tfstate"))
		must(k.t, err)
		k.endure("destroy", plan.destroy, true)
		k.checkGone(len(states) > 0)
		k.made = k.lab.machinesMade()
		if k.machine != nil {
			continue
		}
		must(k.t, k.files.tidy())
		if plan.full {
			k.fill("create")
		}
	}
	k.t.Logf("longest recovery: %s", k.longest.Round(time.Millisecond))
}

// endure gives a command once for each fault; whole: then until it has come to its end. It reports whether it
// has.
func (k *soak) endure(command string, faults []soakFault, whole bool) bool {
	rest := k.lengths[command]
	for _, f := range faults {
		if k.kills == 0 {
			break
		}
		k.drawn.Seed(f.seed[0], f.seed[1]) // whatever the faults before it have drawn
		began := time.Now()
		ended := k.befall(f, command, rest)
		if k.kills--; k.kills%50 == 0 {
			k.t.Log(k.hits.report())
		}
		if ended {
			return true
		}
		rest = max(rest-time.Since(began), k.lengths[command]/5) // the next has less to do
		if command == "create" {
			k.checkKeys()
		}
		k.plant()
	}
	if whole {
		began := time.Now()
		k.complete(k.start(command))
		k.longest = max(k.longest, time.Since(began))
	}
	return whole
}

// upTo is a random time.
func upTo(r *rand.Rand, most time.Duration) time.Duration {
	return time.Duration(r.Int64N(int64(most)))
}

// attempt is one castle.
type attempt struct {
	command string
	cmd     *exec.Cmd
	output  string // path of its output
	began   time.Time
	ended   chan struct{} // closed once it has
	err     error
}

// start starts castle without a terminal. The output goes to a file, because castle
// would outlive a pipe of this test.
func (k *soak) start(command string, more ...string) *attempt {
	return k.startBelow(nil, command, more...)
}

// startBelow starts castle as the arguments of another program, if there is one.
func (k *soak) startBelow(program []string, command string, more ...string) *attempt {
	k.began++
	a := &attempt{command: command, output: filepath.Join(k.out, fmt.Sprintf("%04d-%s", k.began, command)),
		ended: make(chan struct{})}
	file, err := os.Create(a.output)
	must(k.t, err)
	args := append(slices.Clone(program), "castle", "-C", k.repository, command, k.cluster)
	if command == "destroy" {
		more = append(more, "--yes")
	}
	args = append(args, more...)
	a.cmd = exec.Command(args[0], args[1:]...)
	a.cmd.Stdout, a.cmd.Stderr = file, file
	a.began = time.Now()
	must(k.t, a.cmd.Start())
	must(k.t, file.Close())
	go func() {
		defer close(a.ended)
		a.err = a.cmd.Wait()
	}()
	return a
}

// soakPatience is far more than a whole create takes on a busy machine.
const soakPatience = 5 * time.Minute

// complete lets castle come to its end, which must be a good one.
func (k *soak) complete(a *attempt) {
	k.t.Helper()
	k.ends(a)
	if a.err != nil {
		k.fail(a, "castle %s: %v", a.command, a.err)
	}
	for _, p := range carriers() {
		k.fail(a, "castle %s left process %d behind: %s", a.command, p.pid, p.argv)
	}
}

// fail ends the test with the output and the newest log files.
func (k *soak) fail(a *attempt, format string, args ...any) {
	k.t.Helper()
	var all bytes.Buffer
	add := func(path string, most int) {
		content, err := os.ReadFile(path)
		if err == nil {
			fmt.Fprintf(&all, "\n--- %s\n%s", path, content[max(0, len(content)-most):])
		}
	}
	if a != nil {
		add(a.output, 8000)
	}
	if run := k.files.newestRun(); run != "" {
		add(filepath.Join(run, "journal.jsonl"), 3000)
		logs, err := filepath.Glob(filepath.Join(run, "*.log"))
		must(k.t, err)
		for _, log := range logs {
			add(log, 3000)
		}
	}
	k.t.Fatalf("%s\n%s", fmt.Sprintf(format, args...), all.String())
}

// tidy removes what castle keeps of destroyed clusters, or the disk would be full after some rounds.
func (f *soakFiles) tidy() error {
	newest := f.newestRun()
	for _, pattern := range []string{"runs/*", "archive/*"} {
		old, err := filepath.Glob(filepath.Join(f.state, pattern))
		if err != nil {
			return err
		}
		for _, path := range old {
			if path == newest {
				continue
			}
			if err := os.RemoveAll(path); err != nil {
				return err
			}
		}
	}
	return nil
}

func must(t *testing.T, err error) {
	if err != nil {
		t.Helper()
		t.Fatal(err)
	}
}

// newestRun is the folder of the newest run, or "".
func (f *soakFiles) newestRun() string {
	runs, err := filepath.Glob(filepath.Join(f.state, "runs", "*"))
	must(f.t, err)
	if len(runs) == 0 {
		return ""
	}
	return runs[len(runs)-1]
}
