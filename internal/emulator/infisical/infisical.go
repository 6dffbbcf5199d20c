// Package infisical emulates an Infisical server in memory: the part of its HTTP
// API that castle and the Terraform provider use.
//
// It answers as the real one does where a client can tell the difference. A secret is created once: a second
// POST is 400, never an overwrite. Folders must exist, a missing object is 404, wrong credentials are 401,
// and a busy server is 429. The error texts differ between versions of the real server; clients match on the
// status and on /already exist/.
package infisical

import (
	"cmp"
	"crypto/rand"
	"fmt"
	"path"
	"slices"
	"strings"
	"sync"
	"time"
)

// Config sets the credentials that a Server accepts, and its folders.
type Config struct {
	ClientID     string // of the machine identity that may log in
	ClientSecret string
	// Made is when the client secret was made, and TTL how long it is valid; 0: for ever. Reads says that the
	// identity may read identities of its organization.
	Made    time.Time
	TTL     time.Duration
	Reads   bool
	Folders []Folder // that exist from the start; SetSecret creates others
}

// Folder is a path in an environment of a project.
type Folder struct {
	Workspace   string // the project's id
	Environment string // the environment's slug: "prod"
	Path        string // "/" or "/castle/blue"
}

func (f Folder) clean() Folder {
	f.Path = path.Clean("/" + f.Path)
	return f
}

// Secret is one secret on the server.
type Secret struct {
	Folder                  Folder
	ID, Key, Value, Comment string
	Version                 int
	Updated                 time.Time
	ReminderNote            string
	ReminderDays            int64
	Metadata                []Metadata
	TagIDs                  []string
}

// Metadata is one of a secret's key-value pairs.
type Metadata struct {
	Key   string `json:"key"`
	Value string `json:"value"`
}

// Request is one call that the server answered. It never holds a secret's value.
type Request struct {
	Method, Path string
	Status       int
}

// Server is the emulator. Its methods are safe for concurrent use.
type Server struct {
	config Config

	mu        sync.Mutex // guards all that follows
	folders   folders
	forbidden map[string]bool // workspaces
	tokens    map[string]bool
	requests  []Request
	throttled int
	retry     time.Duration
}

// New returns a server with config's folders and no secrets.
func New(config Config) *Server {
	s := &Server{
		config: config, tokens: map[string]bool{}, forbidden: map[string]bool{},
		folders: folders{},
	}
	for _, f := range config.Folders {
		s.folders.add(f)
	}
	return s
}

func (s *Server) locked() (unlock func()) {
	s.mu.Lock()
	return s.mu.Unlock
}

// folders holds the secrets of each folder, by key.
type folders map[Folder]map[string]*Secret

// add creates the folder and its parents.
func (all folders) add(f Folder) Folder {
	f = f.clean()
	for at := f; ; at.Path = path.Dir(at.Path) {
		if all[at] == nil {
			all[at] = map[string]*Secret{}
		}
		if at.Path == "/" {
			return f
		}
	}
}

// SetSecret stores a secret as a person does in the web interface, and creates its folder.
func (s *Server) SetSecret(folder Folder, key, value string) {
	defer s.locked()()
	folder = s.folders.add(folder)
	secret := cmp.Or(s.folders[folder][key], &Secret{Folder: folder, Key: key})
	secret.Value = value
	s.save(secret)
}

// save stores a new or changed secret.
func (s *Server) save(secret *Secret) {
	secret.ID = cmp.Or(secret.ID, uuid())
	secret.Version++
	secret.Updated = time.Now().UTC()
	s.folders[secret.Folder][secret.Key] = secret
}

// Remove deletes a secret without an API call.
func (s *Server) Remove(folder Folder, key string) {
	defer s.locked()()
	delete(s.folders[folder.clean()], key)
}

// Secrets returns a copy of all secrets, ordered by folder and key.
func (s *Server) Secrets() []Secret {
	defer s.locked()()
	var all []Secret
	for _, folder := range s.folders {
		for _, secret := range folder {
			all = append(all, *secret)
		}
	}
	slices.SortFunc(all, func(a, b Secret) int {
		return cmp.Or(strings.Compare(a.Folder.Workspace, b.Folder.Workspace),
			strings.Compare(a.Folder.Environment, b.Folder.Environment),
			strings.Compare(a.Folder.Path, b.Folder.Path), strings.Compare(a.Key, b.Key))
	})
	return all
}

// Forbid removes the identity's role in a project.
func (s *Server) Forbid(workspace string) {
	defer s.locked()()
	s.forbidden[workspace] = true
}

// Requests returns the requests so far, in order.
func (s *Server) Requests() []Request {
	defer s.locked()()
	return slices.Clone(s.requests)
}

// Throttle fails the next n requests with 429 and a Retry-After of the given whole seconds.
func (s *Server) Throttle(n int, retryAfter time.Duration) {
	defer s.locked()()
	s.throttled, s.retry = n, retryAfter
}

func uuid() string {
	b := make([]byte, 16)
	rand.Read(b) //nolint:errcheck // never fails
	b[6], b[8] = b[6]&0x0f|0x40, b[8]&0x3f|0x80
	return fmt.Sprintf("%x-%x-%x-%x-%x", b[:4], b[4:6], b[6:8], b[8:10], b[10:])
}
