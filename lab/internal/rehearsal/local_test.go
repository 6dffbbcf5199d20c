package rehearsal

import (
	"encoding/json"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// The file with a cluster's secrets is not in Git. With and without it, a rehearsal uses values of
// its own, and the real ones stay outside.
func TestSecretsOfAFileHaveStandIns(t *testing.T) {
	repository := t.TempDir()
	dir := filepath.Join(repository, "clusters", "green", "proxmox")
	check(t, os.MkdirAll(dir, 0o700))
	check(t,
		os.WriteFile(filepath.Join(dir, "cluster.hcl"),
			[]byte("stage \"local\" { source = \"secrets/local\" }\n"), 0o600))
	o := Options{Cluster: "green", Environ: []string{`TF_VAR_local_secrets={GITHUB_TOKEN="real"}`,
		"TF_VAR_other=x"}}
	for _, file := range []string{
		"", "local_secrets = { PROXMOX_TOKEN_ID = \"real\", GITHUB_TOKEN = \"real\" }\n",
	} {
		if file != "" {
			check(t, os.WriteFile(filepath.Join(dir, "secrets.tfvars"), []byte(file), 0o600))
		}
		s, err := inspect(repository, o)
		check(t, err)
		var secrets map[string]string
		check(t, json.Unmarshal([]byte(s.LocalSecrets), &secrets))
		if secrets["GITHUB_TOKEN"] == "" || s.ProxmoxToken != secrets["PROXMOX_TOKEN_ID"]+"="+
			secrets["PROXMOX_TOKEN_SECRET"] {
			t.Errorf("stand-ins %v, token %q", secrets, s.ProxmoxToken)
		}
		p := &plan{Work: "/w", Survey: *s, Options: o}
		environ := strings.Join(p.environ(), "\n")
		if strings.Contains(environ, "real") || strings.Count(environ, "TF_VAR_local_secrets=") != 1 ||
			!strings.Contains(environ, "TF_VAR_other=x") {
			t.Errorf("inside:\n%s", environ)
		}
	}
}
