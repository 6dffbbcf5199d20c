// Package secret hides the secrets of a run in all output and files of castle. A Masker hides known secrets;
// HideLikely hides texts that look like secrets.
package secret

import (
	"bytes"
	"encoding/base64"
	"encoding/json"
	"io"
	"net/url"
	"regexp"
	"slices"
	"strings"
	"sync"
)

// Mask replaces a secret.
const Mask = "(sensitive)"

// shortest is the length below which a value is not masked: hiding every "1"
// or "true" would make logs unreadable and protect nothing.
const shortest = 6

// Masker replaces known secrets. The zero value has none. It is safe for concurrent use.
type Masker struct {
	mu       sync.RWMutex
	known    []string // longest first, so that a secret inside another goes last
	replacer *strings.Replacer
}

// Add makes values secret: unchanged, by line, escaped for JSON or a URL, and in base64. Terraform prints a
// PEM block line by line.
func (m *Masker) Add(values ...string) {
	m.mu.Lock()
	defer m.mu.Unlock()
	for _, v := range values {
		for _, form := range forms(v) {
			if len(form) >= shortest && !slices.Contains(m.known, form) {
				m.known = append(m.known, form)
			}
		}
	}
	slices.SortFunc(m.known, func(a, b string) int { return len(b) - len(a) })
	pairs := make([]string, 0, 2*len(m.known))
	for _, k := range m.known {
		pairs = append(pairs, k, Mask)
	}
	m.replacer = strings.NewReplacer(pairs...)
}

func forms(v string) []string {
	all := []string{
		v, strings.TrimSpace(v), base64.StdEncoding.EncodeToString([]byte(v)),
		url.QueryEscape(v), url.PathEscape(v),
	}
	for _, html := range []bool{false, true} { // <, > and & are written in two ways
		var b bytes.Buffer
		e := json.NewEncoder(&b)
		e.SetEscapeHTML(html)
		if err := e.Encode(v); err == nil {
			quoted := strings.TrimSuffix(b.String(), "\n")
			all = append(all, quoted[1:len(quoted)-1])
		}
	}
	if strings.Contains(v, "\n") {
		for line := range strings.Lines(v) {
			// In a kubeconfig, "nodes:" and the like are no secret, and castle prints such words.
			if line = strings.TrimSpace(line); !strings.HasPrefix(line, "-----") &&
				!harmless.MatchString(line) {
				all = append(all, line)
			}
		}
	}
	return all
}

// harmless is a line of YAML without a value, or with one that is no secret: a switch, a
// name, or the kind of the document.
var harmless = regexp.MustCompile(`^(- )?([A-Za-z-]+:( (true|false|null|\{\}|\[\]|\|))?|` +
	`(apiVersion|kind|name|namespace|cluster|current-context): [A-Za-z0-9./@-]+)$`)

// Hide returns s with every known secret replaced by Mask.
func (m *Masker) Hide(s string) string {
	m.mu.RLock()
	defer m.mu.RUnlock()
	if m.replacer == nil {
		return s
	}
	return m.replacer.Replace(s)
}

// Writer returns a writer that hides secrets and passes whole lines on to w, so that a secret that a buffer
// cuts in two is found. Close writes the rest of an unfinished line; it does not close w.
func (m *Masker) Writer(w io.Writer) io.WriteCloser { return &lines{masker: m, to: w} }

type lines struct {
	mu     sync.Mutex
	masker *Masker
	to     io.Writer
	rest   []byte
}

func (l *lines) Write(p []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.rest = append(l.rest, p...)
	end := bytes.LastIndexByte(l.rest, '\n') + 1
	if end == 0 {
		return len(p), nil
	}
	_, err := io.WriteString(l.to, l.masker.Hide(string(l.rest[:end])))
	l.rest = append([]byte(nil), l.rest[end:]...)
	return len(p), err
}

func (l *lines) Close() error {
	l.mu.Lock()
	defer l.mu.Unlock()
	_, err := io.WriteString(l.to, l.masker.Hide(string(l.rest)))
	l.rest = nil
	return err
}

// HideLikely masks everything in text that looks like a credential: private keys,
// tokens, passwords in URLs and in "password=…". It is for texts of other programs,
// such as a Pod's log; a Masker hides the secrets that castle knows.
func HideLikely(text string) string {
	for _, l := range looks {
		text = l.pattern.ReplaceAllString(text, l.becomes)
	}
	return text
}

// Likely reports whether a text contains a credential by its form, or something named like one: "password=…".
func Likely(text string) (certain, named bool) {
	for _, l := range looks {
		if l.pattern.MatchString(text) {
			certain, named = certain || !l.named, named || l.named
		}
	}
	return certain, named
}

// LikelyName reports whether a field, variable or annotation of this name usually
// contains a credential, and not its name or place.
func LikelyName(name string) bool {
	name = name[strings.LastIndexByte(name, '/')+1:] // external-secrets.io/component
	name = strings.ToLower(strings.NewReplacer("-", "", "_", "", ".", "").Replace(name))
	return credentialName.MatchString(name) && !placeName.MatchString(name)
}

var (
	credentialName = regexp.MustCompile(`password|passwd|passphrase|secret|token|credential|apikey|` +
		`accesskey|privatekey|signingkey|encryptionkey|sshkey|authorization|bearer|connectionstring|` +
		`dsn|^pwd$|pass$`)
	placeName = regexp.MustCompile(`(names?|ref|namespace|path|file|type|kind|class|policy)$`)
)

// look is the form of a credential.
type look struct {
	pattern *regexp.Regexp
	becomes string
	named   bool // only the words before it tell
}

var looks = []look{
	{regexp.MustCompile(`(?s)-----BEGIN [A-Z ]*PRIVATE KEY-----.*?(-----END [A-Z ]*PRIVATE KEY-----|$)`),
		Mask, false},
	{regexp.MustCompile(`eyJ[A-Za-z0-9_-]{8,}\.[A-Za-z0-9_-]{8,}\.[A-Za-z0-9_-]*`), Mask, false},
	{regexp.MustCompile(`(?i)\b(bearer|basic) [A-Za-z0-9+/._~=-]{8,}`), "$1 " + Mask, true},
	{regexp.MustCompile(`([A-Za-z][A-Za-z0-9+.-]*://[^\s/:@"']*):[^\s/@"']+@`), "$1:" + Mask + "@", false},
	{regexp.MustCompile(`(?i)((?:password|passwd|passphrase|secret|token|(?:api|access|private)[-_]?key)` +
		`["']?[ \t]*[=:][ \t]*["']?)[^\s"',;&(]{4,}`), "$1" + Mask, true},
	{regexp.MustCompile(`\b(ghp|gho|ghs|github_pat|glpat|hvs|xox[abp]|AKIA|ASIA|sk)` +
		`[-_A-Z0-9.][A-Za-z0-9_.-]{12,}`), Mask, false},
}
