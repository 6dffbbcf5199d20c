package state

import (
	"errors"
	"os"
	"os/signal"
	"reflect"
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
	log, err := s.Intent().Begin("r1", intended)
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
		for _, known := range inState {
			if known == address {
				return true
			}
		}
		return false
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

func TestIntentIgnoresATornLastLine(t *testing.T) {
	for _, torn := range []string{`{"phase":"failed","address":"vm.node[\"cp-01\"]"`, "\x00\x00\x00\x00\n"} {
		s, log := begun(t)
		log.Note("random_id.a", "create", Failed)
		if _, err := log.journal.file.WriteString(torn); err != nil {
			t.Fatal(err)
		}
		if got := inFlight(t, s); !reflect.DeepEqual(got, []string{`vm.node["cp-01"]`, `vm.node["cp-02"]`}) {
			t.Errorf("%q: %v", torn, got)
		}
	}
}

func TestADamagedIntentIsAnError(t *testing.T) {
	s, _ := begun(t)
	data, err := os.ReadFile(s.Intent().path())
	if err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(s.Intent().path(), append([]byte("?\n"), data...), 0o600); err != nil {
		t.Fatal(err)
	}
	_, err = s.Intent().Read()
	if err == nil || !strings.HasPrefix(err.Error(), s.Intent().path()+":1: ") ||
		!strings.Contains(err.Error(), "delete the file") {
		t.Errorf("got %v", err)
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
	if _, err := s.Intent().Begin("r2", []Intended{{Address: tooLong, Action: "create"}}); !errors.Is(err,
		syscall.EFBIG) {
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
	if err != nil || len(entries) != 1 {
		t.Errorf("left behind: %v, %v", entries, err)
	}
}
