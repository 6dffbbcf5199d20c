package postgres

import (
	"bytes"
	"net"
	"net/netip"
	"path/filepath"
	"strings"
	"testing"
)

func TestTheOwnerLogsInWithThePasswordOnly(t *testing.T) {
	l, err := net.Listen("tcp", "127.0.7.5:0")
	if err != nil {
		t.Fatal(err)
	}
	place := netip.MustParseAddrPort(l.Addr().String())
	if err := l.Close(); err != nil {
		t.Fatal(err)
	}
	var log bytes.Buffer
	s, err := Start(t.Context(), Options{
		Dir: filepath.Join(t.TempDir(), "pg"), Place: place,
		Database: "lab-db", User: "lab-admin", Password: "open sesame", Log: &log,
	})
	if err != nil {
		t.Fatalf("%v\n%s", err, log.String())
	}
	ask := func(password string) (string, error) {
		return Query(t.Context(), place, "lab-db", "lab-admin", password,
			"CREATE ROLE other LOGIN; SELECT current_user, current_database()")
	}
	if out, err := ask("wrong"); err == nil ||
		!strings.Contains(err.Error(), "password authentication failed") {
		t.Errorf("a wrong password: %v, %s", err, out)
	}
	if out, err := ask("open sesame"); err != nil || !strings.Contains(out, "lab-admin|lab-db") {
		t.Errorf("%v, %s", err, out)
	}
	if err := s.Close(); err != nil {
		t.Error(err)
	}
	if out, err := ask("open sesame"); err == nil || strings.Contains(log.String(), "open sesame") {
		t.Errorf("after Close: %v, %s", err, out)
	}
}
