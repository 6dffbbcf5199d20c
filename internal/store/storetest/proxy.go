package storetest

import (
	"bufio"
	"fmt"
	"io"
	"net"
	"net/http"
	"sync"
	"testing"
	"time"
)

// Proxy stands between a store and its clients and makes trouble. It begins as a plain one.
type Proxy struct {
	URL     string // of the store, through the proxy
	Address string // where the proxy listens

	server string
	done   chan struct{} // the test has ended

	mu       sync.Mutex
	listener net.Listener
	conns    map[net.Conn]bool
	delay    time.Duration
	stalled  chan struct{} // closed once connections go on
	status   int           // answer every HTTP request with this
	code     string
	cut      int // cut each new connection after so many bytes of its client; 0: never
}

// NewProxy starts a proxy before a server that has an address.
func NewProxy(t testing.TB, s *Server) *Proxy {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	p := &Proxy{Address: l.Addr().String(), server: s.Address, done: make(chan struct{}), listener: l,
		conns: map[net.Conn]bool{}}
	switch s.Name {
	case "s3":
		p.URL = s3URL(p.Address)
	case "postgres":
		p.URL = postgresURL(p.Address)
	default:
		t.Fatalf("%s has no address", s.Name)
	}
	t.Cleanup(func() {
		close(p.done)
		p.Refuse()
	})
	go p.accept(l)
	return p
}

// Pass goes back to a plain proxy, without delay.
func (p *Proxy) Pass(t testing.TB) {
	t.Helper()
	answered := false
	p.set(func() {
		answered = p.status != 0
		p.delay, p.status, p.cut = 0, 0, 0
	})
	if answered {
		p.Cut()
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.listener == nil {
		l, err := net.Listen("tcp", p.Address)
		if err != nil {
			t.Fatal(err)
		}
		p.listener = l
		go p.accept(l)
	}
}

// Delay delays each byte by half of d in each direction, and each new connection by d.
func (p *Proxy) Delay(d time.Duration) { p.set(func() { p.delay = d }) }

// Refuse cuts all connections and refuses new ones.
func (p *Proxy) Refuse() {
	p.set(func() {
		if p.listener != nil {
			p.listener.Close() //nolint:errcheck // nothing can be done
			p.listener = nil
		}
	})
	p.Cut()
}

// Stall lets connections open, and sends nothing on.
func (p *Proxy) Stall() {
	p.set(func() {})
	p.mu.Lock()
	defer p.mu.Unlock()
	p.stalled = make(chan struct{})
}

// Answer cuts all connections and answers every HTTP request with a status and a code of S3's, such as 503
// and SlowDown.
func (p *Proxy) Answer(status int, code string) {
	p.set(func() { p.status, p.code = status, code })
	p.Cut()
}

// CutAfter cuts all connections, and each new one after its client has sent so many bytes. That holds for a
// connection even if the proxy passes everything later: it may still hold bytes that its client sent.
func (p *Proxy) CutAfter(bytes int) {
	p.set(func() { p.cut = bytes })
	p.Cut()
}

// Cut cuts all connections.
func (p *Proxy) Cut() {
	p.mu.Lock()
	defer p.mu.Unlock()
	for c := range p.conns {
		reset(c)
	}
}

// set changes how connections are treated, and lets those go on that stall.
func (p *Proxy) set(change func()) {
	p.mu.Lock()
	defer p.mu.Unlock()
	change()
	if p.stalled != nil {
		close(p.stalled)
		p.stalled = nil
	}
}

func (p *Proxy) accept(l net.Listener) {
	for {
		c, err := l.Accept()
		if err != nil {
			return
		}
		p.mu.Lock()
		p.conns[c] = true
		status, code, delay, cut := p.status, p.code, p.delay, p.cut
		p.mu.Unlock()
		go func() {
			defer p.forgo(c)
			if status != 0 {
				answer(c, status, code)
			} else if p.wait(delay) {
				p.relay(c, cut)
			}
		}()
	}
}

// answer reads requests and answers all of them alike.
func answer(c net.Conn, status int, code string) {
	for in := bufio.NewReader(c); ; {
		request, err := http.ReadRequest(in)
		if err != nil {
			return
		}
		if _, err := io.Copy(io.Discard, request.Body); err != nil {
			return
		}
		text := fmt.Sprintf("<Error><Code>%s</Code><Message>by the proxy</Message></Error>", code)
		if request.Method == http.MethodHead {
			text = ""
		}
		_, err = fmt.Fprintf(c, "HTTP/1.1 %d %s\r\nContent-Type: application/xml\r\n"+
			"Content-Length: %d\r\n\r\n%s", status, http.StatusText(status), len(text), text)
		if err != nil {
			return
		}
	}
}

func (p *Proxy) relay(client net.Conn, cut int) {
	server, err := net.Dial("tcp", p.server)
	if err != nil {
		return
	}
	p.mu.Lock()
	p.conns[server] = true
	p.mu.Unlock()
	var both sync.WaitGroup
	both.Go(func() { p.copy(server, client, cut) })
	both.Go(func() { p.copy(client, server, 0) })
	both.Wait()
	p.forgo(server)
}

type chunk struct {
	bytes []byte
	due   time.Time
}

// copy sends on what it reads, each byte later by half of the delay, and cuts both connections after so many
// bytes; 0: never. Bytes that wait do not hold up others.
func (p *Proxy) copy(to, from net.Conn, cut int) {
	queue := make(chan chunk, 1024)
	go func() {
		defer close(queue)
		for {
			buffer := make([]byte, 16<<10)
			n, err := from.Read(buffer)
			p.mu.Lock()
			delay := p.delay
			p.mu.Unlock()
			if n > 0 {
				queue <- chunk{buffer[:n], time.Now().Add(delay / 2)}
			}
			if err != nil {
				return
			}
		}
	}()
	sent, broken := 0, false
	for c := range queue {
		if broken || !p.wait(time.Until(c.due)) {
			continue
		}
		p.mu.Lock()
		stalled := p.stalled
		p.mu.Unlock()
		if stalled != nil {
			select {
			case <-stalled:
			case <-p.done:
			}
		}
		if over := sent + len(c.bytes) - cut; cut > 0 && over > 0 {
			c.bytes = c.bytes[:max(0, len(c.bytes)-over)]
			to.Write(c.bytes) //nolint:errcheck // it is cut anyway
			broken = true
		} else if _, err := to.Write(c.bytes); err != nil {
			broken = true
		}
		if sent += len(c.bytes); broken {
			reset(from)
			reset(to)
		}
	}
	to.Close() //nolint:errcheck // what was sent has been written
}

// wait reports whether the test still runs after d.
func (p *Proxy) wait(d time.Duration) bool {
	if d <= 0 {
		return true
	}
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-timer.C:
		return true
	case <-p.done:
		return false
	}
}

func (p *Proxy) forgo(c net.Conn) {
	p.mu.Lock()
	delete(p.conns, c)
	p.mu.Unlock()
	c.Close() //nolint:errcheck // it is not used any more
}

// reset closes a connection so that its peer gets an error, even if it has read everything.
func reset(c net.Conn) {
	if tcp, ok := c.(*net.TCPConn); ok {
		tcp.SetLinger(0) //nolint:errcheck // it is closed in any case
	}
	c.Close() //nolint:errcheck // it may be closed already
}
