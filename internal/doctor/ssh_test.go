package doctor

import (
	"crypto/ed25519"
	"crypto/rand"
	"crypto/rsa"
	"encoding/pem"
	"fmt"
	"net"
	"net/url"
	"strings"
	"testing"

	"golang.org/x/crypto/ssh"
	"golang.org/x/crypto/ssh/knownhosts"
)

// sshKey makes a key, and its private half as OpenSSH writes it.
func sshKey(t *testing.T) (signer ssh.Signer, private string) {
	t.Helper()
	_, key, err := ed25519.GenerateKey(rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	block, err := ssh.MarshalPrivateKey(key, "")
	if err != nil {
		t.Fatal(err)
	}
	if signer, err = ssh.NewSignerFromKey(key); err != nil {
		t.Fatal(err)
	}
	return signer, string(pem.EncodeToMemory(block))
}

// gitBySSH is a Git server with one repository, which one deploy key may read. It has host keys of two types.
func gitBySSH(t *testing.T, deploy ssh.PublicKey, hostKeys ...ssh.Signer) (address string) {
	t.Helper()
	config := &ssh.ServerConfig{
		PublicKeyCallback: func(c ssh.ConnMetadata, key ssh.PublicKey) (*ssh.Permissions, error) {
			if c.User() != "git" || string(key.Marshal()) != string(deploy.Marshal()) {
				return nil, fmt.Errorf("unknown key of %s", c.User())
			}
			return nil, nil
		},
	}
	for _, key := range hostKeys {
		config.AddHostKey(key)
	}
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { listener.Close() })
	go func() {
		for {
			conn, err := listener.Accept()
			if err != nil {
				return
			}
			go serveGit(conn, config)
		}
	}()
	return listener.Addr().String()
}

func serveGit(conn net.Conn, config *ssh.ServerConfig) {
	defer conn.Close()
	server, channels, requests, err := ssh.NewServerConn(conn, config)
	if err != nil {
		return
	}
	defer server.Close()
	go ssh.DiscardRequests(requests)
	for asked := range channels {
		channel, requests, err := asked.Accept()
		if err != nil {
			return
		}
		for r := range requests {
			var command struct{ Text string }
			if r.Type != "exec" || ssh.Unmarshal(r.Payload, &command) != nil {
				r.Reply(false, nil) //nolint:errcheck // the client has gone
				continue
			}
			r.Reply(true, nil) //nolint:errcheck // likewise
			code := byte(0)
			if command.Text == "git-upload-pack '/me/fleet.git'" {
				line := strings.Repeat("c", 40) + " refs/heads/main\x00agent=test\n"
				fmt.Fprintf(channel, "%04x%s0000", len(line)+4, line)
			} else {
				fmt.Fprint(channel.Stderr(), "ERROR: Repository not found.\n")
				code = 1
			}
			channel.SendRequest("exit-status", false, []byte{0, 0, 0, code}) //nolint:errcheck // likewise
			channel.Close()
			break
		}
	}
}

func TestReferencesBySSH(t *testing.T) {
	deploy, private := sshKey(t)
	_, foreign := sshKey(t)
	host, _ := sshKey(t)
	other, _ := sshKey(t)
	weak, err := rsa.GenerateKey(rand.Reader, 2048)
	if err != nil {
		t.Fatal(err)
	}
	rsaHost, err := ssh.NewSignerFromKey(weak)
	if err != nil {
		t.Fatal(err)
	}
	at := gitBySSH(t, deploy.PublicKey(), host, rsaHost)
	line := func(of string, key ssh.Signer) string {
		return knownhosts.Line([]string{knownhosts.Normalize(of)}, key.PublicKey()) + "\n"
	}
	const fleet = "/me/fleet.git"
	elsewhere := line("git.example.org", host)
	for name, c := range map[string]struct{ path, key, known, want string }{
		"a deploy key":            {fleet, private, line(at, host), "refs/heads/main\n"},
		"the key of another type": {fleet, private, line(at, rsaHost), "refs/heads/main\n"},
		"another key":             {fleet, foreign, line(at, host), "error: ssh: handshake failed"},
		"no key":                  {fleet, "-----BEGIN", line(at, host), "error: the private key"},
		"an unknown server":       {fleet, private, elsewhere, "error: the server is not among"},
		"other host keys":         {fleet, private, line(at, other), "error: the server's host key is not"},
		"no host keys":            {fleet, private, "example.org", "error: the known hosts"},
		"no repository":           {"/none", private, line(at, host), "error: ERROR: Repository not"},
	} {
		t.Run(name, func(t *testing.T) {
			got, err := referencesBySSH(t.Context(), &url.URL{Scheme: "ssh", User: url.User("git"), Host: at,
				Path: c.path}, c.key, c.known)
			if err != nil {
				got = "error: " + err.Error()
			}
			if strings.HasPrefix(c.want, "error: ") != strings.HasPrefix(got, "error: ") ||
				!strings.Contains(got, c.want) {
				t.Errorf("got %q, want %q", got, c.want)
			}
			if strings.Contains(got, "PRIVATE KEY") {
				t.Error("the error quotes the key")
			}
		})
	}
}
