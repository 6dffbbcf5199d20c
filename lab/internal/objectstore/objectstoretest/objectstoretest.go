// Package objectstoretest runs the lab's S3 server with TLS for tests.
package objectstoretest

import (
	"net"
	"net/http"
	"net/netip"
	"path/filepath"
	"testing"

	"github.com/ephemeral-castle/castle/lab/internal/front"
	"github.com/ephemeral-castle/castle/lab/internal/objectstore"
)

// What the server has.
const (
	Bucket    = "tazlab"
	Region    = "eu-south-1"
	AccessKey = "LABACCESSKEY"
	SecretKey = "lab-secret-key"
)

// Server is an S3 server with an empty bucket, which ends with the test.
type Server struct {
	Endpoint  string // https://localhost:PORT
	Authority []byte // that has signed its certificate, in PEM
	Folder    string // with a file for each object
}

// Start starts a server, whose program is in a folder: bin of the repository.
func Start(t *testing.T, bin string) *Server {
	t.Helper()
	program, err := filepath.Abs(filepath.Join(bin, objectstore.Program))
	if err != nil {
		t.Fatal(err)
	}
	store, err := objectstore.Start(t.Context(), objectstore.Options{
		Program: program, Dir: filepath.Join(t.TempDir(), "s3"), Address: netip.MustParseAddr("127.0.7.8"),
		Bucket: Bucket, Region: Region, AccessKey: AccessKey, SecretKey: SecretKey, Log: t.Output()})
	if err != nil {
		t.Fatalf("%v (make s3)", err)
	}
	t.Cleanup(func() { store.Close() })
	authority, err := front.NewAuthority()
	if err != nil {
		t.Fatal(err)
	}
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	server := &http.Server{Handler: store.Handler(), TLSConfig: authority.TLS()}
	go server.ServeTLS(l, "", "") //nolint:errcheck // it ends with the test
	t.Cleanup(func() { server.Close() })
	_, port, _ := net.SplitHostPort(l.Addr().String())
	return &Server{
		Endpoint:  "https://localhost:" + port,
		Authority: authority.Bundle(),
		Folder:    store.Folder(),
	}
}
