package probe

import (
	"bufio"
	"bytes"
	"io"
	"net"
	"net/http"
	"strings"
	"sync"
	"testing"

	"github.com/zclconf/go-cty/cty"

	"github.com/ephemeral-castle/castle/internal/gate"
)

// FuzzResponse answers a gate with any bytes. It opens only for a whole head with a good status and the text.
func FuzzResponse(f *testing.F) {
	for _, seed := range []string{
		"HTTP/1.1 200 OK\r\nContent-Length: 5\r\n\r\nready", "HTTP/1.1 204 No Content\r\n\r\n", "ready", "",
		"HTTP/1.1 503 Busy\r\n\r\nready",
		"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n5\r\nready\r\n0\r\n\r\n",
		"HTTP/1.1 301 Moved\r\nLocation: https://127.0.0.1/\r\n\r\n", "HTTP/1.1 100 Continue\r\n\r\n",
		"HTTP/1.1 200 OK\r\nContent-Length: 100\r\n\r\nready",
	} {
		f.Add([]byte(seed))
	}
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		f.Fatal(err)
	}
	f.Cleanup(func() { listener.Close() }) //nolint:errcheck // the test is over
	var mu sync.Mutex
	var response []byte
	go func() {
		for {
			connection, err := listener.Accept()
			if err != nil {
				return
			}
			if _, err := http.ReadRequest(bufio.NewReader(connection)); err == nil {
				mu.Lock()
				connection.Write(response) //nolint:errcheck // the gate may have hung up
				mu.Unlock()
			}
			connection.Close() //nolint:errcheck // likewise
		}
	}()
	p, _, err := newPage(gate.Values{"url": cty.StringVal("http://" + listener.Addr().String() + "/health"),
		"contains": cty.StringVal("ready")})
	if err != nil {
		f.Fatal(err)
	}
	f.Fuzz(func(t *testing.T, answer []byte) {
		mu.Lock()
		response = answer
		mu.Unlock()
		err := p.check(t.Context())
		if err != nil {
			if !strings.Contains(err.Error(), listener.Addr().String()) {
				t.Errorf("no URL is named: %v", err)
			}
			return
		}
		reader := bufio.NewReader(bytes.NewReader(answer))
		for {
			read, err := http.ReadResponse(reader, nil)
			if err != nil {
				t.Fatalf("open by %q: %v", answer, err)
			}
			if read.StatusCode < 200 && read.StatusCode != http.StatusSwitchingProtocols {
				continue // another head follows
			}
			body, _ := io.ReadAll(read.Body) //nolint:errcheck // what there is of it
			if read.StatusCode > 299 || !bytes.Contains(body, []byte("ready")) {
				t.Errorf("open by %q", answer)
			}
			return
		}
	})
}
