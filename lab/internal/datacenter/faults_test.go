package datacenter

import (
	"strings"
	"testing"
	"time"
)

func TestParseFaults(t *testing.T) {
	f, err := ParseFaults([]string{"webhook-late=90s", "ghost-vm=421", "infisical-secret-exists=1"})
	if want := (Faults{WebhookLate: 90 * time.Second, GhostVM: 421, SecretExists: true}); err != nil || f != want {
		t.Errorf("got %+v, %v, want %+v", f, err, want)
	}
	for text, want := range map[string]string{
		"webhook-late":       "write it as NAME=VALUE",
		"webhook-late=soon":  "fault webhook-late: time: invalid duration",
		"webhook-late=-1s":   "fault webhook-late: -1s is negative",
		"ghost-vm=7":         "fault ghost-vm: 7 is no VM id",
		"ghost-vm=database":  "fault ghost-vm: strconv",
		"power-cut=tomorrow": "there is no such fault",
	} {
		if _, err := ParseFaults([]string{text}); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: %v, want %q", text, err, want)
		}
	}
}
