package secret_test

import (
	"encoding/base64"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"net/url"
	"strconv"
	"strings"
	"testing"

	"github.com/ephemeral-castle/castle/internal/secret"
)

// printed are the ways in which programs print a secret.
var printed = map[string]func(string) string{
	"plain":       func(s string) string { return s },
	"wrapped":     func(s string) string { return strings.Join(strings.Fields(s), "\n   ") },
	"on one line": func(s string) string { return strings.Join(strings.Fields(s), " ") },
	"basic auth":  func(s string) string { return base64.StdEncoding.EncodeToString([]byte("admin:" + s)) },
	"base64 at 1": func(s string) string {
		return base64.URLEncoding.EncodeToString([]byte("u" + s + "\n"))
	},
	"base64 at 2": func(s string) string {
		return base64.RawStdEncoding.EncodeToString([]byte("us" + s + "##"))
	},
	"hex":           func(s string) string { return hex.EncodeToString([]byte(s)) },
	"HEX":           func(s string) string { return fmt.Sprintf("%X", s) },
	"query":         url.QueryEscape,
	"path":          url.PathEscape,
	"lower percent": func(s string) string { return lowerPercent(url.PathEscape(s)) },
	"JSON":          func(s string) string { return toJSON(s) },
	"JSON in JSON":  func(s string) string { return toJSON(toJSON(s)) },
	"single quotes": func(s string) string { return "'" + strings.ReplaceAll(s, "'", `'\''`) + "'" },
	"Go":            strconv.Quote,
	cutAtItsEnd:     func(s string) string { return s[:len(s)*2/3] },
	cutAtItsTop:     func(s string) string { return s[len(s)/3:] },
}

const cutAtItsEnd, cutAtItsTop = "cut at its end", "cut at its top"

func toJSON(s string) string {
	text, err := json.Marshal(s)
	if err != nil {
		panic(err)
	}
	return string(text)
}

func lowerPercent(s string) string {
	var b strings.Builder
	for i := 0; i < len(s); i++ {
		if s[i] == '%' {
			b.WriteString(strings.ToLower(s[i : i+3]))
			i += 2
			continue
		}
		b.WriteByte(s[i])
	}
	return b.String()
}

// left is how many characters of a secret may be left in a row.
const left = 11

func FuzzMasker(f *testing.F) {
	for _, seed := range []string{
		"correct  horse battery staple", "p&ss \"w<rd/x", "it's $HOME `x` \\n", "tab\tand\nline two of it\n",
		"Zm9vYmFy+/==", "Köln-9f8e7d6c5b4a", "s.8dJk2Lm9Qp4Rt6Vw",
	} {
		f.Add(seed)
	}
	f.Fuzz(func(t *testing.T, value string) {
		value = strings.ToValidUTF8(value, "")
		if len(strings.Join(strings.Fields(value), "")) < 12 || !distinct(value) {
			t.Skip("too short, or made of too few letters to tell it from what stands around it")
		}
		m := &secret.Masker{}
		m.Add(value)
		for name, print := range printed {
			head, tail := "%BEFORE%", "%AFTER%"
			switch name {
			case cutAtItsEnd:
				tail = "…" + tail
			case cutAtItsTop:
				head += "… 12 bytes left out …\n"
			}
			shown := m.Hide(head + print(value) + tail)
			rest, headLeft := strings.CutPrefix(shown, head)
			rest, tailLeft := strings.CutSuffix(rest, tail)
			if !headLeft || !tailLeft {
				t.Errorf("%s of %q: the text around it is gone: %q", name, value, shown)
			}
			rest = squeeze(strings.ReplaceAll(rest, secret.Mask, "\x00"))
			for _, form := range []string{squeeze(value), squeeze(print(value))} {
				for i := 0; i+left < len(form); i++ {
					if part := form[i : i+left+1]; strings.Contains(rest, part) {
						t.Fatalf("%s of %q: %q is left in %q", name, value, part, shown)
					}
				}
			}
		}
	})
}

func squeeze(s string) string { return strings.Join(strings.Fields(s), "") }

func distinct(s string) bool {
	seen := map[rune]bool{}
	for _, r := range s {
		seen[r] = true
	}
	return len(seen) >= 6
}
