package proxmox

import (
	"bytes"
	"fmt"
	"io"
	"math/rand/v2"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"syscall"
	"testing"
	"testing/synctest"
	"time"

	emulator "github.com/ephemeral-castle/castle/internal/emulator/proxmox"
	"github.com/ephemeral-castle/castle/internal/gate"
	"github.com/ephemeral-castle/castle/internal/platform"
	"github.com/ephemeral-castle/castle/internal/platform/proxmox/values"
)

// direct sends requests to a handler without a network, so that a test may run in a bubble of synctest.
type direct struct{ handler http.Handler }

func (d direct) RoundTrip(r *http.Request) (*http.Response, error) {
	answer := httptest.NewRecorder()
	if r.Body == nil {
		r = r.Clone(r.Context())
		r.Body = http.NoBody
	}
	d.handler.ServeHTTP(answer, r)
	return answer.Result(), nil
}

// liar spoils one answer in five.
type liar struct {
	http.RoundTripper
	random *rand.Rand
	lies   int
}

func (l *liar) RoundTrip(r *http.Request) (*http.Response, error) {
	response, err := l.RoundTripper.RoundTrip(r)
	if err != nil || l.random.IntN(5) > 0 {
		return response, err
	}
	l.lies++
	body, err := io.ReadAll(response.Body)
	switch l.random.IntN(5) {
	case 0:
		return nil, syscall.ECONNRESET
	case 1:
		response.StatusCode, response.Status, body = 500, "500 Internal Server Error", nil
	case 2:
		response.StatusCode, response.Status, body = 200, "200 OK", []byte(`{"data":null}`)
	case 3:
		response.StatusCode, response.Status, body = 404, "404 Not Found",
			[]byte("<html>does not exist</html>")
	case 4:
		body = body[:len(body)/2]
	}
	response.Body = io.NopCloser(bytes.NewReader(body))
	return response, err
}

// bubble is a datacenter without a network: it has VM 421, which the state knows, and somebody's VM 431.
func bubble(t *testing.T) *emulator.Server {
	t.Helper()
	server := emulator.New(emulator.Config{Token: token, Duration: time.Second})
	server.AddVM(stand(421, "blue-cp-01"))
	server.AddVM(emulator.VM{ID: 431, Name: "prod-database", Running: true})
	return server
}

func clientOf(t *testing.T, base http.RoundTripper) *Client {
	t.Helper()
	c, err := newClient(token, "https://proxmox.example:8006", base)
	if err != nil {
		t.Fatal(err)
	}
	return c
}

func checkOf(c *Client) *vmCheck {
	return &vmCheck{client: c, resource: defaultResource, node: "proxmox",
		ids: map[string]int{"cp-01": 421, "wk-01": 431}, tags: []string{"castle", "blue"},
		names:    map[string]string{"cp-01": "blue-cp-01", "wk-01": "blue-wk-01"},
		interval: time.Millisecond, timeout: time.Minute}
}

func state421() []gate.Known {
	return []gate.Known{known(cp01, map[string]any{"vm_id": 421.0, "name": "blue-cp-01",
		"node_name": "proxmox", "mac_addresses": []any{"BC:24:11:00:00:01"}})}
}

func TestALyingNetworkProvesNothing(t *testing.T) {
	failed, lies := 0, 0
	for seed := range uint64(20) {
		synctest.Test(t, func(t *testing.T) {
			defer time.Sleep(2 * time.Second) // the library sleeps after a failed read
			server := bubble(t)
			defer server.Close()
			l := &liar{RoundTripper: direct{server.Handler()}, random: rand.New(rand.NewPCG(seed, 12))}
			c := clientOf(t, l)
			wrong := func(what string, got any, err error) {
				t.Errorf("seed %d: %s: %+v, %v", seed, what, got, err)
			}
			saw, err := checkOf(c).inspect(t.Context(), state421(), silent)
			if err != nil {
				failed++
			} else if len(saw.Present) != 1 || len(saw.Foreign) != 1 || len(saw.Unusable)+len(saw.Ours) > 0 {
				wrong("the preflight", saw, err)
			}
			objects, err := Search{Client: c}.Gone(t.Context(), values.ObjectsOf(state421()), silent)
			if err != nil || len(objects) == 0 || objects[0].Gone {
				wrong("a machine that runs", objects, err)
			}
			all, err := c.Survey(t.Context(), platform.Range{From: 421, To: 432}, nil)
			if err != nil {
				failed++
			} else if len(all) != 2 {
				wrong("the survey", all, err)
			}
			if taken, err := c.Taken(t.Context(), 431); err == nil && !taken {
				wrong("an id in use", taken, err)
			}
			if len(all) == 0 {
				lies += l.lies
				return
			}
			r := &Removal{Client: c, Ownership: Ownership{Range: platform.Range{From: 421, To: 432}},
				Timeout: time.Minute}
			remains, err := r.Remove(t.Context(), all[0])
			server.Idle()
			left := slices.ContainsFunc(server.VMs(), func(v emulator.VM) bool { return v.ID == 421 })
			if remains.Gone && left || err == nil && !remains.Gone {
				wrong("the removal", remains, err)
			}
			writes := map[string]int{}
			for _, request := range server.Requests() {
				if request.Method != http.MethodGet {
					if writes[request.Path]++; writes[request.Path] > 1 {
						wrong("sent twice", request.Path, nil)
					}
				}
			}
			lies += l.lies
		})
	}
	if failed > 2 || lies < 100 {
		t.Errorf("%d of 40 reads failed among %d lies: they are not repeated, or nobody lied", failed, lies)
	}
}

// told answers some paths in Proxmox' place.
type told struct {
	http.RoundTripper
	answers map[string]string // by path below /api2/json/
	asked   map[string]int
}

func (o told) RoundTrip(r *http.Request) (*http.Response, error) {
	path := strings.TrimPrefix(r.URL.Path, "/api2/json/")
	o.asked[path]++
	answer, ok := o.answers[path]
	if !ok {
		return o.RoundTripper.RoundTrip(r)
	}
	recorder := httptest.NewRecorder()
	code, body, _ := strings.Cut(answer, " ")
	fmt.Sscan(code, &recorder.Code)                     //nolint:errcheck // a test
	recorder.Header().Set("Content-Type", "text/plain") // only the body counts
	recorder.Body.WriteString(strings.TrimSpace(body))  //nolint:errcheck // it never fails
	response := recorder.Result()
	return response, nil
}

func TestNonsenseIsCalledThat(t *testing.T) {
	const config, current = "nodes/proxmox/qemu/421/config", "nodes/proxmox/qemu/421/status/current"
	survey := func(t *testing.T, c *Client) error {
		_, err := c.Survey(t.Context(), platform.Range{From: 421, To: 421}, nil)
		return err
	}
	inspect := func(t *testing.T, c *Client) error {
		_, err := checkOf(c).inspect(t.Context(), state421(), silent)
		return err
	}
	for name, test := range map[string]struct {
		path, answer, want string
		read               func(*testing.T, *Client) error
	}{
		"no nodes":            {"nodes", `200 {"data":null}`, "no data", inspect},
		"an empty answer":     {"nodes", `200 `, "0 bytes that are not its JSON", inspect},
		"an empty datacenter": {"nodes", `200 {"data":[]}`, "there is no node", inspect},
		"nodes without names": {"nodes", `200 {"data":[{"status":"online"},{}]}`,
			"row 1 of 2 is incomplete", inspect},
		"a node twice": {"nodes",
			`200 {"data":[{"node":"a","status":"online"},{"node":"a","status":"offline"}]}`,
			"a is there twice", inspect},
		"a page": {"nodes", `200 <html>Please log in</html>`,
			"26 bytes that are not its JSON (text/plain)", inspect},
		"an answer cut short": {"nodes", `200 {"data":[{"node":"prox`, "22 bytes that are not its JSON",
			inspect},
		"no guests": {"cluster/resources", `200 {"data":null}`, "no data", survey},
		"guests of no kind": {"cluster/resources", `200 {"data":[{"vmid":421,"node":"proxmox"}]}`,
			"row 1 of 1", survey},
		"a guest without node": {"cluster/resources", `200 {"data":[{"vmid":421,"type":"qemu"}]}`,
			"row 1 of 1", survey},
		"a guest 0": {"cluster/resources", `200 {"data":[{"vmid":0,"type":"qemu","node":"proxmox"}]}`,
			"row 1 of 1 is incomplete", survey},
		"a guest twice": {"cluster/resources", `200 {"data":[{"vmid":421,"type":"qemu","node":"a"},` +
			`{"vmid":421,"type":"qemu","node":"b"}]}`, "guest 421 is there twice", survey},
		"an id as text": {"cluster/resources", `200 {"data":[{"vmid":"421","type":"qemu","node":"a"}]}`,
			"a string where int belongs", survey},
		"no next id":                 {"cluster/nextid", `200 {"data":null}`, "no data", survey},
		"another next id":            {"cluster/nextid", `200 {"data":"100"}`, "id 100, not 421", survey},
		"no replication":             {"cluster/replication", `200 {"data":null}`, "no data", survey},
		"no configuration":           {config, `200 {"data":null}`, "no data", survey},
		"an empty configuration":     {config, `200 {"data":{}}`, "a configuration without a digest", survey},
		"a page for a configuration": {config, `404 <html>does not exist`, "404 Not Found", survey},
		"no status":                  {current, `200 {"data":{}}`, "no status", survey},
		"no rights": {"access/permissions", `200 {"data":{}}`, "no privileges on /, not even an empty list",
			func(t *testing.T, c *Client) error { _, err := Footprint{}.Excess(t.Context(), c); return err }},
		"no version": {"version", `200 {"data":{}}`, "no version",
			func(t *testing.T, c *Client) error { return c.Admitted(t.Context()) }},
		"no tasks": {"nodes/proxmox/tasks", `200 {"data":null}`, "no data",
			func(t *testing.T, c *Client) error {
				_, err := c.running(t.Context(), "proxmox",
					0)
				return err
			}},
		"no storages": {"nodes/proxmox/storage", `200 {"data":[{"content":"images"}]}`, "row 1 of 1",
			func(t *testing.T, c *Client) error {
				_, err := c.Hosts().Storages(t.Context(), "proxmox")
				return err
			}},
		"no volumes": {"nodes/proxmox/storage/local/content", `200 {"data":[{"size":1}]}`, "row 1 of 1",
			func(t *testing.T, c *Client) error {
				_, err := c.Volumes(t.Context(), "proxmox", "local", "images", 0)
				return err
			}},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				defer time.Sleep(2 * time.Second) // the library sleeps after a failed read
				server := bubble(t)
				defer server.Close()
				o := told{direct{server.Handler()}, map[string]string{test.path: test.answer},
					map[string]int{}}
				want := "proxmox: get " + test.path +
					": https://proxmox.example:8006 answered, but not as Proxmox VE does: " + test.want
				err := test.read(t, clientOf(t, o))
				if err == nil || !strings.HasPrefix(err.Error(), want) || KindOf(err) != Other {
					t.Errorf("got %v\nwant %s", err, want)
				}
				if o.asked[test.path] != 6 {
					t.Errorf("castle read it %d times", o.asked[test.path])
				}
			})
		})
	}
}

// An empty list and a free id do not outweigh the machine's own node.
func TestAKnownMachineIsAskedForOnItsNode(t *testing.T) {
	for name, test := range map[string]struct {
		answers map[string]string
		want    string // of the error; empty: the id is free
	}{
		"all deny it but its node": {map[string]string{"cluster/nextid": `200 {"data":"421"}`,
			"cluster/resources": `200 {"data":[]}`},
			"the answers disagree: cluster/nextid has id 421 as free, " +
				`cluster/resources does not list it, and node proxmox has VM 421 "blue-cp-01"`},
		"the list has it": {map[string]string{"cluster/nextid": `200 {"data":"421"}`},
			"the answers disagree: cluster/nextid has id 421 as free, and cluster/resources has VM 421"},
		"its node refuses, as for a deleted one of a pool": {map[string]string{
			"cluster/nextid": `200 {"data":"421"}`, "cluster/resources": `200 {"data":[]}`,
			"nodes/proxmox/qemu/421/config": `403 {"data":null,"message":"Permission check failed"}`}, ""},
		"its node has left": {map[string]string{"cluster/nextid": `200 {"data":421}`,
			"cluster/resources": `200 {"data":[]}`,
			"nodes":             `200 {"data":[{"node":"b","status":"online"}]}`}, ""},
		"its node does not answer": {map[string]string{"cluster/nextid": `200 {"data":421}`,
			"cluster/resources": `200 {"data":[]}`, "nodes/proxmox/qemu/421/config": `595 `}, ""},
		"a proxy answers for its node": {map[string]string{"cluster/nextid": `200 {"data":421}`,
			"cluster/resources": `200 {"data":[]}`, "nodes/proxmox/qemu/421/config": `403 <html>`},
			"answered, but not as Proxmox VE does: 403 Forbidden"},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				defer time.Sleep(2 * time.Second) // the library sleeps after a failed read
				server := bubble(t)
				defer server.Close()
				c := clientOf(t, told{direct{server.Handler()}, test.answers, map[string]int{}})
				found, err := c.GuestsOn(t.Context(), []int{421}, map[int]string{421: "proxmox"})
				if len(found) > 0 || (err == nil) != (test.want == "") ||
					err != nil && !strings.Contains(err.Error(), test.want) {
					t.Errorf("%v, %v", found, err)
				}
				o := Search{Client: c}.Now(t.Context(), values.ObjectsOf(state421()))[0]
				if o.Gone != (test.want == "") || !o.Gone && !strings.Contains(o.Reason, test.want) {
					t.Errorf("%+v", o)
				}
			})
		})
	}
}

func TestAMachineThatMovesIsNotMissing(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		defer time.Sleep(2 * time.Second) // the library sleeps after a failed read
		server := bubble(t)
		defer server.Close()
		moved := map[string]string{"nodes/proxmox/qemu/421/config": `500 {"data":null,"message":` +
			`"Configuration file 'nodes/proxmox/qemu-server/421.conf' does not exist"}`}
		c := clientOf(t, told{direct{server.Handler()}, moved, map[string]int{}})
		const want = `the answers disagree: node proxmox does not have VM 421 "blue-cp-01"`
		if all, err := c.Survey(t.Context(), platform.Range{From: 421, To: 421}, nil); err == nil ||
			!strings.Contains(err.Error(), want) {
			t.Errorf("%+v, %v", all, err)
		}
		if saw, err := checkOf(c).inspect(t.Context(), state421(), silent); err == nil {
			t.Errorf("the preflight: %+v", saw)
		}
	})
}
