package proxmox

import (
	"bytes"
	"encoding/json"
	"io"
	"net/http"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/ephemeral-castle/castle/internal/platform"
)

// oneAnswer gives every request the same answer.
type oneAnswer struct {
	code int
	body []byte
}

func (a oneAnswer) RoundTrip(*http.Request) (*http.Response, error) {
	return &http.Response{StatusCode: a.code, Status: http.StatusText(a.code), Header: http.Header{},
		Body: io.NopCloser(bytes.NewReader(a.body))}, nil
}

// FuzzAnswer reads any answer. None proves that something is gone. An id is free only if Proxmox names it,
// and what is no list is never read as an empty one.
func FuzzAnswer(f *testing.F) {
	for _, body := range []string{
		`{"data":null}`, `{"data":[]}`, `{"data":"421"}`, `{"data":421}`, `{}`, `null`, ``, `[]`, `<html>`,
		`{"data":{}}`,
		`{"data":[null]}`, `{"data":[{}]}`, `{"data":[{"node":"proxmox","status":"online"}]}`,
		`{"data":[{"vmid":421,"type":"qemu","node":"proxmox","name":"blue-cp-01","tags":"castle"}]}`,
		`{"data":[{"vmid":"421"}]}`,
		`{"data":{"name":"x","smbios1":"uuid=0","net0":"virtio=BC:24:11:00:00:01"}}`,
		`{"data":[{"storage":"local","content":"images","active":1,"shared":0,` +
			`"volid":"local:vm-421-disk-0"}]}`,
		`{"data":{"/storage/local":{"Datastore.Allocate":1}}}`, `{"errors":{"vmid":"VM 421 already exists"}}`,
		`{"data":null,"message":"VM 421 already exists\n"}`,
	} {
		f.Add(uint16(200), []byte(body))
		f.Add(uint16(400), []byte(body))
		f.Add(uint16(500), []byte(body))
	}
	owned := []platform.Object{
		{Kind: platform.Machine, Node: "proxmox", VM: 421, Name: "blue-cp-01",
			UUID: "5a7e0000-0000-4000-8000-000000000421"},
		{Kind: platform.Disk, Node: "proxmox", VM: 421, Volume: "local:vm-421-disk-0"},
		{Kind: platform.Image, Node: "proxmox", Volume: "local:import/talos.qcow2"},
	}
	f.Fuzz(func(t *testing.T, code uint16, body []byte) {
		answer := oneAnswer{200 + int(code)%400, body}
		synctest.Test(t, func(t *testing.T) {
			defer time.Sleep(2 * time.Second) // the library sleeps after a failed read
			c, err := newClient("castle@pve!castle=secret", "https://proxmox.example:8006", answer)
			if err != nil {
				t.Fatal(err)
			}
			var envelope struct{ Data json.RawMessage }
			decoded := answer.code < 300 && json.Unmarshal(body, &envelope) == nil
			if taken, err := c.Taken(t.Context(), 421); err == nil && !taken &&
				(!decoded || strings.Trim(string(envelope.Data), `"`) != "421") {
				t.Error("the id is free by an answer that does not name it")
			}
			var rows []json.RawMessage
			isList := decoded && json.Unmarshal(envelope.Data, &rows) == nil && rows != nil
			for name, read := range map[string]func() error{
				"guests":   func() error { _, err := c.Guests(t.Context()); return err },
				"nodes":    func() error { _, err := c.Nodes(t.Context()); return err },
				"storages": func() error { _, err := c.Hosts().Storages(t.Context(), "proxmox"); return err },
				"volumes": func() error {
					_, err := c.Volumes(t.Context(), "proxmox", "local", "images", 421)
					return err
				},
				"tasks":       func() error { _, err := c.running(t.Context(), "proxmox", 421); return err },
				"replication": func() error { _, err := replicated(t.Context(), c); return err },
			} {
				if err := read(); err == nil && !isList {
					t.Errorf("%s are read from what is no list", name)
				} else if err != nil && !strings.HasPrefix(err.Error(), "proxmox: get ") {
					t.Errorf("%s: no request is named: %v", name, err)
				}
			}
			search := Search{Client: c}
			for _, o := range search.Now(t.Context(), owned) {
				if o.Gone {
					t.Errorf("%s %s is gone by one answer to all questions: %s", o.Kind, o.ID, o.Reason)
				}
			}
			// The steps after it must not panic.
			search.Complete(t.Context(), owned)
			search.Blocked(t.Context(), owned)                             //nolint:errcheck // see above
			c.Survey(t.Context(), platform.Range{From: 421, To: 422}, nil) //nolint:errcheck // likewise
		})
	})
}

// FuzzRange reads --vmid-range. An accepted range prints as it was read, and spans no more than allowed.
func FuzzRange(f *testing.F) {
	for _, seed := range []string{"421-432", "421", "100-", "-100", "432-421", "99", "+421", "0421", "1e3",
		" 421", "999999999-1000000000", "421--432", "9223372036854775808"} {
		f.Add(seed)
	}
	f.Fuzz(func(t *testing.T, text string) {
		r, err := platform.ParseRange(text)
		if err != nil {
			if r != (platform.Range{}) {
				t.Errorf("%q is refused and means %s", text, r)
			}
			return
		}
		again, err := platform.ParseRange(r.String())
		if err != nil || again != r {
			t.Errorf("%q is %s, which is %s (%v)", text, r, again, err)
		}
		if r.From < 100 || r.To < r.From || r.To-r.From >= platform.Widest || r.Contains(r.To+1) {
			t.Errorf("%q is accepted as %+v", text, r)
		}
		for id := range strings.SplitSeq(text, "-") {
			if id == "" || strings.Trim(id, "0123456789") != "" || id[0] == '0' {
				t.Errorf("%q is accepted as %s", text, r)
			}
		}
	})
}
