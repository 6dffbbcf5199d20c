//go:build integration

package main

import (
	"bytes"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/rogpeppe/go-internal/testscript"
)

// TestHCloud rehearses the cluster green in an emulated project of Hetzner Cloud, with the real provider, and
// runs the scripts of testdata/hcloud inside.
func TestHCloud(t *testing.T) {
	scripts(t, "green", "testdata/hcloud")
}

// TestLabCSI does the same with the cluster csi, whose volumes are Hetzner Cloud's.
func TestLabCSI(t *testing.T) { scripts(t, "csi", "testdata/lab-csi") }

// TestBoth creates blue and green in one lab, and destroys each while the other one stands.
func TestBoth(t *testing.T) { scripts(t, "green", "testdata/both", "--with", "blue") }

// TestLabFleet runs the commands of castle fleet on mini, on green, and on a cluster without machines.
func TestLabFleet(t *testing.T) { scripts(t, "green", "testdata/lab-fleet", "--with", "mini") }

// TestHCloudFaults does the same with a project that limits requests, and whose actions are slow or fail.
func TestHCloudFaults(t *testing.T) {
	scripts(t, "green", "testdata/hcloud-faults", "--fault", "rate-limited=6s", "--fault", "placement-full=1",
		"--fault", "action-slow=4s", "--fault", "action-fails=1", "--fault", "server-locked=5s")
}

// hcloud calls the lab's Hetzner Cloud as somebody else does:
//
//	hcloud list KIND                how many there are; id, name and status of each
//	hcloud wait KIND N              until there are at least N
//	hcloud left KIND N              until there are at most N
//	hcloud wait-for KIND NAME STATUS
//	hcloud create KIND FILE         makes one; {KIND/NAME} in the file is the id of another
//	hcloud do KIND NAME VERB FILE   an action
//	hcloud delete KIND NAME
//	hcloud clear KIND               deletes all of them
func hcloud(ts *testscript.TestScript, neg bool, args []string) {
	if neg || len(args) < 2 {
		ts.Fatalf("usage: hcloud list|wait|left|create|do|delete|clear KIND …")
	}
	kind := args[1]
	switch args[0] {
	case "list":
		all := cloudResources(ts, kind)
		fmt.Fprintln(ts.Stdout(), len(all), kind)
		for _, r := range all {
			fmt.Fprintln(ts.Stdout(), r.ID, r.Name, r.Status)
		}
	case "wait":
		n, err := strconv.Atoi(args[2])
		ts.Check(err)
		untilCloud(ts, func() bool { return len(cloudResources(ts, kind)) >= n })
	case "left":
		n, err := strconv.Atoi(args[2])
		ts.Check(err)
		untilCloud(ts, func() bool { return len(cloudResources(ts, kind)) <= n })
	case "wait-for":
		isIt := func(r cloudResource) bool { return r.Name == args[2] && r.Status == args[3] }
		untilCloud(ts, func() bool { return slices.ContainsFunc(cloudResources(ts, kind), isIt) })
	case "create":
		body := others.ReplaceAllStringFunc(ts.ReadFile(args[2]), func(text string) string {
			of, name, _ := strings.Cut(strings.Trim(text, "{}"), "/")
			return strconv.FormatInt(cloudID(ts, of, name), 10)
		})
		callCloud(ts, http.MethodPost, kind, []byte(body))
	case "do":
		callCloud(ts, http.MethodPost, fmt.Sprintf("%s/%d/actions/%s", kind, cloudID(ts, kind, args[2]),
			args[3]),
			[]byte(ts.ReadFile(args[4])))
	case "delete":
		callCloud(ts, http.MethodDelete, fmt.Sprintf("%s/%d", kind, cloudID(ts, kind, args[2])), nil)
		isIt := func(r cloudResource) bool { return r.Name == args[2] }
		untilCloud(ts, func() bool { return !slices.ContainsFunc(cloudResources(ts, kind), isIt) })
	case "clear":
		for _, r := range cloudResources(ts, kind) {
			callCloud(ts, http.MethodDelete, fmt.Sprintf("%s/%d", kind, r.ID), nil)
		}
	default:
		ts.Fatalf("there is no hcloud %s", args[0])
	}
}

var others = regexp.MustCompile(`\{[a-z_]+/[a-z0-9-]+\}`)

// untilCloud waits for a condition, with as few requests as the project's limit bears.
func untilCloud(ts *testscript.TestScript, is func() bool) {
	late, again := time.After(time.Minute), time.Tick(50*time.Millisecond)
	for !is() {
		select {
		case <-late:
			ts.Fatalf("it did not happen within a minute")
		case <-again:
		}
	}
}

type cloudResource struct {
	ID           int64
	Name, Status string
}

func cloudResources(ts *testscript.TestScript, kind string) []cloudResource {
	var answer map[string]json.RawMessage
	ts.Check(json.Unmarshal(callCloud(ts, http.MethodGet, kind+"?per_page=50", nil), &answer))
	var all []cloudResource
	ts.Check(json.Unmarshal(answer[kind], &all))
	return all
}

func cloudID(ts *testscript.TestScript, kind, name string) int64 {
	for _, r := range cloudResources(ts, kind) {
		if r.Name == name {
			return r.ID
		}
	}
	ts.Fatalf("there is no %s in %s", name, kind)
	return 0
}

func callCloud(ts *testscript.TestScript, method, path string, body []byte) []byte {
	req, err := http.NewRequest(method, ts.Getenv("HCLOUD_ENDPOINT")+"/"+path, bytes.NewReader(body))
	ts.Check(err)
	req.Header.Set("Authorization", "Bearer "+ts.Getenv("HCLOUD_TOKEN"))
	resp, err := http.DefaultClient.Do(req)
	ts.Check(err)
	defer resp.Body.Close()
	text, err := io.ReadAll(resp.Body)
	ts.Check(err)
	if resp.StatusCode >= 300 {
		ts.Fatalf("%s %s: %s: %s", method, path, resp.Status, strings.TrimSpace(string(text)))
	}
	return text
}
