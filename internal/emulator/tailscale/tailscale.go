// Package tailscale emulates the control plane of a tailnet in memory: the part of Tailscale's API that
// castle and the Terraform provider use, and the registration of devices with an auth key.
//
// It answers as the real one does where a client can tell the difference. The value of a key is in the answer
// to its creation alone. A key for one device is gone once a device has used it. A second device of one host
// name is called NAME-1, as long as the first one exists, whether that is connected or not. Deliberately
// missing are users, policies beside the tags of the OAuth client, routes and DNS.
package tailscale

import (
	"crypto/rand"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"sync"
	"time"
)

// Config sets the OAuth client that a Server knows.
type Config struct {
	ClientID, ClientSecret string
	Tags                   []string // that the client may give to devices
	Domain                 string   // of the tailnet: "lab.ts.net"
	// Now is the clock; nil is time.Now.
	Now func() time.Time
}

// Server is a tailnet.
type Server struct {
	config Config

	mu      sync.Mutex
	tokens  map[string]bool
	keys    map[string]*key
	devices map[string]*Device
	made    int
}

// key is an auth key.
type key struct {
	id, secret, description            string
	reusable, ephemeral, preauthorized bool
	tags                               []string
	created, expires                   time.Time
}

// Device is a machine of the tailnet.
type Device struct {
	ID         string    `json:"nodeId"`
	Name       string    `json:"name"` // NAME.DOMAIN
	Hostname   string    `json:"hostname"`
	Addresses  []string  `json:"addresses"`
	Authorized bool      `json:"authorized"`
	Connected  bool      `json:"connectedToControl"`
	Ephemeral  bool      `json:"isEphemeral"`
	Tags       []string  `json:"tags"`
	Created    time.Time `json:"created"`
}

// New makes an empty tailnet.
func New(c Config) *Server {
	if c.Now == nil {
		c.Now = time.Now
	}
	return &Server{config: c, tokens: map[string]bool{}, keys: map[string]*key{},
		devices: map[string]*Device{}}
}

// ErrKey is the answer to a key that does not exist, has been used, or has expired.
var ErrKey = errors.New("invalid key: unable to validate API key")

// Register lets a device join with an auth key, and uses up one for a single device.
func (s *Server) Register(authKey, hostname string) (Device, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	k := s.bySecret(authKey)
	if k == nil || s.config.Now().After(k.expires) {
		return Device{}, ErrKey
	}
	s.made++
	d := &Device{ID: fmt.Sprintf("n%dCNTRL", s.made), Hostname: hostname,
		Name: s.freeName(hostname) + "." + s.config.Domain, Authorized: k.preauthorized, Tags: k.tags,
		Ephemeral: k.ephemeral, Connected: true, Addresses: []string{fmt.Sprintf("100.64.0.%d", s.made)},
		Created: s.config.Now().UTC().Truncate(time.Second)}
	s.devices[d.ID] = d
	if !k.reusable {
		delete(s.keys, k.id)
	}
	return *d, nil
}

func (s *Server) bySecret(secret string) *key {
	for _, k := range s.keys {
		if k.secret == secret {
			return k
		}
	}
	return nil
}

// freeName is the name that a device of a host name gets.
func (s *Server) freeName(hostname string) string {
	taken := map[string]bool{}
	for _, d := range s.devices {
		name, _, _ := strings.Cut(d.Name, ".")
		taken[name] = true
	}
	name := hostname
	for i := 1; taken[name]; i++ {
		name = fmt.Sprintf("%s-%d", hostname, i)
	}
	return name
}

// Devices lists the devices, by name.
func (s *Server) Devices() []Device {
	s.mu.Lock()
	defer s.mu.Unlock()
	var all []Device
	for _, d := range s.devices {
		all = append(all, *d)
	}
	slices.SortFunc(all, func(a, b Device) int { return strings.Compare(a.Name, b.Name) })
	return all
}

// Keys lists the ids of the auth keys that a device may still use.
func (s *Server) Keys() []string {
	s.mu.Lock()
	defer s.mu.Unlock()
	return slices.Sorted(maps.Keys(s.keys))
}

// Disconnect is the end of the machine of a device, which stays.
func (s *Server) Disconnect(hostname string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, d := range s.devices {
		if d.Hostname == hostname {
			d.Connected = false
		}
	}
}

// Delete removes a device, as its owner does by hand.
func (s *Server) Delete(id string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	delete(s.devices, id)
}

func random() string { return rand.Text()[:17] }
