// Package sources serves what Flux follows in the lab: one folder as a Git repository over SSH, and as an OCI
// artifact in a registry. Both servers are real: git-upload-pack, and the registry of go-containerregistry.
// Whatever path a client names leads to this folder, as the lab knows no names of repositories.
package sources

import (
	"crypto/ed25519"
	"crypto/rand"
	"encoding/base64"
	"encoding/json"
	"encoding/pem"
	"fmt"
	"strings"

	"filippo.io/age"
	"golang.org/x/crypto/ssh"
)

// Keys are the secrets of a rehearsal that belong together: both ends of SSH, the credentials of the
// registry and of the tailnet, and the key of age.
type Keys struct {
	Deploy, Host string // private keys in OpenSSH's format
	Password     string // for the registry, of the user castle
	Age          string // an identity
	// OAuth is the client of the tailnet: its id and its secret.
	OAuth [2]string

	Ports      []uint16 // on which SSH servers listen, beside 22
	Registries []string // hosts
}

// User is the user of the registry.
const User = "castle"

// NewKeys makes the keys of a rehearsal.
func NewKeys(ports []uint16, registries []string) (Keys, error) {
	k := Keys{Password: rand.Text(), OAuth: [2]string{rand.Text(), rand.Text()}, Ports: ports,
		Registries: registries}
	identity, err := age.GenerateX25519Identity()
	if err != nil {
		return Keys{}, err
	}
	k.Age = identity.String()
	for _, key := range []*string{&k.Deploy, &k.Host} {
		_, private, err := ed25519.GenerateKey(rand.Reader)
		if err != nil {
			return Keys{}, err
		}
		block, err := ssh.MarshalPrivateKey(private, User)
		if err != nil {
			return Keys{}, err
		}
		*key = string(pem.EncodeToMemory(block))
	}
	return k, nil
}

// KnownHosts is what ssh-keyscan would print for each server.
func (k Keys) KnownHosts() (string, error) {
	host, err := ssh.ParsePrivateKey([]byte(k.Host))
	if err != nil {
		return "", err
	}
	key := string(ssh.MarshalAuthorizedKey(host.PublicKey()))
	var all strings.Builder
	all.WriteString("* " + key)
	for _, port := range k.Ports {
		fmt.Fprintf(&all, "[*]:%d %s", port, key)
	}
	return all.String(), nil
}

// Auths is a config.json of Docker with the registries, and further ones that nobody asks.
func (k Keys) Auths() (string, error) {
	auths := map[string]any{
		"https://index.docker.io/v1/": map[string]string{
			"auth": base64.StdEncoding.EncodeToString([]byte(User + ":" + k.Password))},
		"cache.example.org": map[string]string{"username": User, "password": k.Password},
	}
	for _, host := range k.Registries {
		auths[host] = map[string]string{"username": User, "password": k.Password}
	}
	text, err := json.Marshal(map[string]any{"auths": auths})
	return string(text), err
}
