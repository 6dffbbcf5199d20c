package commits

import (
	"bytes"
	"crypto/sha256"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"strings"
	"testing"

	"github.com/ephemeral-castle/castle/internal/state/commits/commitstest"
)

// team is a log with two holders, ada and bob.
type team struct {
	t        *testing.T
	s        *commitstest.Memory
	ada, bob string // identities
}

func newTeam(t *testing.T) *team {
	_, ada := identity(t)
	_, bob := identity(t)
	return &team{t, commitstest.New("memory://store"), ada, bob}
}

// open returns the log as a machine with one identity opens it.
func (m *team) open(e Encryption) *Log {
	m.t.Helper()
	l, err := Open(m.s.Share(), cluster, e)
	if err != nil {
		m.t.Fatal(err)
	}
	return l
}

func (m *team) both(identity string) *Log { return m.open(encryption(identity, m.ada, m.bob)) }

// stored returns the two lines of a commit.
func (m *team) stored(l *Log, sequence int64) (text, signature []byte) {
	m.t.Helper()
	data, err := m.s.Read(m.t.Context(), l.key(sequence))
	if err != nil {
		m.t.Fatal(err)
	}
	if data, err = decompress(data, mostCommit); err != nil {
		m.t.Fatal(err)
	}
	text, signature, _ = bytes.Cut(data, []byte("\n"))
	return text, signature
}

func (m *team) replace(l *Log, sequence int64, text, signature []byte) {
	m.t.Helper()
	if len(signature) > 0 {
		text = fmt.Appendf(nil, "%s\n%s", text, signature)
	}
	data, err := compress(text)
	if err != nil {
		m.t.Fatal(err)
	}
	m.s.Replace(l.key(sequence), data)
}

// A writer to the store who has no identity forges nothing that a reader uses.
func TestForgedCommitsAreRefused(t *testing.T) {
	change := func(do func(*Commit)) func(*team, *Log) {
		return func(m *team, l *Log) {
			text, signature := m.stored(l, 2)
			var c Commit
			if err := json.Unmarshal(text, &c); err != nil {
				t.Fatal(err)
			}
			do(&c)
			text, err := json.Marshal(c)
			if err != nil {
				t.Fatal(err)
			}
			m.replace(l, 2, text, signature)
		}
	}
	for name, c := range map[string]struct {
		forge func(*team, *Log)
		want  []string
	}{
		"files": {change(func(c *Commit) { c.Files["layout"] = c.Files["stages/keys/record.json"] }),
			[]string{"commit 2 of " + cluster, "does not have the content that", "log/000000000002"}},
		"lock":       {change(func(c *Commit) { c.Lock = nil }), []string{"does not have the content"}},
		"recipients": {change(func(c *Commit) { c.Recipients = nil }), []string{"does not have the content"}},
		"moved":      {change(func(c *Commit) { c.Moved = "s3://a" }), []string{"does not have the content"}},
		"a field that no castle knows": {func(m *team, l *Log) {
			text, signature := m.stored(l, 2)
			m.replace(l, 2, bytes.Replace(text, []byte("{"), []byte(`{"later":1,`), 1), signature)
		}, []string{"does not have the content"}},
		"no signature": {func(m *team, l *Log) {
			text, _ := m.stored(l, 2)
			m.replace(l, 2, text, nil)
		}, []string{"is not signed", `"host-of-run"`, "castle state rekey " + cluster + " --trust unsigned"}},
		"a signature of another commit": {func(m *team, l *Log) {
			text, _ := m.stored(l, 2)
			_, other := m.stored(l, 1)
			m.replace(l, 2, text, other)
		}, []string{"does not have the content"}},
		"an old commit under a new number": {func(m *team, l *Log) {
			text, signature := m.stored(l, 1)
			m.replace(l, 3, text, signature)
		}, []string{"commit 3 of " + cluster, "it says that it is commit 1"}},
		"a commit of another cluster": {func(m *team, l *Log) {
			other, err := Open(m.s, "green/proxmox", encryption(m.ada, m.ada, m.bob))
			if err != nil {
				t.Fatal(err)
			}
			c := add(t, other, nil, "run", map[string]string{"layout": "1"})
			add(t, other, c, "run", map[string]string{"layout": "2"})
			text, signature := m.stored(other, 2)
			m.replace(l, 2, text, signature)
		}, []string{`it is a commit of the cluster "green/proxmox"`}},
		"a holder who is no signer": {func(m *team, l *Log) {
			_, eve := identity(t)
			alone := m.open(encryption(eve, m.ada, eve))
			alone.cipher.trusted = append(alone.cipher.trusted, l.cipher.of.Signers...)
			add(t, alone, head(t, alone), "run", map[string]string{"layout": "3"})
		}, []string{"commit 3 of", "who is not among the signers in castle.hcl", "--trust castle-ed25519:"}},
	} {
		t.Run(name, func(t *testing.T) {
			m := newTeam(t)
			m.t = t
			l := m.both(m.ada)
			first := add(t, l, nil, "run", map[string]string{"layout": "1", "stages/keys/record.json": "one"})
			add(t, l, first, "run", map[string]string{"layout": "2"})
			if got := head(t, m.both(m.bob)); got.Signer != encryption("", m.ada).Signers[0] {
				t.Fatalf("before: signed by %s", got.Signer)
			}
			c.forge(m, l)
			_, err := m.both(m.bob).Head(t.Context())
			for _, want := range c.want {
				if err == nil || !strings.Contains(err.Error(), want) {
					t.Errorf("got %v, want %q in it", err, want)
				}
			}
		})
	}
}

// A store that shows an old head to one holder, and joins both logs later, is noticed by who has seen the
// other one, and by everybody if it forgets to remove a commit.
func TestALogThatWasForkedIsRefused(t *testing.T) {
	m := newTeam(t)
	l := m.both(m.ada)
	c := add(t, l, nil, "run", map[string]string{"layout": "1"})
	seen := add(t, l, c, "run", map[string]string{"layout": "ada's"})
	kept, err := m.s.Read(t.Context(), l.key(2))
	if err != nil {
		t.Fatal(err)
	}
	if err := m.s.Delete(t.Context(), l.key(2)); err != nil {
		t.Fatal(err)
	}
	bobs := m.both(m.bob)
	fork := add(t, bobs, head(t, bobs), "run", map[string]string{"layout": "bob's"})
	add(t, bobs, fork, "run", map[string]string{"layout": "bob's second"})
	forked, err := m.s.Read(t.Context(), l.key(2))
	if err != nil {
		t.Fatal(err)
	}
	for name, change := range map[string]func() error{
		"the fork is complete":   func() error { return nil },
		"the old commit is back": func() error { m.s.Replace(l.key(2), kept); return nil },
		"it was removed":         func() error { return m.s.Delete(t.Context(), l.key(2)) },
	} {
		if err := change(); err != nil {
			t.Fatal(err)
		}
		again := m.both(m.ada)
		again.Remember(seen)
		if _, err := again.Head(t.Context()); !errors.As(err, new(*UntrustedError)) {
			t.Errorf("%s: %v", name, err)
		}
		m.s.Replace(l.key(2), forked)
	}
	m.s.Replace(l.key(2), kept)
	if _, err := m.both(m.ada).Head(t.Context()); err == nil ||
		!strings.Contains(err.Error(), "does not fit the commit 2") {
		t.Errorf("a machine that has seen nothing: %v", err)
	}
}

func TestContentsInClearAreRefused(t *testing.T) {
	m := newTeam(t)
	l := m.both(m.ada)
	content, err := compress([]byte("in clear"))
	if err != nil {
		t.Fatal(err)
	}
	name := fmt.Sprintf("%x-00000000", sha256.Sum256(content))
	m.s.Replace(l.prefix("objects")+name, content)
	c, err := l.Append(t.Context(), nil, Commit{Files: map[string]File{"layout": {Object: name, Size: 8}}})
	if err != nil {
		t.Fatal(err)
	}
	_, err = m.both(m.bob).Download(t.Context(), c)
	if !errors.As(err, new(*UntrustedError)) || !strings.Contains(err.Error(), "not encrypted (layout)") {
		t.Errorf("got %v", err)
	}
}

// Who may read and not write does neither append nor upload.
func TestAReaderWhoIsNoSignerWritesNothing(t *testing.T) {
	m := newTeam(t)
	l := m.both(m.ada)
	c := add(t, l, nil, "run", map[string]string{"layout": "1"})
	e := encryption(m.bob, m.ada, m.bob)
	e.Signers = e.Signers[:1]
	reader := m.open(e)
	if got, err := reader.Download(t.Context(), head(t, reader)); err != nil || string(got["layout"]) != "1" {
		t.Errorf("got %q, %v", got, err)
	}
	_, err := tryAdd(t.Context(), reader, c, "other", map[string]string{"layout": "2"})
	bob := encryption("", m.bob).Signers[0]
	if err == nil || !strings.Contains(err.Error(), bob) {
		t.Errorf("got %v", err)
	}
}

func TestRecipientsWithoutSignersAreRefused(t *testing.T) {
	e := encryption("", newTeam(t).ada)
	e.Signers = nil
	if _, err := Open(commitstest.New("memory://store"), cluster, e); err == nil ||
		!strings.Contains(err.Error(), "nothing says who may write") {
		t.Errorf("got %v", err)
	}
}

// After a rotation, commits of the holder who has left are listed, and neither read nor in the way of Prune.
func TestARotationKeepsTheLogUsable(t *testing.T) {
	m := newTeam(t)
	l := m.both(m.bob)
	add(t, l, nil, "bob's", map[string]string{"layout": "1"})
	alone := encryption(m.ada, m.ada)
	if _, err := m.open(alone).Head(t.Context()); !errors.As(err, new(*UntrustedError)) {
		t.Fatalf("before the rotation: %v", err)
	}
	widened := encryption(m.ada, m.ada)
	widened.Trust = encryption("", m.bob).Signers
	l = m.open(widened)
	add(t, l, head(t, l), "ada's", map[string]string{"layout": "2"})
	l = m.open(alone)
	if got, err := l.Download(t.Context(), head(t, l)); err != nil || string(got["layout"]) != "2" {
		t.Errorf("got %q, %v", got, err)
	}
	all, err := l.List(t.Context())
	if err != nil || len(all) != 2 || all[0].Untrusted != nil || all[1].Untrusted == nil {
		t.Errorf("list: %v, %v", all, err)
	}
	if _, err := l.Read(t.Context(), 1); !errors.As(err, new(*UntrustedError)) {
		t.Errorf("read: %v", err)
	}
	if err := l.Prune(t.Context(), head(t, l), 1, planned); err != nil {
		t.Error(err)
	}
	if _, err := l.Read(t.Context(), 1); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("after the prune: %v", err)
	}
}

func TestALogThatIsShorterThanExpectedIsRefused(t *testing.T) {
	s := commitstest.New("memory://store")
	l := open(t, s)
	l.Expect(1)
	if _, err := l.Head(t.Context()); err == nil || !strings.Contains(err.Error(), "CASTLE_STATE_AT_LEAST") {
		t.Errorf("an empty log: %v", err)
	}
	add(t, l, nil, "a", map[string]string{"layout": "1"})
	head(t, l)
	l.Expect(2)
	if _, err := l.Head(t.Context()); err == nil || !strings.Contains(err.Error(), "CASTLE_STATE_AT_LEAST") {
		t.Errorf("a log that was cut: %v", err)
	}
}
