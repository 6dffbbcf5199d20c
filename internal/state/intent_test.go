package state

import (
	"bytes"
	"errors"
	"os"
	"os/signal"
	"reflect"
	"slices"
	"strings"
	"syscall"
	"testing"
)

var intended = []Intended{
	{Address: `vm.node["cp-01"]`, Type: "vm", Action: "create", ID: "proxmox/421", Before: Absent},
	{Address: `vm.node["cp-02"]`, Type: "vm", Action: "replace", ID: "proxmox/422", Before: Absent},
	{Address: "vm.old", Type: "vm", Action: "delete"},
	{Address: "vm.same", Type: "vm", Action: "update", ID: "proxmox/423"},
	{Address: "random_id.a", Type: "random_id", Action: "create", Before: Absent},
	{Address: "secret.theirs", Type: "secret", Action: "create", ID: "a/b", Before: Present},
	{Address: "secret.unasked", Type: "secret", Action: "create", ID: "a/c"},
}

func begun(t *testing.T) (*Stage, *IntentLog) {
	t.Helper()
	s := open(t).Stage("platform")
	log, err := s.Intent().Begin("r1", intended, nil)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = log.Close() })
	return s, log
}

func inFlight(t *testing.T, s *Stage, inState ...string) []string {
	t.Helper()
	i, err := s.Intent().Read()
	if err != nil {
		t.Fatal(err)
	}
	var addresses []string
	for _, c := range i.InFlight(func(address string) bool {
		return slices.Contains(inState, address)
	}) {
		addresses = append(addresses, c.Address)
	}
	return addresses
}

func TestIntentIsNilWithoutAnInterruptedChange(t *testing.T) {
	s := open(t).Stage("platform")
	i, err := s.Intent().Read()
	if i != nil || err != nil {
		t.Fatalf("%v, %v", i, err)
	}
	if i.Covers("vm.a", "1") || i.InFlight(func(string) bool { return false }) != nil {
		t.Error("no intent covers something")
	}
	if err := s.Intent().Clear(); err != nil {
		t.Error(err)
	}
}

func TestIntentIsOnDiskBeforeAnythingBegins(t *testing.T) {
	s, _ := begun(t)
	i, err := s.Intent().Read()
	if err != nil {
		t.Fatal(err)
	}
	if i.Run != "r1" || i.Began.IsZero() || !reflect.DeepEqual(i.Changes, intended) {
		t.Errorf("%+v", i)
	}
	info, err := os.Stat(s.Intent().path())
	if err != nil || info.Mode().Perm() != 0o600 {
		t.Errorf("%v, %v", info.Mode(), err)
	}
	if err := s.Intent().Clear(); err != nil {
		t.Fatal(err)
	}
	if i, err := s.Intent().Read(); i != nil || err != nil {
		t.Errorf("cleared: %v, %v", i, err)
	}
}

func TestInFlightIsNeitherInTheStateNorReportedAsFailed(t *testing.T) {
	s, log := begun(t)
	all := []string{`vm.node["cp-01"]`, `vm.node["cp-02"]`, "random_id.a"}
	if got := inFlight(t, s); !reflect.DeepEqual(got, all) {
		t.Errorf("nothing reported yet: %v", got)
	}
	log.Note(`vm.node["cp-01"]`, "create", Started)
	log.Note(`vm.node["cp-01"]`, "create", Done) // reported before the state is written
	log.Note(`vm.node["cp-02"]`, "delete", Done)
	log.Note(`vm.node["cp-02"]`, "create", Failed)
	log.Note("secret.theirs", "create", Started)
	log.Note("secret.unasked", "create", Started)
	if got := inFlight(t, s, "random_id.a"); !reflect.DeepEqual(got, []string{all[0], "secret.unasked"}) {
		t.Errorf("got %v", got)
	}
	log.Note(`vm.node["cp-02"]`, "create", Unsure)
	if got := inFlight(t, s, "random_id.a", all[0]); !reflect.DeepEqual(got,
		[]string{all[1], "secret.unasked"}) {
		t.Errorf("got %v", got)
	}
}

func TestSettleRemovesWhatTheStateHas(t *testing.T) {
	s, log := begun(t)
	log.Note(`vm.node["cp-02"]`, "create", Failed)
	if err := log.Close(); err != nil {
		t.Fatal(err)
	}
	write(t, s.StatePath(), []byte(`{"version":4,"serial":1,"lineage":"l","resources":[
		{"mode":"managed","type":"random_id","name":"a","instances":[{}]},
		{"mode":"managed","type":"vm","name":"node","instances":[{"index_key":"cp-01","deposed":"0"}]}]}`))
	if err := s.Intent().Settle(); err != nil {
		t.Fatal(err)
	}
	if got := inFlight(t, s); !reflect.DeepEqual(got, []string{`vm.node["cp-01"]`}) {
		t.Errorf("got %v", got)
	}
	if i, err := s.Intent().Read(); err != nil || i.Run != "r1" || !i.New {
		t.Errorf("%+v, %v", i, err)
	}
}

func TestIntentCoversOnlyWhatItWasToCreate(t *testing.T) {
	s, log := begun(t)
	log.Note(`vm.node["cp-02"]`, "create", Failed)
	i, err := s.Intent().Read()
	if err != nil {
		t.Fatal(err)
	}
	for _, c := range []struct {
		address, id string
		want        bool
	}{
		{`vm.node["cp-01"]`, "proxmox/421", true},
		{`vm.node["cp-02"]`, "proxmox/422", true}, // failed, and may be half-made
		{`vm.node["cp-01"]`, "proxmox/422", false},
		{"vm.same", "proxmox/423", false}, // it was there before
		{"random_id.a", "", false},
	} {
		if got := i.Covers(c.address, c.id); got != c.want {
			t.Errorf("%s %s: %v", c.address, c.id, got)
		}
	}
}

func TestDamagedIntentCountsEveryChangeAsUnsure(t *testing.T) {
	// Not what is foreign: secret.theirs was there before.
	all := []string{`vm.node["cp-01"]`, `vm.node["cp-02"]`, "random_id.a", "secret.unasked"}
	cut := func(data []byte) []byte { return data[:len(data)/2] }
	for name, damage := range map[string]func([]byte) []byte{
		"torn":    func(data []byte) []byte { return append(data, `{"phase":"failed","addre`...) },
		"zeros":   func(data []byte) []byte { return append(data, "\x00\x00\x00\x00\n"...) },
		"header":  func(data []byte) []byte { return append([]byte("?\n"), data...) },
		"null":    func([]byte) []byte { return []byte("null") },
		"braces":  func([]byte) []byte { return []byte("{}\n") },
		"empty":   func([]byte) []byte { return nil },
		"cut":     cut,
		"deleted": nil,
		"flipped": func(data []byte) []byte {
			return bytes.Replace(data, []byte("random_id.a"), []byte("random_id.b"), 1)
		},
		"line lost": func(data []byte) []byte {
			lines := bytes.SplitAfter(data, []byte("\n"))
			return bytes.Join(lines[1:], nil)
		},
	} {
		s, log := begun(t)
		log.Note("random_id.a", "create", Failed)
		path := s.Intent().path()
		data, err := os.ReadFile(path)
		if err == nil && damage == nil {
			err = os.Remove(path)
		} else if err == nil {
			err = os.WriteFile(path, damage(data), 0o600)
		}
		if err != nil {
			t.Fatal(err)
		}
		if got := inFlight(t, s); !slices.Equal(got, all) {
			t.Errorf("%s: %v", name, got)
		}
		repaired(t, s, path)
		if got := inFlight(t, s); !slices.Equal(got, all) {
			t.Errorf("%s, repaired: %v", name, got)
		}
	}
}

// repaired repairs the directory of a stage under the lock, and expects one notice, about path.
func repaired(t *testing.T, s *Stage, path string) {
	t.Helper()
	told, err := s.dir.Repair()
	if err != nil || len(told) != 1 || !strings.HasPrefix(told[0], path+" is damaged") {
		t.Errorf("without the lock: %q, %v", told, err)
	}
	lock, err := s.dir.Lock("r9")
	if err != nil {
		t.Fatal(err)
	}
	told, err = s.dir.Repair()
	if err != nil || len(told) != 1 || !strings.HasPrefix(told[0], path+" was damaged") {
		t.Errorf("%q, %v", told, err)
	}
	told, err = s.dir.Repair()
	if err = errors.Join(err, lock.Unlock()); err != nil || len(told) > 0 {
		t.Errorf("after the repair: %q, %v", told, err)
	}
}

func TestDamagedCopyOfAnIntentIsMadeAnew(t *testing.T) {
	s, log := begun(t)
	log.Note("random_id.a", "create", Failed)
	if err := os.WriteFile(copyOf(s.Intent().path()), []byte("null"), 0o600); err != nil {
		t.Fatal(err)
	}
	if got := inFlight(t, s); !slices.Equal(got, []string{`vm.node["cp-01"]`, `vm.node["cp-02"]`}) {
		t.Errorf("%v", got)
	}
}

// diskSize is more than anything else that the test binary writes meanwhile.
const diskSize = 1 << 20

// fullDisk lets no file of this process grow beyond diskSize.
func fullDisk(t *testing.T) {
	t.Helper()
	signal.Ignore(syscall.SIGXFSZ)
	var limit syscall.Rlimit
	if err := syscall.Getrlimit(syscall.RLIMIT_FSIZE, &limit); err != nil {
		t.Fatal(err)
	}
	full := limit
	full.Cur = diskSize
	if err := syscall.Setrlimit(syscall.RLIMIT_FSIZE, &full); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := syscall.Setrlimit(syscall.RLIMIT_FSIZE, &limit); err != nil {
			t.Error(err)
		}
		signal.Reset(syscall.SIGXFSZ)
	})
}

func TestAFullDiskRefusesAnIntentAndKeepsThePreviousOne(t *testing.T) {
	s, log := begun(t)
	fullDisk(t)
	tooLong := strings.Repeat("x", diskSize)
	tooMany := []Intended{{Address: tooLong, Action: "create"}}
	if _, err := s.Intent().Begin("r2", tooMany, nil); !errors.Is(err, syscall.EFBIG) {
		t.Errorf("begin: %v", err)
	}
	log.Note(tooLong, "create", Failed)
	if err := log.Close(); !errors.Is(err, syscall.EFBIG) {
		t.Errorf("close: %v", err)
	}
	if i, err := s.Intent().Read(); err != nil || i.Run != "r1" || len(i.Changes) != len(intended) {
		t.Errorf("%+v, %v", i, err)
	}
	entries, err := os.ReadDir(s.Dir())
	if err != nil || len(entries) != 2 {
		t.Errorf("left behind: %v, %v", entries, err)
	}
}

func TestResourcesWhoseProvisionersMayNotHaveRun(t *testing.T) {
	st := &State{}
	for _, name := range []string{"made", "begun", "silent", "failed", "plain", "replaced", "torn", "kept",
		"gone", "stays", "unlisted", "lost"} {
		st.Resources = append(st.Resources,
			Resource{Address: "vm." + name, Block: "vm." + name, Mode: "managed"})
	}
	st.Resources = append(st.Resources,
		Resource{Address: "vm.tainted", Block: "vm.t", Mode: "managed", Tainted: true},
		Resource{Address: "vm.aside", Block: "vm.aside", Mode: "managed", Deposed: true})
	s := made(t, open(t), "platform")
	var intended []Intended
	var provisioned []string
	for _, line := range []string{"create made", "create begun", "create silent", "create failed",
		"create plain", "replace replaced", "replace torn", "replace kept", "delete gone", "delete stays",
		"create tainted", "create aside"} {
		action, name, _ := strings.Cut(line, " ")
		intended = append(intended, Intended{Address: "vm." + name, Action: action, Type: "vm"})
	}
	for _, r := range st.Resources {
		if r.Block != "vm.plain" {
			provisioned = append(provisioned, r.Block)
		}
	}
	log, err := s.Intent().Begin("r1", intended, provisioned)
	if err != nil {
		t.Fatal(err)
	}
	log.Note("vm.made", "create", Started)
	log.Note("vm.made", "create", Done)
	log.Note("vm.begun", "create", Started)
	log.Note("vm.failed", "create", Failed)
	log.Note("vm.plain", "create", Started)
	log.Note("vm.replaced", "delete", Started)
	log.Note("vm.replaced", "delete", Done)
	log.Note("vm.replaced", "create", Started)
	log.Note("vm.torn", "delete", Started)
	log.Note("vm.gone", "delete", Started)
	log.Note("vm.unlisted", "create", Started)
	log.Note("vm.lost", "create", Started)
	log.Note("vm.lost", "create", Done)
	intent, err := s.Intent().Read()
	if err != nil {
		t.Fatal(err)
	}
	intent.New = false
	want := []string{"vm.begun", "vm.silent", "vm.replaced", "vm.torn", "vm.gone", "vm.unlisted"}
	if got := intent.Unfinished(st); !reflect.DeepEqual(got, want) {
		t.Errorf("got %v, want %v", got, want)
	}
	// A new state has only what this run created; a lost machine may have reported nothing.
	intent = &Intent{New: true, Provisioned: []string{"vm.made"}}
	if got := intent.Unfinished(st); !reflect.DeepEqual(got, []string{"vm.made"}) {
		t.Errorf("a new state: %v", got)
	}
	if got := (*Intent)(nil).Unfinished(st); got != nil {
		t.Errorf("without an intent: %v", got)
	}
}
