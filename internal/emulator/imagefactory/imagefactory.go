// Package imagefactory emulates the part of Talos' image factory that makes schematics
// (siderolabs/image-factory, docs/api.md). A schematic's id is the hash of its canonical text, so that the
// same customization has one id everywhere. The factory accepts the name of any extension: it looks
// extensions up only when it makes an image.
package imagefactory

import (
	"bytes"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"slices"
	"strings"
	"sync"

	"go.yaml.in/yaml/v3"
)

// Schematic is a customization of Talos' images, as far as clusters of castle have one.
type Schematic struct {
	Customization Customization `yaml:"customization"`
}

// Customization is what a schematic changes.
type Customization struct {
	ExtraKernelArgs  []string         `yaml:"extraKernelArgs,omitempty"`
	SystemExtensions SystemExtensions `yaml:"systemExtensions,omitempty"`
}

// SystemExtensions are those of a schematic, by name.
type SystemExtensions struct {
	OfficialExtensions []string `yaml:"officialExtensions,omitempty"`
}

// Text returns the canonical text.
func (s Schematic) Text() ([]byte, error) { return yaml.Marshal(s) }

// ID returns the hash of the canonical text.
func ID(text []byte) string {
	sum := sha256.Sum256(text)
	return hex.EncodeToString(sum[:])
}

// published are the schematics of Talos' documentation: none, and what Longhorn needs.
var published = []string{
	"376567988ad370138ad8b2698212367b8edcb69b5fd68c80be1f2ec7d603b4ba",
	"613e1592b2da41ae5e265e8789429f22e121aab91cb4deb6bc3c0b6262961245",
}

// Server holds the schematics that somebody has posted.
type Server struct {
	Known []string // ids of schematics that were posted at another time

	mu   sync.Mutex
	made map[string][]byte // canonical texts by id
}

// Made returns the ids of the schematics that were posted, sorted.
func (s *Server) Made() (ids []string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for id := range s.made {
		ids = append(ids, id)
	}
	slices.Sort(ids)
	return ids
}

// Has reports whether the factory makes images of a schematic.
func (s *Server) Has(id string) bool {
	return slices.Contains(published, id) || slices.Contains(s.Known, id) || slices.Contains(s.Made(), id)
}

// Extends reports whether the image at a URL has an extension. What somebody else has made may have it.
func (s *Server) Extends(url, extension string) bool {
	_, path, is := strings.Cut(url, "/image/")
	id, _, _ := strings.Cut(path, "/")
	s.mu.Lock()
	defer s.mu.Unlock()
	return !is || bytes.Contains(s.made[id], []byte("- "+extension+"\n")) ||
		s.made[id] == nil && !slices.Contains(published, id)
}

// Refusal is the status line with which the factory refuses the image at a URL; nil if it has it. It does not
// judge the URLs of other servers.
func (s *Server) Refusal(url string) error {
	_, path, is := strings.Cut(url, "/image/")
	if id, _, _ := strings.Cut(path, "/"); is && !s.Has(id) {
		return errors.New("404 Not Found")
	}
	return nil
}

// Handler serves POST /schematics and GET /schematics/ID.
func (s *Server) Handler() http.Handler {
	mux := http.NewServeMux()
	mux.HandleFunc("POST /schematics", s.make)
	mux.HandleFunc("GET /schematics/{id}", func(w http.ResponseWriter, r *http.Request) {
		s.mu.Lock()
		defer s.mu.Unlock()
		text, known := s.made[r.PathValue("id")]
		if !known {
			http.Error(w, fmt.Sprintf("schematic ID %q not found", r.PathValue("id")), http.StatusNotFound)
			return
		}
		w.Header().Set("Content-Type", "application/yaml")
		w.Write(text) //nolint:errcheck // a client that has gone needs no answer
	})
	return mux
}

func (s *Server) make(w http.ResponseWriter, r *http.Request) {
	body, err := io.ReadAll(http.MaxBytesReader(w, r.Body, 1<<20))
	if err != nil {
		http.Error(w, err.Error(), http.StatusBadRequest)
		return
	}
	var schematic Schematic
	decoder := yaml.NewDecoder(bytes.NewReader(body))
	decoder.KnownFields(true)
	if err := decoder.Decode(&schematic); err != nil {
		http.Error(w, err.Error(), http.StatusBadRequest) // a plain text, as the factory's are
		return
	}
	text, err := schematic.Text()
	if err != nil {
		http.Error(w, err.Error(), http.StatusInternalServerError)
		return
	}
	id := ID(text)
	s.mu.Lock()
	if s.made == nil {
		s.made = map[string][]byte{}
	}
	s.made[id] = text
	s.mu.Unlock()
	w.Header().Set("Content-Type", "application/json")
	w.WriteHeader(http.StatusCreated)
	answer := map[string]string{"id": id, "schematic": string(text)}
	json.NewEncoder(w).Encode(answer) //nolint:errcheck // likewise
}
