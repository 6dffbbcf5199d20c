package postgres

import (
	"bytes"
	"net"
	"net/netip"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
)

func TestTheOwnerLogsInWithThePasswordOnly(t *testing.T) {
	bin, err := programs()
	if err != nil {
		t.Fatal(err)
	}
	l, err := net.Listen("tcp", "127.0.7.5:0")
	if err != nil {
		t.Fatal(err)
	}
	port := l.Addr().(*net.TCPAddr).Port
	if err := l.Close(); err != nil {
		t.Fatal(err)
	}
	var log bytes.Buffer
	s, err := Start(t.Context(), Options{
		Dir: filepath.Join(t.TempDir(), "pg"), Place: netip.AddrPortFrom(netip.MustParseAddr("127.0.7.5"), uint16(port)),
		Database: "lab-db", User: "lab-admin", Password: "open sesame", Log: &log,
	})
	if err != nil {
		t.Fatalf("%v\n%s", err, log.String())
	}
	ask := func(password string) (string, error) {
		c := exec.Command(filepath.Join(bin, "psql"), "-h", "127.0.7.5", "-p", strconv.Itoa(port),
			"-U", "lab-admin", "-d", "lab-db", "-Atc", "CREATE ROLE other LOGIN; SELECT current_user, current_database()")
		c.Env = []string{"PGPASSWORD=" + password}
		out, err := c.CombinedOutput()
		return string(out), err
	}
	if out, err := ask("wrong"); err == nil || !strings.Contains(out, "password authentication failed") {
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
