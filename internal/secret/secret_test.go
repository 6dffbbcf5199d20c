package secret_test

import (
	"bytes"
	"encoding/base64"
	"errors"
	"fmt"
	"strings"
	"sync"
	"testing"

	"github.com/ephemeral-castle/castle/internal/secret"
)

func TestASecretIsHiddenInEveryEncoding(t *testing.T) {
	const value = `p&ss "w<rd/x`
	for _, c := range []struct{ name, text, want string }{
		{"as it is", "login with " + value + " failed", "login with (sensitive) failed"},
		{"twice", value + value, "(sensitive)(sensitive)"},
		{"in JSON", `{"a":"p&ss \"w<rd/x"}`, `{"a":"(sensitive)"}`},
		{"in JSON for HTML", `{"a":"p\u0026ss \"w\u003crd/x"}`, `{"a":"(sensitive)"}`},
		{"in a query", "GET /?token=p%26ss+%22w%3Crd%2Fx: 403", "GET /?token=(sensitive): 403"},
		{"in a path", "GET /p&ss%20%22w%3Crd%2Fx/a", "GET /(sensitive)/a"},
		{"in base64", "Basic " + base64.StdEncoding.EncodeToString([]byte(value)), "Basic (sensitive)"},
		{"not there", "login failed", "login failed"},
	} {
		t.Run(c.name, func(t *testing.T) {
			m := &secret.Masker{}
			m.Add(value)
			if got := m.Hide(c.text); got != c.want {
				t.Errorf("got %q, want %q", got, c.want)
			}
		})
	}
}

func TestEachLineOfASecretIsSecretButNotThePEMFrame(t *testing.T) {
	m := &secret.Masker{}
	m.Add("-----BEGIN KEY-----\nMIIBsecond\nMIIBthird\n-----END KEY-----\n")
	for text, want := range map[string]string{
		`  + key = "MIIBsecond`: `  + key = "(sensitive)`,
		"-----BEGIN KEY-----":   "-----BEGIN KEY-----",
		"MIIBthird MIIBsecond":  "(sensitive) (sensitive)",
	} {
		if got := m.Hide(text); got != want {
			t.Errorf("%q: got %q, want %q", text, got, want)
		}
	}
}

func TestTheFrameOfAKubeconfigIsNoSecret(t *testing.T) {
	m := &secret.Masker{}
	m.Add("contexts:\n  castle:\n    nodes:\n      - 192.168.1.221\n    key: bXkgc2VjcmV0\n")
	if got, want := m.Hide("1 of 2 nodes: worker-01; key: bXkgc2VjcmV0"),
		"1 of 2 nodes: worker-01; (sensitive)"; got != want {
		t.Errorf("got %q, want %q", got, want)
	}
}

func TestASecretInsideAnotherLeavesNoRest(t *testing.T) {
	m := &secret.Masker{}
	m.Add("hunter2")
	m.Add("hunter2-and-more")
	if got := m.Hide("hunter2-and-more, hunter2"); got != "(sensitive), (sensitive)" {
		t.Errorf("got %q", got)
	}
}

func TestShortValuesStayReadable(t *testing.T) {
	m := &secret.Masker{}
	m.Add("true", "", "1")
	if got := m.Hide("true: 1 to add"); got != "true: 1 to add" {
		t.Errorf("got %q", got)
	}
}

func TestWriterFindsASecretThatIsWrittenInPieces(t *testing.T) {
	m, out := &secret.Masker{}, &bytes.Buffer{}
	m.Add("hunter2-is-long")
	w := m.Writer(out)
	for _, piece := range []string{"first: hunter2", "-is-long\nsecond: hun", "ter2-is-long"} {
		if n, err := w.Write([]byte(piece)); n != len(piece) || err != nil {
			t.Fatalf("wrote %d of %d, %v", n, len(piece), err)
		}
		if strings.Contains(out.String(), "hunter2") {
			t.Fatalf("a piece got out: %q", out)
		}
	}
	if err := w.Close(); err != nil {
		t.Fatal(err)
	}
	if got := out.String(); got != "first: (sensitive)\nsecond: (sensitive)" {
		t.Errorf("got %q", got)
	}
}

func TestWriterFindsASecretThatSeveralLinesHold(t *testing.T) {
	for _, c := range []struct{ pieces, want string }{
		{"with correct horse|\nbattery| staple\nend\n", "with (sensitive)\nend\n"},
		{"with c|\n  orrect horse|\n  battery staple\nend\n", "with c\n(sensitive)\nend\n"},
		{"with correct\n|answers\n", "with correct\nanswers\n"},
		{"with correct\n", "with correct\n"},
	} {
		m, out := &secret.Masker{}, &bytes.Buffer{}
		m.Add("correct horse battery staple")
		w := m.Writer(out)
		for piece := range strings.SplitSeq(c.pieces, "|") {
			if _, err := w.Write([]byte(piece)); err != nil {
				t.Fatal(err)
			}
		}
		if err := w.Close(); err != nil {
			t.Fatal(err)
		}
		if got := out.String(); got != c.want {
			t.Errorf("%q: got %q, want %q", c.pieces, got, c.want)
		}
	}
}

func TestWhatHideLikelyLeavesOfASecretIsHidden(t *testing.T) {
	m := &secret.Masker{}
	m.Add("hunter2;and-more")
	if got := m.Hide(secret.HideLikely("password=hunter2;and-more")); strings.Contains(got, "more") {
		t.Errorf("got %q", got)
	}
}

func TestWriterReturnsAnErrorOfTheOtherWriter(t *testing.T) {
	full := errors.New("disk full")
	w := (&secret.Masker{}).Writer(broken{full})
	if _, err := w.Write([]byte("a line\n")); !errors.Is(err, full) {
		t.Errorf("write: %v", err)
	}
	if err := w.Close(); !errors.Is(err, full) {
		t.Errorf("close: %v", err)
	}
}

type broken struct{ err error }

func (b broken) Write([]byte) (int, error) { return 0, b.err }

func TestSecretsMayBeAddedWhileTextIsHidden(t *testing.T) {
	m := &secret.Masker{}
	var all sync.WaitGroup
	for i := range 8 {
		all.Go(func() {
			word := fmt.Sprintf("secret-number-%d", i)
			m.Add(word)
			if got := m.Hide(word); got != secret.Mask {
				t.Errorf("got %q", got)
			}
		})
	}
	all.Wait()
}

func TestCommonLinesOfAKubeconfigStay(t *testing.T) {
	m := &secret.Masker{}
	m.Add("apiVersion: v1\nkind: Config\nusers:\n- name: admin\n  user:\n    token: abcdefgh\n" +
		"    insecure: true\n")
	shown := "apiVersion: v1\nkind: Config\nusers:\nname: admin-01\ninsecure: true\n"
	if got := m.Hide(shown); got != shown {
		t.Errorf("got %q", got)
	}
	if got := m.Hide("it says token: abcdefgh here"); got != "it says "+secret.Mask+" here" {
		t.Errorf("got %q", got)
	}
}
