//go:build integration

package main

import (
	"cmp"
	"crypto/tls"
	"crypto/x509"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/rogpeppe/go-internal/testscript"
)

// TestLanding rehearses the cluster tazlab, whose Vault stays when it goes.
func TestLanding(t *testing.T) {
	scripts(t, "tazlab", "testdata/tazlab")
}

// labVault is the Vault of a rehearsal, for its operator.
func labVault() (*realVault, error) {
	kept, err := os.ReadFile(os.Getenv("CASTLE_LAB_VAULT_KEYS"))
	if err != nil {
		return nil, err
	}
	var keys struct {
		RootToken string `json:"root_token"`
	}
	if err := json.Unmarshal(kept, &keys); err != nil {
		return nil, err
	}
	bundle, err := os.ReadFile(os.Getenv("SSL_CERT_FILE"))
	roots := x509.NewCertPool()
	roots.AppendCertsFromPEM(bundle)
	return &realVault{
		address: os.Getenv("VAULT_ADDR"), root: keys.RootToken,
		client: &http.Client{Transport: &http.Transport{TLSClientConfig: &tls.Config{RootCAs: roots}}},
	}, err
}

// workload is what a Pod has of Vault: the token that it logged in for, and the
// database user that it got with it.
type workload struct {
	v              *realVault
	token, lease   string
	user, password string
}

type workloadKey struct{}

// pod does what a workload of the cluster does that needs Vault:
//
//	pod token NAMESPACE ACCOUNT AUDIENCE FILE  writes a ServiceAccount's token, as the API server signs it
//	pod login MOUNT ROLE FILE                  logs in to Vault with the token
//	pod read PATH                              reads a path of Vault
//	pod user PATH                              gets a database user, with a lease
//	pod query ADDRESS DATABASE STATEMENT       queries the database as this user
//
// With !, pod expects Vault or the database to refuse, and prints its message.
func pod(ts *testscript.TestScript, neg bool, args []string) {
	w := ts.Value(workloadKey{}).(*workload)
	if args[0] == "token" {
		body := fmt.Sprintf(`{"apiVersion":"authentication.k8s.io/v1","kind":"TokenRequest",`+
			`"spec":{"audiences":[%q]}}`, args[3])
		var made struct{ Status struct{ Token string } }
		ts.Check(json.Unmarshal(ask(ts, http.MethodPost, "/api/v1/namespaces/"+args[1]+"/serviceaccounts/"+
			args[2]+"/token", []byte(body)), &made))
		ts.Check(os.WriteFile(ts.MkAbs(args[4]), []byte(made.Status.Token), 0o600))
		return
	}
	refused, err := w.do(ts, args)
	ts.Check(err)
	if refused != "" {
		fmt.Fprintln(ts.Stdout(), refused)
	}
	if (refused != "") != neg {
		ts.Fatalf("pod %s: refused: %q", strings.Join(args, " "), refused)
	}
}

func (w *workload) do(ts *testscript.TestScript, args []string) (refused string, err error) {
	switch args[0] {
	case "login":
		w.token, refused, err = w.v.login(args[1], args[2], ts.ReadFile(args[3]))
	case "read", "user":
		var answer struct {
			LeaseID string `json:"lease_id"`
			Data    map[string]any
		}
		refused, err = w.v.ask(http.MethodGet, args[1], w.token, nil, &answer)
		w.lease, w.user, w.password = answer.LeaseID, fmt.Sprint(answer.Data["username"]),
			fmt.Sprint(answer.Data["password"])
		ts.Setenv("LEASE", w.lease)
	case "query":
		found, _ := filepath.Glob("/usr/lib/postgresql/*/bin/psql") //nolint:errcheck // the pattern is right
		c := exec.Command(found[len(found)-1], "-h", args[1], "-U", w.user, "-d", args[2], "-Atc", args[3])
		c.Env = []string{"PGPASSWORD=" + w.password, "PGSSLMODE=require"}
		out, failed := c.CombinedOutput()
		if failed != nil {
			return cmp.Or(strings.TrimSpace(string(out)), failed.Error()), nil
		}
		_, err = ts.Stdout().Write(out)
	default:
		err = fmt.Errorf("pod: unknown %q", args[0])
	}
	return refused, err
}

// login returns a token of Vault's for one of Kubernetes'.
func (v *realVault) login(mount, role, jwt string) (token, refused string, err error) {
	body, err := json.Marshal(map[string]string{"role": role, "jwt": jwt})
	if err != nil {
		return "", "", err
	}
	var made struct {
		Auth struct {
			ClientToken string `json:"client_token"`
		}
	}
	refused, err = v.ask(http.MethodPost, "auth/"+mount+"/login", "", body, &made)
	return made.Auth.ClientToken, refused, err
}

// ask tells what Vault refuses apart from what went wrong on the way.
func (v *realVault) ask(method, path, token string, body []byte, answer any) (refused string, err error) {
	r, err := http.NewRequest(method, v.address+"/v1/"+path, strings.NewReader(string(body)))
	if err != nil {
		return "", err
	}
	r.Header.Set("X-Vault-Token", token)
	response, err := v.client.Do(r)
	if err != nil {
		return "", err
	}
	defer response.Body.Close() //nolint:errcheck // it was only read
	content, err := io.ReadAll(response.Body)
	if err != nil {
		return "", err
	}
	if response.StatusCode >= http.StatusBadRequest {
		return cmp.Or(strings.TrimSpace(string(content)), response.Status), nil
	}
	return "", json.Unmarshal(content, answer)
}

// show prints all that is configured in the Vault, in an order of its own: mounts,
// policies, roles, connections, and which version each secret has.
func (v *realVault) show(ts *testscript.TestScript) {
	var all []string
	var read func(path string)
	list := func(path string) []string {
		var answer struct{ Data struct{ Keys []string } }
		if refused, err := v.ask(http.MethodGet, path+"?list=true", v.root, nil, &answer); refused != "" ||
			err != nil {
			return nil // nothing there
		}
		return answer.Data.Keys
	}
	read = func(path string) {
		var answer struct{ Data json.RawMessage }
		v.call(ts, http.MethodGet, path, nil, &answer)
		all = append(all, path+" "+string(answer.Data))
	}
	each := func(path string) {
		for _, name := range list(path) {
			read(path + "/" + name)
		}
	}
	var secrets func(mount, folder string)
	secrets = func(mount, folder string) {
		for _, name := range list(mount + "metadata/" + folder) {
			if strings.HasSuffix(name, "/") {
				secrets(mount, folder+name)
			} else {
				read(mount + "metadata/" + folder + name)
			}
		}
	}
	mounts := func(kind string) map[string]struct{ Type string } {
		var answer struct {
			Data map[string]struct{ Type string }
		}
		v.call(ts, http.MethodGet, kind, nil, &answer)
		read(kind)
		return answer.Data
	}
	each("sys/policies/acl")
	for path, m := range mounts("sys/auth") {
		if m.Type == "jwt" {
			read("auth/" + path + "config")
			each("auth/" + path + "role")
		}
	}
	for path, m := range mounts("sys/mounts") {
		switch m.Type {
		case "kv":
			secrets(path, "")
		case "database":
			each(path + "config")
			each(path + "roles")
		}
	}
	slices.Sort(all)
	fmt.Fprintln(ts.Stdout(), strings.Join(all, "\n"))
}

// landed gives scripts the Vault of the rehearsal, if it has one.
func landed(env *testscript.Env) error {
	if os.Getenv("CASTLE_LAB_VAULT_KEYS") == "" {
		return nil
	}
	v, err := labVault()
	env.Values[vaultKey{}], env.Values[workloadKey{}] = v, &workload{v: v}
	return err
}
