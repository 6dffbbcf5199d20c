package datacenter

import (
	"context"
	"crypto/ed25519"
	"crypto/rand"
	"encoding/base64"
	"encoding/hex"
	"encoding/pem"
	"net/http"
	"strings"
	"sync"
	"time"

	"golang.org/x/crypto/ssh"

	"github.com/ephemeral-castle/castle/internal/emulator/infisical"
)

// ProxmoxTokenID is the API token's name, unless Config names another token; every lab generates a new value.
const ProxmoxTokenID = "castle@pve!castle"

// Infisical's share of TazLab's stage secrets, which took 16 s in June 2026 ("Eliminating Ansible"), is not
// known: the stage took 33 s in February and 4 s in July. The lab's Terraform needs 4 s for init, both stages
// and the request, so the list that Terraform's provider reads takes the rest. Other requests take what a
// request to a cloud takes.
const (
	infisicalList    = 12 * time.Second
	infisicalRequest = 100 * time.Millisecond
)

// folders are Infisical with the contents that a user puts there before the first create. They need
// no knowledge of the configuration: every folder that a client requests holds all secrets.
type folders struct {
	server                 *infisical.Server
	clientID, clientSecret string
	secrets                map[string]string
	token                  string // Proxmox's

	request, list time.Duration // how long any request takes, and the list of a folder's secrets

	mu     sync.Mutex
	filled map[infisical.Folder]bool
	exists bool // the fault: what an earlier cluster left
}

func newFolders(c Config) *folders {
	i := &folders{
		clientID: random(16), clientSecret: random(32), filled: map[infisical.Folder]bool{},
		exists:  c.Faults.SecretExists,
		request: scaled(infisicalRequest, c.Speed), list: scaled(infisicalList, c.Speed),
	}
	i.server = infisical.New(infisical.Config{ClientID: i.clientID, ClientSecret: i.clientSecret})
	secretbox := make([]byte, 32)
	rand.Read(secretbox) //nolint:errcheck // never fails
	i.secrets = map[string]string{
		"PROXMOX_TOKEN_ID": ProxmoxTokenID, "PROXMOX_TOKEN_SECRET": random(16),
		"TALOS_SECRETBOX_KEY": base64.StdEncoding.EncodeToString(secretbox),
		// Inside the cluster External Secrets logs in with these credentials.
		"ESO_CLIENT_ID": i.clientID, "ESO_CLIENT_SECRET": i.clientSecret,
		"GITHUB_TOKEN": random(20), "GIT_USERNAME": "git",
		"AWS_ACCESS_KEY_ID": strings.ToUpper(random(10)), "AWS_SECRET_ACCESS_KEY": random(20),
	}
	if i.token = c.ProxmoxToken; i.token == "" {
		i.token = ProxmoxTokenID + "=" + i.secrets["PROXMOX_TOKEN_SECRET"]
	}
	for _, name := range c.Secrets {
		if i.secrets[name] == "" {
			i.secrets[name] = StandIn(name)
		}
	}
	return i
}

// StandIn is a value for a secret of the user's. It has the form that the stages expect of this name.
func StandIn(name string) string {
	if name == "REGISTRY_AUTHS" {
		return `{"auths": {"https://index.docker.io/v1/": {"auth": "` +
			base64.StdEncoding.EncodeToString([]byte("castle:"+random(10))) + `"}, "cache.example.org": ` +
			`{"username": "castle", "password": "` + random(10) + `"}}}`
	}
	if name == CloudToken {
		return random(32) // in 64 digits
	}
	if name == "GIT_SSH_PRIVATE_KEY" || name == "GIT_SSH_KNOWN_HOSTS" {
		return deployKey(name)
	}
	return random(20)
}

// deployKey is a key of its own, or a server's public key.
func deployKey(name string) string {
	public, private, err := ed25519.GenerateKey(rand.Reader)
	if err != nil {
		panic(err) // there is no randomness
	}
	if name == "GIT_SSH_KNOWN_HOSTS" {
		key, err := ssh.NewPublicKey(public)
		if err != nil {
			panic(err) // it has the size of a key
		}
		return "* " + string(ssh.MarshalAuthorizedKey(key))
	}
	block, err := ssh.MarshalPrivateKey(private, "castle")
	if err != nil {
		panic(err) // likewise
	}
	return string(pem.EncodeToMemory(block))
}

func (i *folders) handler() http.Handler {
	api := i.server.Handler()
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		q := r.URL.Query()
		if project := q.Get("workspaceId"); r.Method == http.MethodGet && project != "" {
			i.fill(infisical.Folder{Workspace: project, Environment: q.Get("environment"),
				Path: q.Get("secretPath")})
		}
		took := i.request
		if q.Get("expandSecretReferences") == "true" && r.Header.Get("Authorization") != "" {
			took = i.list
		}
		elapse(r.Context(), took)
		api.ServeHTTP(w, r)
	})
}

// scaled is a time of real machines at the lab's speed.
func scaled(d time.Duration, speed float64) time.Duration { return time.Duration(float64(d) / speed) }

// elapse returns when a time has passed, or the caller has gone.
func elapse(ctx context.Context, d time.Duration) {
	select {
	case <-time.After(d):
	case <-ctx.Done():
	}
}

// fill puts the user's secrets into a folder, once: a deleted secret stays deleted.
func (i *folders) fill(f infisical.Folder) {
	i.mu.Lock()
	defer i.mu.Unlock()
	if i.filled[f] {
		return
	}
	i.filled[f] = true
	for name, value := range i.secrets {
		i.server.SetSecret(f, name, value)
	}
	if i.exists {
		i.server.SetSecret(f, "KUBECONFIG_CONTENT", "left by an earlier cluster")
	}
}

// added are the secrets that a cluster has put there.
func (i *folders) added() []infisical.Secret {
	var all []infisical.Secret
	for _, s := range i.server.Secrets() {
		if _, ours := i.secrets[s.Key]; !ours {
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
