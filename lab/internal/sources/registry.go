package sources

import (
	"archive/tar"
	"bytes"
	"compress/gzip"
	"crypto/subtle"
	"fmt"
	"io"
	"io/fs"
	"log"
	"net/http"
	"net/http/httptest"
	"os"
	"regexp"
	"slices"
	"strings"
	"sync"

	"github.com/google/go-containerregistry/pkg/name"
	"github.com/google/go-containerregistry/pkg/registry"
	v1 "github.com/google/go-containerregistry/pkg/v1"
	"github.com/google/go-containerregistry/pkg/v1/empty"
	"github.com/google/go-containerregistry/pkg/v1/mutate"
	"github.com/google/go-containerregistry/pkg/v1/remote"
	"github.com/google/go-containerregistry/pkg/v1/static"
	"github.com/google/go-containerregistry/pkg/v1/types"
)

// The media types of Flux's artifacts: https://fluxcd.io/flux/cheatsheets/oci-artifacts.
const (
	configType  types.MediaType = "application/vnd.cncf.flux.config.v1+json"
	contentType types.MediaType = "application/vnd.cncf.flux.content.v1.tar+gzip"
)

// registryServer serves the folder under each name that a client asks for.
type registryServer struct {
	stored   http.Handler
	folder   string
	tags     []string
	password string

	mu     sync.Mutex
	pushed map[string]bool
}

// Registry is a registry with the folder as Flux's artifact, which has the tags and latest. A range is the
// first version that it names. Without a password everybody may read, and it has each tag that they ask for.
func Registry(folder string, tags []string, k Keys) http.Handler {
	return &registryServer{stored: registry.New(registry.Logger(log.New(io.Discard, "", 0))), folder: folder,
		tags: append(versions(tags), "latest"), password: k.Password, pushed: map[string]bool{}}
}

// number is a version in a range, such as >=1.2 <2.
var number = regexp.MustCompile(`\d+(\.\d+)*`)

func versions(tags []string) (all []string) {
	for _, tag := range tags {
		if strings.ContainsAny(tag, "<>=~^* ") || strings.HasSuffix(tag, ".x") {
			parts := strings.Split(number.FindString(tag)+".0.0", ".")
			tag = strings.Join(parts[:3], ".")
		}
		all = append(all, tag)
	}
	return all
}

// named is the repository in the path of a request.
var named = regexp.MustCompile(`^/v2/(.+)/(manifests|blobs|tags)/([^:]*)`)

func (s *registryServer) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	user, password, _ := r.BasicAuth()
	if s.password != "" && (user != User ||
		subtle.ConstantTimeCompare([]byte(password), []byte(s.password)) == 0) {
		w.Header().Set("WWW-Authenticate", `Basic realm="Registry"`)
		w.Header().Set("Content-Type", "application/json")
		w.WriteHeader(http.StatusUnauthorized)
		fmt.Fprint(w, `{"errors":[{"code":"UNAUTHORIZED","message":"authentication required"}]}`)
		return
	}
	if found := named.FindStringSubmatch(r.URL.Path); found != nil {
		tags := s.tags
		if s.password == "" && found[2] == "manifests" && r.URL.Path == found[0] { // no digest
			tags = append(slices.Clone(tags), found[3])
		}
		if err := s.push(found[1], tags); err != nil {
			http.Error(w, err.Error(), http.StatusInternalServerError)
			return
		}
	}
	s.stored.ServeHTTP(w, r)
}

// push stores the artifact under a name and tags, once.
func (s *registryServer) push(repository string, tags []string) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, tag := range tags {
		if at := repository + ":" + tag; !s.pushed[at] {
			if err := s.write(at); err != nil {
				return err
			}
			s.pushed[at] = true
		}
	}
	return nil
}

func (s *registryServer) write(to string) error {
	image, err := artifact(s.folder)
	if err != nil {
		return err
	}
	server := httptest.NewServer(s.stored)
	defer server.Close()
	ref, err := name.NewTag(strings.TrimPrefix(server.URL, "http://")+"/"+to, name.Insecure)
	if err != nil {
		return err
	}
	return remote.Write(ref, image)
}

// Digest is the digest of a folder's artifact, which the registry of that folder serves.
func Digest(folder string) (string, error) {
	image, err := artifact(folder)
	if err != nil {
		return "", err
	}
	digest, err := image.Digest()
	return digest.String(), err
}

// artifact is the folder as `flux push artifact` packs it.
func artifact(folder string) (v1.Image, error) {
	var packed bytes.Buffer
	zipped := gzip.NewWriter(&packed)
	archive := tar.NewWriter(zipped)
	if folder != "" {
		root, err := os.OpenRoot(folder)
		if err != nil {
			return nil, err
		}
		defer root.Close() //nolint:errcheck // it was only read
		err = fs.WalkDir(root.FS(), ".", func(path string, entry fs.DirEntry, err error) error {
			if err != nil || !entry.Type().IsRegular() {
				return err
			}
			content, err := fs.ReadFile(root.FS(), path)
			if err == nil {
				err = archive.WriteHeader(&tar.Header{Name: path, Mode: 0o644, Size: int64(len(content))})
			}
			if err == nil {
				_, err = archive.Write(content)
			}
			return err
		})
		if err != nil {
			return nil, err
		}
	}
	if err := archive.Close(); err != nil {
		return nil, err
	}
	if err := zipped.Close(); err != nil {
		return nil, err
	}
	base := mutate.ConfigMediaType(mutate.MediaType(empty.Image, types.OCIManifestSchema1), configType)
	return mutate.AppendLayers(base, static.NewLayer(packed.Bytes(), contentType))
}
