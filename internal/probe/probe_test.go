package probe

import (
	"context"
	"errors"
	"net"
	"slices"
	"strings"
	"testing"

	"github.com/zclconf/go-cty/cty"

	"github.com/ephemeral-castle/castle/internal/gate"
)

// typed returns the type with a name.
func typed(t *testing.T, name string) gate.Type {
	t.Helper()
	i := slices.IndexFunc(GateTypes(), func(x gate.Type) bool { return x.Name == name })
	if i < 0 {
		t.Fatalf("there is no type %s", name)
	}
	return GateTypes()[i]
}

// validate returns the error of reading a block with these arguments.
func validate(t *testing.T, name string, v gate.Values) error {
	t.Helper()
	typ := typed(t, name)
	var errs []error
	for argument, value := range v {
		a, known := typ.Attributes[argument]
		if !known {
			t.Fatalf("%s has no attribute %s", name, argument)
		}
		if a.Valid != nil {
			errs = append(errs, a.Valid(value))
		}
	}
	if err := errors.Join(errs...); err != nil || typ.Check == nil {
		return err
	}
	return typ.Check(v)
}

func gateOf(t *testing.T, name string, v gate.Values) gate.Gate {
	t.Helper()
	if err := validate(t, name, v); err != nil {
		t.Fatal(err)
	}
	g, err := typed(t, name).New(name+".a", gate.Target{}, v)
	if err != nil {
		t.Fatal(err)
	}
	return g
}

func texts(pairs ...string) gate.Values {
	v := gate.Values{}
	for i := 0; i < len(pairs); i += 2 {
		v[pairs[i]] = cty.StringVal(pairs[i+1])
	}
	return v
}

// wantClosed fails unless err holds the words and is permanent or not, as wanted.
func wantClosed(t *testing.T, err error, permanent bool, words string) {
	t.Helper()
	if err == nil || !strings.Contains(err.Error(), words) {
		t.Errorf("got %v, want %q", err, words)
	}
	if gate.IsPermanent(err) != permanent {
		t.Errorf("permanent is %t: %v", !permanent, err)
	}
}

// listen accepts connections until the test ends and gives each to serve.
func listen(t *testing.T, serve func(net.Conn)) (address string) {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { l.Close() })
	go func() {
		for {
			conn, err := l.Accept()
			if err != nil {
				return
			}
			serve(conn)
		}
	}()
	return l.Addr().String()
}

// silent keeps every connection open and sends nothing.
func silent(t *testing.T) func(net.Conn) {
	return func(c net.Conn) { t.Cleanup(func() { c.Close() }) }
}

// free returns an address of this machine without a listener.
func free(t *testing.T) string {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	return l.Addr().String()
}

func TestACancelledCheckReturnsItsCause(t *testing.T) {
	stopped := errors.New("interrupt")
	for name, v := range map[string]func(address string) gate.Values{
		"tcp":  func(address string) gate.Values { return texts("address", address) },
		"http": func(address string) gate.Values { return texts("url", "http://"+address) },
	} {
		t.Run(name, func(t *testing.T) {
			ctx, stop := context.WithCancelCause(t.Context())
			keep := silent(t)
			address := listen(t, func(c net.Conn) {
				keep(c)
				stop(stopped)
			})
			if err := gateOf(t, name, v(address)).Check(ctx); err != stopped {
				t.Errorf("got %v, want the cause", err)
			}
		})
	}
}
