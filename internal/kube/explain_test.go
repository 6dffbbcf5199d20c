package kube

import (
	"fmt"
	"strings"
	"testing"
)

func TestMessagesStayShort(t *testing.T) {
	if got := brief("two\n  lines"); got != "two lines" {
		t.Errorf("got %q", got)
	}
	if got := []rune(brief(strings.Repeat("ä", 1000))); len(got) != longest+1 || got[longest] != '…' {
		t.Errorf("a long message is cut to %d characters", len(got))
	}
	var many []string
	for i := range 8 {
		many = append(many, fmt.Sprint(i))
	}
	if got := several(many); got != "0; 1; 2; 3; 4; and 3 more" {
		t.Errorf("got %q", got)
	}
}

func TestEveryGateTypeExplainsItself(t *testing.T) {
	seen := map[string]bool{}
	for _, kind := range GateTypes() {
		if seen[kind.Name] {
			t.Errorf("two gate types are called %s", kind.Name)
		}
		seen[kind.Name] = true
		if kind.Summary == "" || !kind.Kubernetes {
			t.Errorf("gate %s has no summary, or no edge to the platform whose kubeconfig it reads", kind.Name)
		}
		for name, attribute := range kind.Attributes {
			if attribute.Help == "" {
				t.Errorf("gate %s: %s has no help", kind.Name, name)
			}
		}
	}
}
