package sources

import (
	"slices"
	"strings"
	"testing"
)

func TestARangeIsTheFirstVersionThatItNames(t *testing.T) {
	got := versions([]string{"main", ">=1.2 <2", "~1.4.7", "3.x", "v2.0.0"})
	if want := []string{"main", "1.2.0", "1.4.7", "3.0.0", "v2.0.0"}; !slices.Equal(got, want) {
		t.Errorf("got %v, want %v", got, want)
	}
}

func TestTheKnownHostsHaveEachPort(t *testing.T) {
	k, err := NewKeys([]uint16{2222}, []string{"ghcr.io"})
	if err != nil {
		t.Fatal(err)
	}
	hosts, err := k.KnownHosts()
	if err != nil || !strings.HasPrefix(hosts, "* ssh-ed25519 ") ||
		!strings.Contains(hosts, "\n[*]:2222 ssh-ed") {
		t.Errorf("%s, %v", hosts, err)
	}
	auths, err := k.Auths()
	if err != nil || !strings.Contains(auths, `"ghcr.io":{"password":"`+k.Password) {
		t.Errorf("%s, %v", auths, err)
	}
}
