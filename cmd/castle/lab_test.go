//go:build integration

package main

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/rogpeppe/go-internal/testscript"
)

// inLab holds, inside, the folder of this test. Variables named TF_VAR_… reach the inside.
const inLab = "TF_VAR_castle_test_in_lab"

// TestLab rehearses the cluster mini and runs the scripts of testdata/lab inside,
// one after the other. They use the built castle, real Terraform, a real Kubernetes
// API, and a Proxmox that records its requests.
func TestLab(t *testing.T) {
	scripts(t, "mini", "testdata/lab")
}

// TestLabKills does the same with the scripts that kill castle in the middle of a
// run. They have a rehearsal of their own, which takes place beside the other one.
func TestLabKills(t *testing.T) {
	scripts(t, "mini", "testdata/lab-kills")
}

// TestLabHeals does the same with the scripts that break what stages have made, by
// hand, and have castle mend it.
func TestLabHeals(t *testing.T) {
	scripts(t, "mini", "testdata/heal")
}

// TestHandover does the same with the cluster handover, in which Flux follows a
// folder of this repository, as it would follow Git.
func TestHandover(t *testing.T) {
	scripts(t, "handover", "testdata/handover")
}

// TestCilium does the same with the cluster cilium, whose nodes get ready only with a stage that is applied
// after the API answers.
func TestCilium(t *testing.T) {
	scripts(t, "cilium", "testdata/cilium")
}

// scripts rehearses a cluster, with more flags, and runs a folder's scripts inside.
func scripts(t *testing.T, cluster, folder string, flags ...string) {
	t.Helper()
	if here := os.Getenv(inLab); here != "" {
		t.Chdir(here)
		inside(t, folder)
		return
	}
	args := append([]string{"-C", "../.."}, flags...)
	if out := rehearse(t, nil, append(args, cluster)...); !strings.Contains(out, "Left over: nothing") {
		t.Fatalf("something is left over:\n%s", out)
	}
}

// failed is why a script has failed, where it says so.
var failed = regexp.MustCompile(`(?m)^ *(FAIL: testdata|panic: ).*$`)

// rehearse runs this test inside a rehearsal, with more in its environment, and
// returns what it printed. Other tests go on meanwhile: a rehearsal waits a lot.
func rehearse(t *testing.T, environ []string, args ...string) string {
	t.Helper()
	t.Parallel()
	for _, name := range []string{"castle", "castle-lab"} {
		if _, err := os.Stat(filepath.Join("../../bin", name)); err != nil {
			t.Fatalf("%s is not built (make build): %v", name, err)
		}
	}
	here, err := os.Getwd()
	if err != nil {
		t.Fatal(err)
	}
	me, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	if err := schematest(); err != nil { // there is no compiler inside
		t.Fatal(err)
	}
	if !slices.Contains(args, "--controllers") { // the same rehearsal whether make real has run or not
		args = append([]string{"--controllers", "standin"}, args...)
	}
	args = append(append([]string{"rehearse"}, args...), "--", me, "-test.run=^"+t.Name()+"$",
		"-test.parallel=1")
	if testing.Verbose() {
		args = append(args, "-test.v")
	}
	cmd := exec.CommandContext(t.Context(), "../../bin/castle", args...)
	cmd.Env = slices.Concat(os.Environ(), environ, []string{inLab + "=" + here})
	var out strings.Builder
	cmd.Stdout = &out
	if testing.Verbose() { // as it comes: a soak takes an hour
		cmd.Stdout = io.MultiWriter(&out, os.Stdout)
	}
	cmd.Stderr = cmd.Stdout
	if err := cmd.Run(); err != nil {
		// The reason once more at the end: logs are cut in the middle.
		t.Fatalf("%v\n%s\n%s", err, out.String(), strings.Join(failed.FindAllString(out.String(), -1), "\n"))
	}
	if strings.Contains(out.String(), "no tests to run") {
		t.Fatalf("no script ran inside:\n%s", out.String())
	}
	return out.String()
}

func inside(t *testing.T, folder string) {
	commands := map[string]func(*testscript.TestScript, bool, []string){"vms": vms, "spy": spying,
		"for-stages": forStages, "api": api, "vault": vault, "pod": pod, "by-hand": byHand,
		"upgrade": upgrade, "defragment": defragment, "upgrade-kubernetes": upgradeKubernetes,
		"freeze": freeze, "sql": sql, "bucket": bucket, "documented": documented,
		"logins": probeLogins, "volume": volume, "hcloud": hcloud}
	run(t, folder, func(env *testscript.Env) error {
		if t.Failed() { // each begins with a lab without machines
			env.T().Skip("an earlier script of this lab has failed, and its cluster stands")
		}
		env.Values[spyKey{}], env.Values[holdKey{}] = &spy{}, &hold{}
		env.Values[plantedKey{}] = newPlanted()
		env.Values[begunKey{}], env.Values[frozenKey{}] = map[string]*begun{}, map[int]bool{}
		env.Values[loginsKey{}] = &logins{}
		if err := likeTheLab(env, "../.."); err != nil {
			return err
		}
		return landed(env)
	}, commands, interruptible(), planting())
}

// likeTheLab gives scripts the lab's HOME and state directory, and castle's repository.
func likeTheLab(env *testscript.Env, repository string) error {
	for _, kv := range os.Environ() {
		name, value, _ := strings.Cut(kv, "=")
		env.Setenv(name, value)
	}
	repository, err := filepath.Abs(repository)
	env.Setenv("CASTLE_REPOSITORY", repository)
	return err
}

// forStages runs a command for every stage that has a state, with its name in
// the place of STAGE: for-stages castle terraform mini STAGE -- plan.
func forStages(ts *testscript.TestScript, neg bool, args []string) {
	states, err := filepath.Glob(filepath.Join(ts.Getenv("CASTLE_STATE_DIR"),
		"*/*/stages/*/terraform.tfstate"))
	ts.Check(err)
	if neg || len(args) == 0 || len(states) == 0 {
		ts.Fatalf("usage: for-stages program args...; there are %d stages", len(states))
	}
	for _, path := range states {
		all := strings.Split(strings.ReplaceAll(strings.Join(args, "\n"), "STAGE",
			filepath.Base(filepath.Dir(path))), "\n")
		if err := ts.Exec(all[0], all[1:]...); err != nil {
			ts.Fatalf("%s: %v", strings.Join(all, " "), err)
		}
	}
}

// vms asks the lab's Proxmox as castle's own user would:
//
//	vms wait N    until at least N of mini's machines exist
//	vms off       stops them all
//	vms stop ID   stops one; start starts it, and delete stops and deletes it
//	vms vlan ID N moves its first card to another VLAN; 0 is none
//	vms           prints their ids and names, in the order of their ids
func vms(ts *testscript.TestScript, neg bool, args []string) {
	if neg {
		ts.Fatalf("unsupported: ! vms")
	}
	if len(args) == 0 {
		found, err := listVMs(context.Background())
		ts.Check(err)
		_, err = fmt.Fprint(ts.Stdout(), strings.Join(found, ""))
		ts.Check(err)
		return
	}
	if args[0] != "wait" {
		found, err := listVMs(context.Background())
		ts.Check(err)
		for _, line := range found {
			id, _, _ := strings.Cut(line, " ")
			switch {
			case args[0] != "off" && args[1] != id:
			case args[0] == "vlan":
				rewire(ts, id, args[2])
			case args[0] == "start":
				power(ts, id, http.MethodPost, "/status/start", " running\n")
			default:
				power(ts, id, http.MethodPost, "/status/stop", " stopped\n")
				if args[0] == "delete" {
					power(ts, id, http.MethodDelete, "?purge=1", "")
				}
			}
		}
		return
	}
	want, err := strconv.Atoi(args[1])
	ts.Check(err)
	ctx, stop := context.WithTimeout(context.Background(), 2*time.Minute)
	defer stop()
	there := func() bool {
		found, err := listVMs(ctx)
		ts.Check(err)
		return len(found) >= want
	}
	if !eventually(2*time.Minute, 20*time.Millisecond, there) {
		ts.Fatalf("there are not %d VMs", want)
	}
}

// power sends a request about one VM, and waits until its line in the list has an end; "" until it has none.
func power(ts *testscript.TestScript, id, method, path, end string) {
	ctx := context.Background()
	_, err := askProxmox(ctx, method, "nodes/proxmox/qemu/"+id+path)
	ts.Check(err)
	done := func() bool {
		found, err := listVMs(ctx)
		ts.Check(err)
		i := slices.IndexFunc(found, func(line string) bool { return strings.HasPrefix(line, id+" ") })
		return i < 0 && end == "" || i >= 0 && end != "" && strings.HasSuffix(found[i], end)
	}
	if !eventually(2*time.Minute, 20*time.Millisecond, done) {
		ts.Fatalf("VM %s: %s %s has no effect", id, method, path)
	}
}

// rewire changes the VLAN of a VM's first card, while it runs.
func rewire(ts *testscript.TestScript, id, vlan string) {
	path := "nodes/proxmox/qemu/" + id + "/config"
	body, err := askProxmox(context.Background(), http.MethodGet, path)
	ts.Check(err)
	var response struct{ Data struct{ Net0 string } }
	ts.Check(json.Unmarshal(body, &response))
	card, _, _ := strings.Cut(response.Data.Net0, ",tag=")
	if vlan != "0" {
		card += ",tag=" + vlan
	}
	_, err = askProxmox(context.Background(), http.MethodPut, path, "net0="+url.QueryEscape(card))
	ts.Check(err)
}

func listVMs(ctx context.Context) ([]string, error) {
	body, err := askProxmox(ctx, http.MethodGet, "cluster/resources?type=vm")
	if err != nil {
		return nil, err
	}
	var response struct {
		Data []struct {
			VMID   int
			Name   string
			Status string
		}
	}
	if err := json.Unmarshal(body, &response); err != nil {
		return nil, err
	}
	var lines []string
	for _, vm := range response.Data {
		lines = append(lines, fmt.Sprintf("%d %s %s\n", vm.VMID, vm.Name, vm.Status))
	}
	return lines, nil
}

// insideClient trusts the authority of the lab.
func insideClient() (*http.Client, error) {
	pem, err := os.ReadFile(os.Getenv("SSL_CERT_FILE"))
	if err != nil {
		return nil, err
	}
	roots := x509.NewCertPool()
	if !roots.AppendCertsFromPEM(pem) {
		return nil, errors.New("SSL_CERT_FILE holds no certificate")
	}
	return &http.Client{Transport: &http.Transport{TLSClientConfig: &tls.Config{RootCAs: roots}}}, nil
}

// askProxmox sends a request with form fields (KEY=VALUE).
func askProxmox(ctx context.Context, method, path string, form ...string) ([]byte, error) {
	client, err := insideClient()
	if err != nil {
		return nil, err
	}
	address := strings.TrimSuffix(os.Getenv("PROXMOX_VE_ENDPOINT"), "/") + "/api2/json/" + path
	req, err := http.NewRequestWithContext(ctx, method, address, strings.NewReader(strings.Join(form, "&")))
	if err != nil {
		return nil, err
	}
	if len(form) > 0 {
		req.Header.Set("Content-Type", "application/x-www-form-urlencoded")
	}
	req.Header.Set("Authorization", "PVEAPIToken="+os.Getenv("PROXMOX_VE_API_TOKEN"))
	return answerOf(client.Do(req))
}

// answerOf returns the body of a response. The error of a status that is none of success has it, too.
func answerOf(res *http.Response, err error) ([]byte, error) {
	if err != nil {
		return nil, err
	}
	defer res.Body.Close()
	answer, err := io.ReadAll(res.Body)
	if err == nil && res.StatusCode >= 300 {
		err = fmt.Errorf("%s %s: %s: %s", res.Request.Method, res.Request.URL.Path, res.Status, answer)
	}
	return answer, err
}
