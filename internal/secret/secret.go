// Package secret hides the secrets of a run in all output and files of castle. A Masker hides known secrets;
// HideLikely hides texts that look like secrets.
package secret

import (
	"bytes"
	"cmp"
	"encoding/base64"
	"encoding/hex"
	"encoding/json"
	"io"
	"net/url"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"sync"
	"unicode"
	"unicode/utf8"
)

// ExposedError reports a secret where everybody can read it, without the secret.
type ExposedError struct{ Message string }

func (e *ExposedError) Error() string { return e.Message }

// Mask replaces a secret.
const Mask = "(sensitive)"

const (
	// shortest is the length below which a value is not masked: hiding every "1" or "true" would make logs
	// unreadable and protect nothing.
	shortest = 6
	// keyLength is how much of a form is indexed, and the shortest rest of a cut secret that is found.
	keyLength = 4
)

// Masker replaces known secrets. The zero value has none. It is safe for concurrent use. Texts are masked
// before castle shortens or wraps them, except those of the cluster and of probes, and those that others have
// shortened. So it compares texts without their white space, and next to an ellipsis it also finds the
// beginning or the end of a secret.
type Masker struct {
	mu      sync.RWMutex
	known   map[string]bool     // every form of every secret, without white space
	byHead  map[string][]string // the forms by their first bytes, the longest first
	byTail  map[string][]string // the forms by their last bytes
	longest int                 // form
}

// Add makes values secret, in every form that programs print them in: see forms.
func (m *Masker) Add(values ...string) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.known == nil {
		m.known, m.byHead, m.byTail = map[string]bool{}, map[string][]string{}, map[string][]string{}
	}
	for _, v := range values {
		if len(v) < shortest {
			continue
		}
		for _, form := range forms(v) {
			if len(form) >= shortest {
				m.add(squeeze(form).text)
			}
		}
	}
}

func (m *Masker) add(form string) {
	if len(form) < keyLength || m.known[form] {
		return
	}
	m.known[form] = true
	m.longest = max(m.longest, len(form))
	head, tail := form[:keyLength], form[len(form)-keyLength:]
	m.byTail[tail] = append(m.byTail[tail], form)
	m.byHead[head] = append(m.byHead[head], form)
	slices.SortFunc(m.byHead[head], func(a, b string) int { return len(b) - len(a) })
}

// forms returns a value as it is, by line as Terraform prints a PEM block, and as encoders and quoters write
// it: JSON, also inside JSON, URLs, shells, hex and base64.
func forms(v string) []string {
	quoted := strconv.Quote(v) // %q of Go's error messages
	all := append(base64Forms(v), v, strings.TrimSpace(v), quoted[1:len(quoted)-1],
		shellSingle.Replace(v), shellDouble.Replace(v))
	for _, escaped := range []string{url.QueryEscape(v), url.PathEscape(v)} {
		all = append(all, escaped, percent.ReplaceAllStringFunc(escaped, strings.ToLower))
	}
	digits := hex.EncodeToString([]byte(v))
	all = append(all, digits, strings.ToUpper(digits))
	for _, html := range []bool{false, true} { // <, > and & are written in two ways
		quoted := inJSON(v, html)
		all = append(all, quoted, inJSON(quoted, html))
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

var (
	shellSingle = strings.NewReplacer(`'`, `'\''`)
	shellDouble = strings.NewReplacer(`\`, `\\`, `"`, `\"`, "$", `\$`, "`", "\\`")
	percent     = regexp.MustCompile(`%[0-9A-F]{2}`)
)

func inJSON(v string, html bool) string {
	var b bytes.Buffer
	e := json.NewEncoder(&b)
	e.SetEscapeHTML(html)
	if err := e.Encode(v); err != nil {
		return v
	}
	quoted := strings.TrimSuffix(b.String(), "\n")
	return quoted[1 : len(quoted)-1]
}

// base64Forms returns v in base64 and, for v inside a longer text such as user:token, the digits that depend
// on v alone. These differ by how many bytes of a group of three come before v.
func base64Forms(v string) []string {
	text := []byte(v)
	all := []string{base64.StdEncoding.EncodeToString(text), base64.URLEncoding.EncodeToString(text)}
	for _, alphabet := range []*base64.Encoding{base64.RawStdEncoding, base64.RawURLEncoding} {
		for before := range 3 {
			digits := alphabet.EncodeToString(append(make([]byte, before), text...))
			all = append(all, digits[(8*before+5)/6:8*(before+len(v))/6])
		}
	}
	return all
}

// harmless is a line of YAML without a value, or with one that is no secret: a switch, a name, or a kind.
var harmless = regexp.MustCompile(`^(- )?([A-Za-z-]+:( (true|false|null|\{\}|\[\]|\|))?|` +
	`(apiVersion|kind|name|namespace|cluster|current-context): [A-Za-z0-9./@-]+)$`)

// squeezed is a text without its white space, and without bytes that are no character: a shortened text may
// begin or end in the middle of one.
type squeezed struct {
	text string
	at   []int // the offset of each byte in the text before
}

func squeeze(s string) squeezed {
	kept, at := make([]byte, 0, len(s)), make([]int, 0, len(s))
	for i := 0; i < len(s); {
		r, size := utf8.DecodeRuneInString(s[i:])
		for end := i + size; i < end; i++ {
			if !unicode.IsSpace(r) && (r != utf8.RuneError || size > 1) {
				kept, at = append(kept, s[i]), append(at, i)
			}
		}
	}
	return squeezed{string(kept), at}
}

// span is a part of a squeezed text: from its first byte to before end.
type span struct{ first, end int }

// Hide returns s with every known secret replaced by Mask.
func (m *Masker) Hide(s string) string {
	masked, _ := m.hide(s, 0, true)
	return masked
}

// hide masks what follows the first bytes of s, up to from. It returns where it ended: unless s is all that
// there is, it stops before a line in which a secret may begin that ends in a later one.
func (m *Masker) hide(s string, from int, all bool) (masked string, end int) {
	m.mu.RLock()
	defer m.mu.RUnlock()
	end = len(s)
	if len(m.known) == 0 {
		return s[from:], end
	}
	short := squeeze(s)
	found := m.find(short.text)
	slices.SortFunc(found, func(a, b span) int { return cmp.Compare(a.first, b.first) })
	if first := m.unfinished(short.text); first < len(short.text) && !all {
		end = short.at[first]
	}
	if !all {
		end = strings.LastIndexByte(s[:end], '\n') + 1
		for _, x := range slices.Backward(found) {
			if short.at[x.first] < end && short.at[x.end-1] >= end {
				end = strings.LastIndexByte(s[:short.at[x.first]], '\n') + 1
			}
		}
	}
	end = max(from, end)
	var b strings.Builder
	written := from
	for i := 0; i < len(found); {
		first, last := found[i].first, found[i].end
		for i++; i < len(found) && found[i].first < last; i++ { // they overlap: one Mask for all
			last = max(last, found[i].end)
		}
		start, stop := short.at[first], short.at[last-1]+1
		if start >= end || stop <= from {
			continue
		}
		b.WriteString(s[written:max(start, written)])
		b.WriteString(Mask)
		written = stop
	}
	b.WriteString(s[min(written, end):end])
	return b.String(), end
}

// unfinished returns where in a text a secret begins that ends after it; the text's length if none does.
func (m *Masker) unfinished(text string) int {
	for i := max(0, len(text)-m.longest); i+keyLength <= len(text); i++ {
		begins := func(form string) bool {
			return len(form) > len(text)-i && strings.HasPrefix(form, text[i:])
		}
		if slices.ContainsFunc(m.byHead[text[i:i+keyLength]], begins) {
			return i
		}
	}
	return len(text)
}

// find returns where secrets stand in a text, whole or cut at an ellipsis.
func (m *Masker) find(text string) []span {
	var found []span
	var heads, tails []int // where a form may begin or end
	for i := 0; i+keyLength <= len(text); i++ {
		key := text[i : i+keyLength]
		if len(m.byTail[key]) > 0 {
			tails = append(tails, i+keyLength)
		}
		forms := m.byHead[key]
		if len(forms) == 0 {
			continue
		}
		heads = append(heads, i)
		whole := func(form string) bool { return strings.HasPrefix(text[i:], form) }
		if longest := slices.IndexFunc(forms, whole); longest >= 0 {
			found = append(found, span{i, i + len(forms[longest])})
		}
	}
	for _, at := range ellipsis.FindAllStringIndex(text, -1) {
		at[0] = len(strings.TrimRight(text[:at[0]], broken))
		at[1] = len(text) - len(strings.TrimLeft(text[at[1]:], broken))
		for _, i := range between(heads, at[0]-m.longest, at[0]-keyLength) {
			begins := func(form string) bool { return strings.HasPrefix(form, text[i:at[0]]) }
			if slices.ContainsFunc(m.byHead[text[i:i+keyLength]], begins) {
				found = append(found, span{i, at[0]})
				break
			}
		}
		for _, j := range slices.Backward(between(tails, at[1]+keyLength, at[1]+m.longest)) {
			ends := func(form string) bool { return strings.HasSuffix(form, text[at[1]:j]) }
			if slices.ContainsFunc(m.byTail[text[j-keyLength:j]], ends) {
				found = append(found, span{at[1], j})
				break
			}
		}
	}
	return found
}

// between returns the part of a sorted list from first to last, both included.
func between(sorted []int, first, last int) []int {
	i, _ := slices.BinarySearch(sorted, first)
	j, _ := slices.BinarySearch(sorted, last+1)
	return sorted[min(i, j):j]
}

// ellipsis is what a shortened text has at its cut. HideLikely may have replaced another part of a secret.
var ellipsis = regexp.MustCompile(`…|\.{3,}|` + regexp.QuoteMeta(Mask))

// broken is a character that a cut has broken.
const broken = string(utf8.RuneError)

// Writer returns a writer that hides secrets and passes whole lines on to w, so that it finds a secret that a
// buffer cuts in two or that several lines hold. Close writes the rest; it does not close w.
func (m *Masker) Writer(w io.Writer) io.WriteCloser { return &lines{masker: m, to: w} }

type lines struct {
	mu      sync.Mutex
	masker  *Masker
	to      io.Writer
	written string // the end of it: the first characters of a secret may stand there
	rest    []byte
}

// context is how much of the written text is kept, to find a secret that began in it. What begins with more
// than a few of its characters is not written before it ends.
const context = 128

func (l *lines) Write(p []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.rest = append(l.rest, p...)
	return len(p), l.pass(bytes.LastIndexByte(l.rest, '\n')+1, false)
}

func (l *lines) Close() error {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.pass(len(l.rest), true)
}

// pass writes the first bytes of the rest, up to end, as far as they are known to hold no part of a secret.
func (l *lines) pass(end int, all bool) error {
	text := l.written + string(l.rest[:end])
	masked, done := l.masker.hide(text, len(l.written), all)
	l.rest = append([]byte(nil), l.rest[done-len(l.written):]...)
	l.written = text[max(0, done-context):done]
	if masked == "" && !all {
		return nil
	}
	_, err := io.WriteString(l.to, masked)
	return err
}

// HideAll passes each text of the lists through hide, in place.
func HideAll(hide func(string) string, lists ...[]string) {
	for _, texts := range lists {
		for i, text := range texts {
			texts[i] = hide(text)
		}
	}
}

// HideLikely masks everything in text that looks like a credential: private keys,
// tokens, passwords in URLs and in "password=…". It is for texts of other programs,
// such as a Pod's log; a Masker hides the secrets that castle knows.
func HideLikely(text string) string {
	for _, l := range looks() {
		text = l.pattern.ReplaceAllString(text, l.becomes)
	}
	return text
}

// Likely reports whether a text contains a credential by its form, or something named like one: "password=…".
func Likely(text string) (certain, named bool) {
	for _, l := range looks() {
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
		`accesskey|privatekey|authkey|presharedkey|signingkey|encryptionkey|sshkey|authorization|` +
		`bearer|connectionstring|dsn|^pwd$|pass$`)
	placeName = regexp.MustCompile(`(names?|ref|namespace|path|file|type|kind|class|policy|arn|ttl|url|` +
		`mode|version|region|prefix|store|length|keyid)$`)
)

// look is the form of a credential.
type look struct {
	pattern *regexp.Regexp
	becomes string
	named   bool // only the words before it tell
}

// Most commands need none of them, so the first use compiles them.
var looks = sync.OnceValue(func() []look {
	return []look{
		{regexp.MustCompile(`(?s)-----BEGIN [A-Z ]*PRIVATE KEY-----.*?(-----END [A-Z ]*PRIVATE KEY-----|$)`),
			Mask, false},
		{regexp.MustCompile(`eyJ[A-Za-z0-9_-]{8,}\.[A-Za-z0-9_-]{8,}\.[A-Za-z0-9_-]*`), Mask, false},
		{regexp.MustCompile(`(?i)\b(bearer|basic) [A-Za-z0-9+/._~=-]{8,}`), "$1 " + Mask, true},
		{regexp.MustCompile(`([A-Za-z][A-Za-z0-9+.-]*://[^\s/:@"']*):[^\s/@"']+@`),
			"$1:" + Mask + "@", false},
		{regexp.MustCompile(`(?i)((?:password|passwd|passphrase|secret|token|` +
			`(?:api|access|private)[-_]?key)["']?[ \t]*[=:][ \t]*["']?)[^\s"',;&(]{4,}`), "$1" + Mask, true},
		{regexp.MustCompile(`\b(ghp|gho|ghs|github_pat|glpat|hvs|xox[abp]|AKIA|ASIA|sk)` +
			`[-_A-Z0-9.][A-Za-z0-9_.-]{12,}`), Mask, false},
	}
})
