package front_test

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/netip"
	"strings"
	"testing"

	"github.com/ephemeral-castle/castle/lab/internal/front"
	"github.com/ephemeral-castle/castle/lab/internal/network"
)

func TestFrontServesNamesAndAddressesUnderOneAuthority(t *testing.T) {
	a := authority(t)
	plain, secure := freePort(t, "127.0.0.3"), freePort(t, "127.0.0.3")
	own := freePort(t, "127.0.0.3")
	f := &front.Front{Authority: a, Address: netip.MustParseAddr("127.0.0.3"), Port: own,
		Handler: func(host string) http.Handler {
			if host == "nobody.example.org" {
				return nil
			}
			return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
				fmt.Fprintf(w, "%s %d", host, r.ProtoMajor)
			})
		}}
	if err := f.Serve(t.Context(), []network.Endpoint{
		{Host: "pve.example.org", Port: secure, TLS: true}, {Host: "127.0.0.4", Port: secure, TLS: true},
		{Host: "old.example.org", Port: plain},
	}); err != nil {
		t.Fatal(err)
	}
	roots := x509.NewCertPool()
	roots.AppendCertsFromPEM(a.Bundle())
	client := &http.Client{Transport: &http.Transport{
		ForceAttemptHTTP2: true, TLSClientConfig: &tls.Config{RootCAs: roots},
		DialContext: func(ctx context.Context, network, address string) (net.Conn, error) {
			var d net.Dialer
			return d.DialContext(ctx, network, strings.NewReplacer("pve.example.org", "127.0.0.3",
				"charts.example.org", "127.0.0.3",
				"old.example.org", "127.0.0.3", "nobody.example.org", "127.0.0.3").Replace(address))
		},
	}}
	for url, want := range map[string]string{
		fmt.Sprintf("https://pve.example.org:%d/", secure):  "pve.example.org 1",
		fmt.Sprintf("https://127.0.0.4:%d/", secure):        "127.0.0.4 1",
		fmt.Sprintf("http://old.example.org:%d/", plain):    "old.example.org 1",
		fmt.Sprintf("https://charts.example.org:%d/x", own): "charts.example.org 1",
		fmt.Sprintf("https://nobody.example.org:%d/x",
			own): fmt.Sprintf("the lab has nothing at nobody.example.org:%d/x\n", own),
	} {
		r, err := client.Get(url)
		if err != nil {
			t.Errorf("%s: %v", url, err)
			continue
		}
		body, err := io.ReadAll(r.Body)
		r.Body.Close()
		if err != nil || string(body) != want {
			t.Errorf("%s: %q, %v, want %q", url, body, err, want)
		}
	}
}

func TestFrontRefusesAddressesOfTheWorld(t *testing.T) {
	f := &front.Front{Authority: authority(t), Address: netip.MustParseAddr("192.0.2.1"),
		Handler: func(string) http.Handler { return nil }}
	err := f.Serve(t.Context(), nil)
	if err == nil || !strings.Contains(err.Error(), "only inside its own network namespace") {
		t.Errorf("error: %v", err)
	}
}

func authority(t *testing.T) *front.Authority {
	t.Helper()
	a, err := front.NewAuthority()
	if err != nil {
		t.Fatal(err)
	}
	return a
}

func freePort(t *testing.T, address string) uint16 {
	t.Helper()
	l, err := net.Listen("tcp", address+":0")
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	return uint16(l.Addr().(*net.TCPAddr).Port)
}
