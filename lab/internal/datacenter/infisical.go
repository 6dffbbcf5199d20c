package datacenter

import (
	"context"
	"crypto/rand"
	"encoding/base64"
	"encoding/hex"
	"net/http"
	"strings"
	"sync"
	"time"

	"github.com/ephemeral-castle/castle/internal/emulator/infisical"

	"github.com/ephemeral-castle/castle/lab/internal/sources"
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

func newFolders(c Config) (*folders, error) {
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
			value, err := StandIn(name, c.Keys)
			if err != nil {
				return nil, err
			}
			i.secrets[name] = value
		}
	}
	return i, nil
}

// StandIn is a value for a secret of the user's. It has the form that the stages expect of this name.
func StandIn(name string, k sources.Keys) (string, error) {
	switch name {
	case CloudToken:
		return random(32), nil // in 64 digits
	case "REGISTRY_AUTHS":
		return k.Auths()
	case "GIT_SSH_PRIVATE_KEY":
		return k.Deploy, nil
	case "GIT_SSH_KNOWN_HOSTS":
		return k.KnownHosts()
	case "SOPS_AGE_KEY":
		return k.Age, nil
	case "TAILSCALE_OAUTH_CLIENT_ID":
		return k.OAuth[0], nil
	case "TAILSCALE_OAUTH_CLIENT_SECRET":
		return k.OAuth[1], nil
	}
	return random(20), nil
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
