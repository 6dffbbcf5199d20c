package proxmox

import (
	"bufio"
	"crypto/tls"
	"encoding/json"
	"fmt"
	"io"
	"log"
	"net"
	"net/http"
	"net/http/httptest"
	"net/textproto"
	"net/url"
	"strings"
	"testing"
)

const token = "castle@pve!castle=3f0c9a52-1b7e-4d55-9a51-0c8f3d1f6b27"

// node is a datacenter that listens on loopback.
type node struct {
	server  *Server
	t       *testing.T
	address string
	token   string
}

func listen(t *testing.T, config Config) node {
	t.Helper()
	config.Token = token
	s := New(config)
	server := httptest.NewUnstartedServer(nil)
	server.Config = s.HTTPServer()
	server.Config.ErrorLog = log.New(io.Discard, "", 0)
	server.TLS = &tls.Config{MinVersion: tls.VersionTLS13}
	server.StartTLS()
	t.Cleanup(func() {
		server.Close()
		s.Close()
	})
	return node{s, t, server.Listener.Addr().String(), token}
}

// limited runs these commands, which give a user limited@pve rights, and returns a token that has them.
func (n node) limited(commands ...string) (token string) {
	n.t.Helper()
	for _, command := range append([]string{"pveum pool add castle", "pveum user add limited@pve",
		"pveum user token add limited@pve t --privsep 0"}, commands...) {
		out, err := n.server.Pveum(command)
		if err != nil {
			n.t.Fatal(err)
		}
		if out != "" {
			token = "limited@pve!t=" + out
		}
	}
	return token
}

// answer is an HTTP answer as it stood on the wire.
type answer struct {
	code    int
	reason  string
	message string
	errors  map[string]string
	data    any
	body    string
}

// send writes a request by hand, since a real client would hide the relevant parts: the reason phrase,
// trailing slashes, escapes, a missing Content-Type.
func (n node) send(method, path, form string, headers ...string) answer {
	n.t.Helper()
	// the certificate is the test server's own
	conn, err := tls.Dial("tcp", n.address, &tls.Config{InsecureSkipVerify: true})
	if err != nil {
		n.t.Fatal(err)
	}
	defer conn.Close()
	if n.token != "" {
		headers = append(headers, "Authorization: PVEAPIToken="+n.token)
	}
	headers = append([]string{"Host: proxmox", "Connection: close", fmt.Sprintf("Content-Length: %d",
		len(form))}, headers...)
	fmt.Fprintf(conn, "%s /api2/json/%s HTTP/1.1\r\n%s\r\n\r\n%s", method, path,
		strings.Join(headers, "\r\n"), form)
	return n.read(conn)
}

func (n node) read(conn net.Conn) answer {
	n.t.Helper()
	reader := textproto.NewReader(bufio.NewReader(conn))
	status, err := reader.ReadLine()
	if err != nil {
		n.t.Fatal(err)
	}
	var a answer
	if _, err := fmt.Sscanf(status, "HTTP/1.1 %d", &a.code); err != nil {
		n.t.Fatalf("%q: %v", status, err)
	}
	a.reason = strings.TrimSpace(status[len("HTTP/1.1 200"):])
	header, err := reader.ReadMIMEHeader()
	if err != nil {
		n.t.Fatal(err)
	}
	body, err := io.ReadAll(reader.R)
	if err != nil {
		n.t.Fatal(err)
	}
	a.body = string(body)
	var envelope struct {
		Data    any
		Message string
		Errors  map[string]string
	}
	if header.Get("Transfer-Encoding") == "" && len(body) > 0 {
		if err := json.Unmarshal(body, &envelope); err != nil {
			n.t.Fatalf("%q: %v", body, err)
		}
	}
	a.data, a.message, a.errors = envelope.Data, envelope.Message, envelope.Errors
	return a
}

// task sends a request that starts a task and returns how that ended.
func (n node) task(method, path, form string) (exit string, log []string) {
	n.t.Helper()
	a := n.send(method, path, form)
	upid, ok := a.data.(string)
	if a.code != http.StatusOK || !ok {
		n.t.Fatalf("%s %s: %d %s, no task", method, path, a.code, a.reason)
	}
	n.server.Idle()
	base := "nodes/" + strings.Split(upid, ":")[1] + "/tasks/" + strings.ReplaceAll(url.PathEscape(upid), "!",
		"%21")
	status, _ := n.send("GET", base+"/status", "").data.(map[string]any)
	if status["status"] != "stopped" {
		n.t.Fatalf("task %s: %v", upid, status)
	}
	lines, _ := n.send("GET", base+"/log", "").data.([]any)
	for _, line := range lines {
		log = append(log, line.(map[string]any)["t"].(string))
	}
	return status["exitstatus"].(string), log
}
