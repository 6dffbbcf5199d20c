package datacenter

import (
	"crypto/rand"
	"encoding/base64"
	"encoding/hex"
	"net/http"
	"strings"
	"sync"

	"github.com/ephemeral-castle/castle/internal/emulator/infisical"
)

// proxmoxTokenID is the API token's name; its value is made anew for every lab.
const proxmoxTokenID = "castle@pve!castle"

// vault is Infisical and what a user has put there before the first create.
// It needs no knowledge of the configuration: every folder that a client asks
// for turns out to hold everything.
type vault struct {
	server                 *infisical.Server
	clientID, clientSecret string
	secrets                map[string]string
	token                  string // Proxmox's

	mu     sync.Mutex
	filled map[infisical.Folder]bool
	exists bool // the fault: what an earlier cluster left
}

func newVault(c Config) *vault {
	v := &vault{
		clientID: random(16), clientSecret: random(32), filled: map[infisical.Folder]bool{}, exists: c.Faults.SecretExists,
	}
	v.server = infisical.New(infisical.Config{ClientID: v.clientID, ClientSecret: v.clientSecret})
	secretbox := make([]byte, 32)
	rand.Read(secretbox) //nolint:errcheck // never fails
	v.secrets = map[string]string{
		"PROXMOX_TOKEN_ID": proxmoxTokenID, "PROXMOX_TOKEN_SECRET": random(16),
		"TALOS_SECRETBOX_KEY": base64.StdEncoding.EncodeToString(secretbox),
		// Inside the cluster External Secrets logs in with what it is given.
		"ESO_CLIENT_ID": v.clientID, "ESO_CLIENT_SECRET": v.clientSecret,
		"GITHUB_TOKEN": random(20), "GIT_USERNAME": "git",
		"AWS_ACCESS_KEY_ID": strings.ToUpper(random(10)), "AWS_SECRET_ACCESS_KEY": random(20),
	}
	if v.token = c.ProxmoxToken; v.token == "" {
		v.token = proxmoxTokenID + "=" + v.secrets["PROXMOX_TOKEN_SECRET"]
	}
	for _, name := range c.Secrets {
		if v.secrets[name] == "" {
			v.secrets[name] = random(20)
		}
	}
	return v
}

func (v *vault) handler() http.Handler {
	api := v.server.Handler()
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		q := r.URL.Query()
		if project := q.Get("workspaceId"); r.Method == http.MethodGet && project != "" {
			v.fill(infisical.Folder{Workspace: project, Environment: q.Get("environment"), Path: q.Get("secretPath")})
		}
		api.ServeHTTP(w, r)
	})
}

// fill puts the user's secrets into a folder, once: what is deleted stays deleted.
func (v *vault) fill(f infisical.Folder) {
	v.mu.Lock()
	defer v.mu.Unlock()
	if v.filled[f] {
		return
	}
	v.filled[f] = true
	for name, value := range v.secrets {
		v.server.Put(f, name, value)
	}
	if v.exists {
		v.server.Put(f, "KUBECONFIG_CONTENT", "left by an earlier cluster")
	}
}

// added are the secrets that a cluster has put there.
func (v *vault) added() []infisical.Secret {
	var all []infisical.Secret
	for _, s := range v.server.Secrets() {
		if _, ours := v.secrets[s.Key]; !ours {
			all = append(all, s)
		}
	}
	return all
}

func random(bytes int) string {
	b := make([]byte, bytes)
	rand.Read(b) //nolint:errcheck // never fails
	return hex.EncodeToString(b)
}
