// Package infisical is a stand-in for an Infisical server: the part of its HTTP
// API that the Terraform provider uses, kept in memory.
//
// It answers as the real one does where a client can tell the difference: a
// secret is created once (a second POST is 400, never an overwrite), folders
// must exist, what is missing is 404, wrong credentials are 401, and a busy
// server is 429. Everything else is left out. The error texts differ between
// versions of the real server; callers match on status and /already exist/.
package infisical

import (
	"cmp"
	"crypto/rand"
	"encoding/hex"
	"fmt"
	"net/http"
	"path"
	"slices"
	"strings"
	"sync"
	"time"
)

// Config is what a Server accepts and how it behaves.
type Config struct {
	ClientID     string // of the machine identity that may log in
	ClientSecret string
	Folders      []Folder         // that exist from the start; Put makes others
	Now          func() time.Time // default time.Now; a secret's updatedAt
}

// Folder is where secrets live: a path in an environment of a project.
type Folder struct {
	Workspace   string // the project's id
	Environment string // the environment's slug: "prod"
	Path        string // "/" or "/castle/blue"
}

func (f Folder) clean() Folder {
	f.Path = path.Clean("/" + f.Path)
	return f
}

// Secret is one secret as the server holds it.
type Secret struct {
	Folder
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

	mu        sync.Mutex
	folders   map[Folder]map[string]*Secret
	tokens    map[string]bool
	requests  []Request
	forbidden map[string]bool // workspaces
	throttled int
	retry     time.Duration
}

// New returns a server that holds config's folders and no secrets.
func New(config Config) *Server {
	if config.Now == nil {
		config.Now = time.Now
	}
	s := &Server{config: config, folders: map[Folder]map[string]*Secret{}, tokens: map[string]bool{}, forbidden: map[string]bool{}}
	for _, f := range config.Folders {
		s.addFolder(f)
	}
	return s
}

// addFolder makes the folder and those above it. The caller holds mu, or nobody else knows s yet.
func (s *Server) addFolder(f Folder) Folder {
	f = f.clean()
	for at := f; ; at.Path = path.Dir(at.Path) {
		if s.folders[at] == nil {
			s.folders[at] = map[string]*Secret{}
		}
		if at.Path == "/" {
			return f
		}
	}
}

// Put stores a secret as if a person had done it in the web interface, and
// makes its folder.
func (s *Server) Put(folder Folder, key, value string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	folder = s.addFolder(folder)
	if known := s.folders[folder][key]; known != nil {
		known.Value = value
		s.touch(known)
		return
	}
	s.insert(&Secret{Folder: folder, Key: key, Value: value})
}

// Remove deletes a secret behind Terraform's back.
func (s *Server) Remove(folder Folder, key string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	delete(s.folders[folder.clean()], key)
}

// Secrets returns a copy of all secrets, ordered by folder and key.
func (s *Server) Secrets() []Secret {
	s.mu.Lock()
	defer s.mu.Unlock()
	var all []Secret
	for _, folder := range s.folders {
		for _, secret := range folder {
			all = append(all, *secret)
		}
	}
	slices.SortFunc(all, func(a, b Secret) int {
		return cmp.Or(strings.Compare(a.Workspace, b.Workspace), strings.Compare(a.Environment, b.Environment),
			strings.Compare(a.Path, b.Path), strings.Compare(a.Key, b.Key))
	})
	return all
}

// Forbid takes the identity's role in a project away.
func (s *Server) Forbid(workspace string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.forbidden[workspace] = true
}

// Requests returns what was asked so far, in order.
func (s *Server) Requests() []Request {
	s.mu.Lock()
	defer s.mu.Unlock()
	return slices.Clone(s.requests)
}

// Throttle lets the next n requests fail with 429 and a Retry-After of the
// given whole seconds.
func (s *Server) Throttle(n int, retryAfter time.Duration) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.throttled, s.retry = n, retryAfter
}

// Handler serves the API, at the root of a host.
func (s *Server) Handler() http.Handler {
	mux := http.NewServeMux()
	mux.HandleFunc("POST /api/v1/auth/universal-auth/login", s.answer(s.login))
	mux.HandleFunc("GET /api/v3/secrets/raw", s.answer(s.authorised(s.list)))
	mux.HandleFunc("GET /api/v3/secrets/raw/id/{id}", s.answer(s.authorised(s.getByID)))
	mux.HandleFunc("GET /api/v3/secrets/raw/{key}", s.answer(s.authorised(s.get)))
	mux.HandleFunc("POST /api/v3/secrets/raw/{key}", s.answer(s.authorised(s.create)))
	mux.HandleFunc("PATCH /api/v3/secrets/raw/{key}", s.answer(s.authorised(s.update)))
	mux.HandleFunc("DELETE /api/v3/secrets/raw/{key}", s.answer(s.authorised(s.remove)))
	mux.HandleFunc("/", s.answer(func(r *http.Request) (any, error) {
		return nil, notFound("Route %s:%s not found", r.Method, r.URL.Path)
	}))
	return mux
}

func (s *Server) insert(secret *Secret) {
	secret.ID = uuid()
	s.touch(secret)
	s.folders[secret.Folder][secret.Key] = secret
}

func (s *Server) touch(secret *Secret) {
	secret.Version++
	secret.Updated = s.config.Now().UTC()
}

func uuid() string {
	var b [16]byte
	rand.Read(b[:]) //nolint:errcheck // never fails
	b[6], b[8] = b[6]&0x0f|0x40, b[8]&0x3f|0x80
	h := hex.EncodeToString(b[:])
	return fmt.Sprintf("%s-%s-%s-%s-%s", h[:8], h[8:12], h[12:16], h[16:20], h[20:])
}
