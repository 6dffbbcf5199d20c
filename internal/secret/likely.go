package secret

import (
	"regexp"
	"strings"
)

// HideLikely masks everything in text that looks like a credential: private keys,
// tokens, passwords in URLs and in "password=…". It is for texts of other programs,
// such as a Pod's log; a Masker hides the secrets that castle knows.
func HideLikely(text string) string {
	for _, l := range looks {
		text = l.pattern.ReplaceAllString(text, l.becomes)
	}
	return text
}

// Likely reports whether a text contains a credential by its form, or something named
// like one: "password=…".
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
	for _, harmless := range []string{"name", "names", "ref", "namespace", "path", "file", "type", "kind",
		"class", "policy"} {
		if strings.HasSuffix(name, harmless) {
			return false
		}
	}
	for _, part := range []string{
		"password", "passwd", "passphrase", "secret", "token", "credential", "apikey", "accesskey",
		"privatekey",
		"signingkey", "encryptionkey", "sshkey", "authorization", "bearer", "connectionstring", "dsn",
	} {
		if strings.Contains(name, part) {
			return true
		}
	}
	return name == "pwd" || strings.HasSuffix(name, "pass")
}

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
