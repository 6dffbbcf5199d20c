package postgres

import (
	"strings"
	"testing"
)

func TestAVerifierIsNewEachTimeAndOfASCIIOnly(t *testing.T) {
	one, err := Verifier("open sesame")
	if err != nil || !strings.HasPrefix(one, "SCRAM-SHA-256$4096:") {
		t.Fatalf("%q, %v", one, err)
	}
	if other, err := Verifier("open sesame"); err != nil || other == one {
		t.Errorf("the same salt twice: %v", err)
	}
	if _, err := Verifier("öffne dich"); err == nil || strings.Contains(err.Error(), "dich") {
		t.Errorf("not ASCII: %v", err)
	}
}
