package proxmox

import (
	"context"
	"errors"
	"net"
	"slices"
	"strings"
	"testing"

	emulator "github.com/ephemeral-castle/castle/internal/emulator/proxmox"
	"github.com/ephemeral-castle/castle/internal/platform"
)

// vm421 is a machine of which nothing was read yet.
var vm421 = Guest{ID: 421, Kind: "qemu", Node: "proxmox"}

func TestClientReadsTheErrorFromBodyOrReasonPhrase(t *testing.T) {
	// Before 8.4 the text stands in the reason phrase only.
	for _, version := range []string{"8.3.5", "8.4.1", "9.1.9"} {
		t.Run(version, func(t *testing.T) {
			d := newDatacenter(t, emulator.Config{Version: version})
			_, err := d.client(t).configured(t.Context(), vm421)
			want := "proxmox: get nodes/proxmox/qemu/421/config: 500 Configuration file " +
				"'nodes/proxmox/qemu-server/421.conf' does not exist"
			if err == nil || err.Error() != want {
				t.Errorf("got  %v\nwant %s", err, want)
			}
			if KindOf(err) != Missing {
				t.Error("the machine does not count as missing")
			}
		})
	}
}

func TestClientReportsARefusedToken(t *testing.T) {
	for _, test := range []struct{ version, token, want string }{
		{"9.1.9", "castle@pve!castle=wrong", "401 Authentication failed!"},
		{"9.0.3", "castle@pve!castle=wrong", "401 invalid token value!"},
		{"9.0.3", "other@pve!x=wrong", "401 no such token 'x' for user 'other@pve'"},
	} {
		d := newDatacenter(t, emulator.Config{Version: test.version})
		c, err := NewClient(platform.Account{Endpoint: d.endpoint, Token: test.token, CA: d.ca})
		if err != nil {
			t.Fatal(err)
		}
		if _, err = c.Guests(t.Context()); err == nil || !strings.HasSuffix(err.Error(), test.want) {
			t.Errorf("%s: got %v, want … %s", test.version, err, test.want)
		}
		if strings.Contains(err.Error(), "wrong") {
			t.Errorf("the error shows the secret: %v", err)
		}
		if got := len(d.server.Requests()); got != 1 {
			t.Errorf("a refused token was tried %d times, want 1", got)
		}
	}
}

func TestClientTrustsOnlyItsAuthorities(t *testing.T) {
	d := newDatacenter(t, emulator.Config{})
	for name, test := range map[string]struct {
		options platform.Account
		ok      bool
	}{
		"system certificates": {platform.Account{}, false},
		"CA file":             {platform.Account{CA: d.ca}, true},
		"CA as text":          {platform.Account{CA: d.authority}, true},
		"insecure":            {platform.Account{Insecure: true}, true},
	} {
		test.options.Endpoint, test.options.Token = d.endpoint, token
		c, err := NewClient(test.options)
		if err != nil {
			t.Fatal(err)
		}
		if _, err := c.Guests(t.Context()); (err == nil) != test.ok {
			t.Errorf("%s: %v", name, err)
		}
	}
	for _, bad := range []platform.Account{{Endpoint: "http://127.0.0.1:1"}, {Endpoint: "proxmox:8006"},
		{Endpoint: d.endpoint, CA: "/does/not/exist"}} {
		if _, err := NewClient(bad); err == nil {
			t.Errorf("%+v was accepted", bad)
		}
	}
}

func TestTakenSeesHiddenGuests(t *testing.T) {
	d := newDatacenter(t, emulator.Config{})
	d.server.AddVM(emulator.VM{ID: 421, Name: "secret", Hidden: true})
	d.server.AddVM(emulator.VM{ID: 422, Name: "box", Kind: "lxc"})
	c := d.client(t)
	for id, want := range map[int]bool{421: true, 422: true, 423: false} {
		if got, err := c.Taken(t.Context(), id); err != nil || got != want {
			t.Errorf("VM %d: taken is %v, %v; want %v", id, got, err, want)
		}
	}
	guests, err := c.Guests(t.Context())
	if err != nil || len(guests) != 1 || guests[0].ID != 422 || guests[0].Kind != "lxc" {
		t.Errorf("the list shows %+v, %v", guests, err)
	}
	if _, err := c.configured(t.Context(), vm421); KindOf(err) != Forbidden {
		t.Errorf("the hidden machine's configuration: %v", err)
	}
}

func TestCallEndsWithItsContext(t *testing.T) {
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer listener.Close() //nolint:errcheck // the test is over
	why := errors.New("the user pressed Ctrl-C")
	ctx, cancel := context.WithCancelCause(t.Context())
	go func() {
		if conn, err := listener.Accept(); err == nil {
			cancel(why) // while the client waits for an answer
			<-t.Context().Done()
			conn.Close() //nolint:errcheck // nothing was said
		}
	}()
	c, err := NewClient(platform.Account{Endpoint: "https://" + listener.Addr().String(), Token: token})
	if err != nil {
		t.Fatal(err)
	}
	if _, err := c.Guests(ctx); !errors.Is(err, why) {
		t.Errorf("got %v, want the cause", err)
	}
}

func TestAnUnreachableNodeIsNotAMissingMachine(t *testing.T) {
	d := newDatacenter(t, emulator.Config{})
	d.server.AddVM(emulator.VM{ID: 421})
	d.server.SetOffline("proxmox", true)
	_, err := d.client(t).configured(t.Context(), vm421)
	var e *Error
	if !errors.As(err, &e) || e.Code != 595 || e.Text != "No route to host" || KindOf(err) == Missing {
		t.Errorf("got %v", err)
	}
}

func TestClientReadsAConfiguration(t *testing.T) {
	d := newDatacenter(t, emulator.Config{})
	d.server.AddVM(emulator.VM{ID: 421, Tags: []string{"blue", "castle"}, Config: map[string]string{
		"net0": "virtio=BC:24:11:00:00:01,bridge=vmbr0", "net1": "e1000=bc:24:11:00:00:02", "cores": "4",
	}})
	g, err := d.client(t).configured(t.Context(), vm421)
	if err != nil {
		t.Fatal(err)
	}
	if g.Config["cores"] != "4" || !slices.Equal(g.Tags(), []string{"blue", "castle"}) ||
		!slices.Equal(g.Config.MACs(), []string{"BC:24:11:00:00:01", "BC:24:11:00:00:02"}) {
		t.Errorf("configuration %v", g.Config)
	}
}

func TestAnUnexpectedAnswerIsAnError(t *testing.T) {
	d := newDatacenter(t, emulator.Config{})
	d.server.Fail(emulator.Fault{Path: "cluster/resources", Drop: true})
	if _, err := d.client(t).Guests(soon(t)); err == nil {
		t.Error("a cut connection was taken for an answer")
	}
	if _, err := get(soon(t), d.client(t), "version", func([]string) string { return "" }); err == nil ||
		!strings.Contains(err.Error(), "a object where []string belongs") {
		t.Errorf("an object where a list was expected: %v", err)
	}
}
