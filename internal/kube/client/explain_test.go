package client

import (
	"fmt"
	"strings"
	"testing"
)

func TestMessagesStayShort(t *testing.T) {
	if got := Brief("two\n  lines"); got != "two lines" {
		t.Errorf("got %q", got)
	}
	if got := []rune(Brief(strings.Repeat("ä", 1000))); len(got) != longest+1 || got[longest] != '…' {
		t.Errorf("a long message is cut to %d characters", len(got))
	}
	calling := `failed calling webhook "validator.longhorn.io": `
	call := `failed to call webhook: Post ` +
		`"https://longhorn-admission-webhook.longhorn-system.svc:9502/v1/webhook/validation?timeout=10s": `
	came := "tls: failed to verify certificate: x509: certificate signed by unknown authority: which of " +
		"the many is not message here, but it takes room"
	if got := Brief(calling + call + came); got != calling+came {
		t.Errorf("of a long call there is left: %q", got)
	}
	if got := Brief(calling + call + "EOF"); got != calling+call+"EOF" {
		t.Errorf("of a short call there is left: %q", got)
	}
	var many []string
	for i := range 8 {
		many = append(many, fmt.Sprint(i))
	}
	if got := Several(many); got != "0; 1; 2; 3; 4; and 3 more" {
		t.Errorf("got %q", got)
	}
}

func TestAWebhooksCertificateThatIsOutOfDateIsNamed(t *testing.T) {
	message := "x509: certificate has expired or is not yet valid: current time 2026-03-01T12:00:00Z is "
	for moment, want := range map[string]string{
		message + "after 2026-02-01T00:00:00Z": "x509: certificate has expired on " +
			"2026-02-01T00:00:00Z",
		message + "before 2026-04-01T00:00:00Z": "x509: certificate is not valid before " +
			"2026-04-01T00:00:00Z",
		"x509: certificate has expired or is not yet valid": "x509: certificate has expired or is not yet " +
			"valid",
	} {
		if got := Brief(moment); got != want {
			t.Errorf("got %q, want %q", got, want)
		}
	}
}
