package secret

import (
	"regexp"
	"strings"
)

// HideLikely returns text without what looks like a credential, known or not:
// private keys, tokens, passwords in URLs and in "password=…". It is for texts
// that others have written, such as a Pod's log; a Masker knows castle's own.
func HideLikely(text string) string {
	for _, l := range looks() {
		text = l.pattern.ReplaceAllString(text, l.becomes)
	}
	return text
}

// Likely reports whether a text is or holds a credential by its own look, or at
// least has something like "password=…" in it.
func Likely(text string) (certain, named bool) {
	for _, l := range looks() {
		if l.pattern.MatchString(text) {
			certain, named = certain || !l.named, named || l.named
		}
	}
	return certain, named
}

// LikelyName reports whether a field, variable or annotation with this name
// usually holds a credential, rather than the name of one or a way to it.
func LikelyName(name string) bool {
	name = name[strings.LastIndexByte(name, '/')+1:] // external-secrets.io/component
	name = strings.ToLower(strings.NewReplacer("-", "", "_", "", ".", "").Replace(name))
	for _, harmless := range []string{"name", "names", "ref", "namespace", "path", "file", "type", "kind", "class", "policy"} {
		if strings.HasSuffix(name, harmless) {
			return false
		}
	}
	for _, part := range []string{
		"password", "passwd", "passphrase", "secret", "token", "credential", "apikey", "accesskey", "privatekey",
		"signingkey", "encryptionkey", "sshkey", "authorization", "bearer", "connectionstring", "dsn",
	} {
		if strings.Contains(name, part) {
			return true
		}
	}
	return name == "pwd" || strings.HasSuffix(name, "pass")
}

type look struct {
	pattern *regexp.Regexp
	becomes string
	named   bool // told by the words before it alone
}

func looks() []look {
	return []look{
		{regexp.MustCompile(`(?s)-----BEGIN [A-Z ]*PRIVATE KEY-----.*?(-----END [A-Z ]*PRIVATE KEY-----|$)`), Mask, false},
		{regexp.MustCompile(`eyJ[A-Za-z0-9_-]{8,}\.[A-Za-z0-9_-]{8,}\.[A-Za-z0-9_-]*`), Mask, false},
		{regexp.MustCompile(`(?i)\b(bearer|basic) [A-Za-z0-9+/._~=-]{8,}`), "$1 " + Mask, true},
		{regexp.MustCompile(`([A-Za-z][A-Za-z0-9+.-]*://[^\s/:@"']*):[^\s/@"']+@`), "$1:" + Mask + "@", false},
		{regexp.MustCompile(`(?i)((?:password|passwd|passphrase|secret|token|api[-_]?key|access[-_]?key|private[-_]?key)["']?[ \t]*[=:][ \t]*["']?)[^\s"',;&(]{4,}`), "$1" + Mask, true},
		{regexp.MustCompile(`\b(ghp|gho|ghs|github_pat|glpat|hvs|xox[abp]|AKIA|ASIA|sk)[-_A-Z0-9.][A-Za-z0-9_.-]{12,}`), Mask, false},
	}
}
