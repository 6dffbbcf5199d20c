package commits

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"filippo.io/age"

	"github.com/ephemeral-castle/castle/internal/state/commits/commitstest"
	"github.com/ephemeral-castle/castle/internal/state/keys"
	"github.com/ephemeral-castle/castle/internal/store"
)

const cluster = "blue/proxmox"

func open(t testing.TB, s store.Store) *Log {
	t.Helper()
	l, err := Open(s, cluster, Encryption{})
	if err != nil {
		t.Fatal(err)
	}
	return l
}

// planned reports whether a run of these tests only reads.
func planned(run string) bool { return strings.HasPrefix(run, "plan") }

func lockOf(run string) *Lock { return &Lock{Run: run, Host: "host-of-" + run, Lasts: time.Minute} }

// add uploads files and appends a commit of them and of those that after has.
func add(t testing.TB, l *Log, after *Commit, run string, contents map[string]string) *Commit {
	t.Helper()
	c, err := tryAdd(t.Context(), l, after, run, contents)
	if err != nil {
		t.Fatal(err)
	}
	return c
}

func tryAdd(ctx context.Context, l *Log, after *Commit, run string, contents map[string]string) (*Commit,
	error) {
	next := Commit{Run: run, Host: "host-of-" + run, Castle: "v1", What: "test", Lock: lockOf(run),
		Files: map[string]File{}}
	if after != nil {
		maps.Copy(next.Files, after.Files)
	}
	for name, content := range contents {
		files, err := l.Upload(ctx, [][]byte{[]byte(content)})
		if err != nil {
			return nil, err
		}
		files[0].Mode = 0o600
		next.Files[name] = files[0]
	}
	return l.Append(ctx, after, next)
}

func head(t testing.TB, l *Log) *Commit {
	t.Helper()
	c, err := l.Head(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	return c
}

func TestAppendAndReadBack(t *testing.T) {
	s := commitstest.New("memory://store")
	l := open(t, s)
	if c := head(t, l); c != nil {
		t.Fatalf("head of an empty log: %+v", c)
	}
	first := add(t, l, nil, "a", map[string]string{"stages/keys/record.json": "one"})
	second := add(t, l, first, "a", map[string]string{"layout": "1\n", "stages/keys/record.json": "two"})
	other := open(t, s.Share())
	c := head(t, other)
	if c.Sequence != 2 || c.ID != second.ID || c.Lock.Run != "a" || c.Castle != "v1" {
		t.Errorf("head: %+v", c)
	}
	got, err := other.Download(t.Context(), c)
	if err != nil || string(got["layout"]) != "1\n" || string(got["stages/keys/record.json"]) != "two" {
		t.Errorf("files: %q, %v", got, err)
	}
	all, err := other.List(t.Context())
	if err != nil || len(all) != 2 || all[0].Sequence != 2 || all[1].Sequence != 1 {
		t.Errorf("list: %v, %v", all, err)
	}
	if err := l.Mark(t.Context()); err != nil {
		t.Fatal(err)
	}
	clusters, err := Clusters(t.Context(), s)
	if err != nil || !slices.Equal(clusters, []string{cluster}) {
		t.Errorf("clusters: %q, %v", clusters, err)
	}
	if _, err := other.Read(t.Context(), 3); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("commit 3: %v", err)
	}
}

func TestACommitAndAnUnchangedHeadAreCheap(t *testing.T) {
	s := commitstest.New("memory://store")
	l := open(t, s)
	c := add(t, l, nil, "a", map[string]string{"layout": "1"})
	s.Requests()
	add(t, l, c, "a", map[string]string{"layout": "2"})
	if made := s.Requests(); len(made) != 2 {
		t.Errorf("a commit: %q", made)
	}
	head(t, l)
	if made := s.Requests(); len(made) != 1 {
		t.Errorf("an unchanged head: %q", made)
	}
	other := open(t, s)
	head(t, other)
	if made := s.Requests(); len(made) != 2 {
		t.Errorf("a new head: %q", made)
	}
}

func TestTheSecondOfTwoWritersGetsTheWinnersCommit(t *testing.T) {
	s := commitstest.New("memory://store")
	a, b := open(t, s), open(t, s.Share())
	first := add(t, a, nil, "a", map[string]string{"layout": "1"})
	add(t, b, head(t, b), "b", map[string]string{"layout": "2"})
	_, err := tryAdd(t.Context(), a, first, "a", map[string]string{"layout": "3"})
	conflict, is := errors.AsType[*ConflictError](err)
	if !is || conflict.Head.Run != "b" || conflict.Head.Sequence != 2 {
		t.Errorf("got %v", err)
	}
}

func TestAppendRecognisesItsOwnCommit(t *testing.T) {
	for _, what := range []string{"answer lost and repeated by the store", "answer lost",
		"both requests lost"} {
		t.Run(what, func(t *testing.T) {
			s := commitstest.New("memory://store")
			l := open(t, s)
			first := add(t, l, nil, "a", map[string]string{"layout": "1"})
			lost := 1
			s.SetAfter(func(op, key string) error {
				if lost == 0 || op != "create" || !strings.Contains(key, "/log/") {
					return nil
				}
				lost--
				if strings.HasPrefix(what, "answer lost and") {
					return fs.ErrExist
				}
				if what == "both requests lost" {
					s.SetBefore(func(context.Context, string, string) error {
						s.SetBefore(nil)
						return s.Away("", "")
					})
				}
				return s.Away(op, key)
			})
			c, err := tryAdd(t.Context(), l, first, "a", map[string]string{"layout": "2"})
			for range 2 {
				if err != nil {
					c, err = tryAdd(t.Context(), l, first, "a", map[string]string{"layout": "3"})
				}
			}
			if err != nil {
				t.Fatal(err)
			}
			if newest := head(t, open(t, s)); newest.ID != c.ID {
				t.Errorf("head: %+v, want %+v", newest, c)
			}
		})
	}
}

// A holder that sleeps for hours finds its number free: its commit and those of its successor were pruned.
func TestAppendIntoAGapFails(t *testing.T) {
	s := commitstest.New("memory://store")
	zombie, l := open(t, s), open(t, s.Share())
	first := add(t, zombie, nil, "zombie", map[string]string{"layout": "1"})
	c := head(t, l)
	for n := range 6 {
		c = add(t, l, c, fmt.Sprint("run-", n), map[string]string{"layout": fmt.Sprint(n)})
	}
	if err := l.Prune(t.Context(), c, 2, planned); err != nil {
		t.Fatal(err)
	}
	zombie.asOf = zombie.asOf.Add(-time.Hour)
	_, err := tryAdd(t.Context(), zombie, first, "zombie", map[string]string{"layout": "zombie"})
	conflict, is := errors.AsType[*ConflictError](err)
	if !is || conflict.Head.Run != "run-5" {
		t.Errorf("got %v", err)
	}
	all, err := l.List(t.Context())
	if err != nil || len(all) != 2 || all[0].Run != "run-5" || all[1].Run != "run-4" {
		t.Errorf("list: %+v, %v", all, err)
	}
}

// What the log lacks shows by what is left beside it: no run leaves a store so.
func TestALogWithoutItsCommitsIsRefused(t *testing.T) {
	for _, left := range []string{"marker", "object"} {
		s := commitstest.New("memory://store")
		l := open(t, s)
		c := add(t, l, nil, "a", map[string]string{"layout": "1"})
		if err := l.Mark(t.Context()); err != nil {
			t.Fatal(err)
		}
		for key, what := range map[string]string{
			l.key(1): "commit", "clusters/" + cluster: "marker",
			cluster + "/objects/" + c.Files["layout"].Object: "object",
		} {
			if what == left {
				continue
			}
			if err := s.Delete(t.Context(), key); err != nil {
				t.Fatal(err)
			}
		}
		other := open(t, s.Share())
		_, err := other.Head(t.Context())
		_, listed := other.List(t.Context())
		for _, err := range []error{err, listed} {
			if err == nil || !strings.Contains(err.Error(), "blue/proxmox has no commit") ||
				!strings.Contains(err.Error(), "restore blue/proxmox/log/ from a backup") {
				t.Errorf("%s is left: %v", left, err)
			}
		}
	}
}

func TestAHeadWithoutFilesIsRefused(t *testing.T) {
	s := commitstest.New("memory://store")
	l := open(t, s)
	c := add(t, l, nil, "a", nil) // the first run begins
	c = add(t, l, c, "a", nil)
	if err := l.CheckFiles(t.Context(), c); err != nil {
		t.Errorf("before the first files: %v", err)
	}
	c = add(t, l, c, "a", map[string]string{"layout": "1"})
	next := Commit{Run: "a", Host: "a"}
	c, err := l.Append(t.Context(), c, next)
	if err != nil {
		t.Fatal(err)
	}
	var damaged *DamagedError
	if err := l.CheckFiles(t.Context(), c); !errors.As(err, &damaged) || damaged.Commit != 4 {
		t.Errorf("after the first files: %v", err)
	}
	for n := range int64(3) {
		if err := s.Delete(t.Context(), l.key(n+1)); err != nil {
			t.Fatal(err)
		}
	}
	if err := open(t, s).CheckFiles(t.Context(), c); !errors.As(err, &damaged) {
		t.Errorf("without the commits before it: %v", err)
	}
}

// However many plans there are, the last commits of the runs that changed something stay.
func TestRunsThatOnlyReadRemoveNoCommitOfOthers(t *testing.T) {
	s := commitstest.New("memory://store")
	l := open(t, s)
	var c *Commit
	prune := func() (runs []string) {
		t.Helper()
		if err := l.Prune(t.Context(), c, 2, planned); err != nil {
			t.Fatal(err)
		}
		all, err := l.List(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		for _, c := range all {
			runs = append(runs, c.Run)
		}
		return runs
	}
	for _, run := range []string{"create-1", "create-2", "create-3", "create-3"} {
		c = add(t, l, c, run, map[string]string{"layout": run})
	}
	for n := range 5 {
		c = add(t, l, c, fmt.Sprint("plan-", n), map[string]string{"runs/plan": fmt.Sprint(n)})
	}
	got := prune()
	want := []string{"plan-4", "plan-3", "create-3", "create-3", "create-2", "create-1"}
	if !slices.Equal(got, want) {
		t.Errorf("after a plan: %q", got)
	}
	c = add(t, l, c, "create-4", nil)
	got = prune()
	want = []string{"create-4", "plan-4", "plan-3", "create-3"}
	if !slices.Equal(got, want) {
		t.Errorf("after a create: %q", got)
	}
}

func identity(t *testing.T) (public, secret string) {
	t.Helper()
	i, err := age.GenerateX25519Identity()
	if err != nil {
		t.Fatal(err)
	}
	return i.Recipient().String(), i.String()
}

// encryption encrypts for some holders, who sign, too. identities are those of the process.
func encryption(identities string, holders ...string) Encryption {
	e := Encryption{Identities: identities}
	all, err := keys.Parse(strings.Join(holders, "\n"))
	if err != nil {
		panic(err)
	}
	for _, h := range all {
		e.Recipients, e.Signers = append(e.Recipients, h.Recipient), append(e.Signers, h.Signer)
	}
	return e
}

func TestEncryption(t *testing.T) {
	s := commitstest.New("memory://store")
	public, secret := identity(t)
	otherPublic, otherSecret := identity(t)
	l, err := Open(s, cluster, encryption("# mine\n"+secret+"\n", secret))
	if err != nil {
		t.Fatal(err)
	}
	add(t, l, nil, "a", map[string]string{"layout": "a secret of the cluster"})
	for _, key := range s.Requests() {
		if _, object, is := strings.Cut(key, "create "+cluster+"/objects/"); is {
			data, err := s.Read(t.Context(), cluster+"/objects/"+object)
			if err != nil || !strings.HasPrefix(string(data), ageHeader) {
				t.Errorf("stored: %q, %v", data, err)
			}
		}
	}
	for _, tt := range []struct {
		name, identities string
		want             []string
	}{
		{"right", otherSecret + "\n" + secret, nil},
		{"wrong", otherSecret, []string{"belongs to " + otherPublic}},
		{"missing", "", []string{"there is no identity"}},
	} {
		reader, err := Open(s, cluster, Encryption{Identities: tt.identities})
		if err != nil {
			t.Fatal(err)
		}
		got, err := reader.Download(t.Context(), head(t, reader))
		if tt.want == nil {
			if err != nil || string(got["layout"]) != "a secret of the cluster" {
				t.Errorf("%s: %q, %v", tt.name, got, err)
			}
			continue
		}
		for _, want := range append(tt.want, public, "CASTLE_AGE_IDENTITY", "CASTLE_AGE_IDENTITY_FILE") {
			if err == nil || !strings.Contains(err.Error(), want) || strings.Contains(err.Error(), "SECRET") {
				t.Errorf("%s: got %v, want %q in it", tt.name, err, want)
			}
		}
	}
}

func TestNobodyWritesWhatHeCannotRead(t *testing.T) {
	s := commitstest.New("memory://store")
	public, secret := identity(t)
	_, otherSecret := identity(t)
	signer := encryption("", secret).Signers[0]
	for _, identities := range []string{"", otherSecret} {
		l, err := Open(s, cluster, Encryption{[]string{public}, []string{signer}, identities, nil})
		if err != nil {
			t.Fatal(err)
		}
		_, err = l.Append(t.Context(), nil, Commit{})
		if !errors.As(err, new(*IdentityError)) {
			t.Errorf("append: %v", err)
		}
		if _, err = l.Upload(t.Context(), [][]byte{{1}}); !errors.As(err, new(*IdentityError)) {
			t.Errorf("upload: %v", err)
		}
	}
	if made := s.Requests(); len(made) > 0 {
		t.Errorf("requests: %q", made)
	}
	if _, err := Open(s, cluster, Encryption{Recipients: []string{"age1nonsense"}}); err == nil {
		t.Error("a recipient that is none: no error")
	}
	_, err := Open(s, cluster, Encryption{Identities: "AGE-SECRET-KEY-1NONSENSE"})
	if err == nil || strings.Contains(err.Error(), "NONSENSE") {
		t.Errorf("an identity that is none: %v", err)
	}
}

func TestDamageIsNamed(t *testing.T) {
	s := commitstest.New("memory://store")
	l := open(t, s)
	c := add(t, l, nil, "a", map[string]string{"stages/keys/record.json": "one"})
	object := cluster + "/objects/" + c.Files["stages/keys/record.json"].Object
	for _, what := range []string{"does not match its name", "the store does not have it"} {
		if s.Replace(object, []byte("other")); strings.Contains(what, "have") {
			if err := s.Delete(t.Context(), object); err != nil {
				t.Fatal(err)
			}
		}
		_, err := l.Download(t.Context(), c)
		for _, want := range []string{"commit 1 of blue/proxmox", "stages/keys/record.json", object, what} {
			if err == nil || !strings.Contains(err.Error(), want) {
				t.Errorf("got %v, want %q in it", err, want)
			}
		}
	}
	newer, err := compress([]byte(`{"format":2,"castle":"v9.1","files":["of another kind"]}`))
	if err != nil {
		t.Fatal(err)
	}
	for want, data := range map[string][]byte{"castle v9.1": newer, l.key(1): newer[:len(newer)-9]} {
		s.Replace(l.key(1), data)
		if _, err := open(t, s).Head(t.Context()); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("got %v, want %q in it", err, want)
		}
	}
}

func TestAStoreThatOverwritesIsRefused(t *testing.T) {
	s := commitstest.New("memory://store")
	s.SetBefore(func(_ context.Context, op, key string) error {
		if op == "create" {
			delete := s.Share()
			return delete.Delete(t.Context(), key)
		}
		return nil
	})
	err := open(t, s).Mark(t.Context())
	if err == nil || !strings.Contains(err.Error(), "the server overwrites a value that exists") {
		t.Errorf("got %v", err)
	}
}

// A Prune that was stopped after its look at the store, and goes on when another run has committed.
func TestAStoppedPruneRemovesNothingThatIsNamed(t *testing.T) {
	s := commitstest.New("memory://store")
	slow, l := open(t, s), open(t, s.Share())
	c := add(t, slow, nil, "a", map[string]string{"layout": "1", "stages/x/record.json": "same"})
	c = add(t, slow, c, "b", map[string]string{"layout": "2"})
	c = add(t, slow, c, "b", map[string]string{"layout": "3"})
	c = add(t, slow, c, "c", map[string]string{"stages/x/record.json": "other"})
	var stopped atomic.Bool
	s.SetBefore(func(_ context.Context, op, _ string) error {
		if op == "delete" && !stopped.Swap(true) {
			c := add(t, l, head(t, l), "d", map[string]string{"layout": "1"})
			add(t, l, c, "d", map[string]string{"stages/x/record.json": "same"})
		}
		return nil
	})
	if err := slow.Prune(t.Context(), c, 1, planned); err != nil || !stopped.Load() {
		t.Fatal(err, stopped.Load())
	}
	got, err := l.Download(t.Context(), head(t, l))
	if err != nil || string(got["layout"]) != "1" || string(got["stages/x/record.json"]) != "same" {
		t.Errorf("got %q, %v", got, err)
	}
	if err := slow.Prune(t.Context(), c, 1, planned); !errors.As(err, new(*ConflictError)) {
		t.Errorf("a second one: %v", err)
	}
}
