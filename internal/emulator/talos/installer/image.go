package installer

import (
	"crypto/sha256"
	"errors"
	"fmt"
	"path"
	"regexp"
	"slices"
	"strings"
)

// Digest is the digest of an image.
func Digest(ref string) string { return fmt.Sprintf("sha256:%x", sha256.Sum256([]byte(ref))) }

// Pinned is the name that an image has by its digest.
func Pinned(ref string) string { return ref[:strings.LastIndex(ref, ":")] + "@" + Digest(ref) }

// registries are the hosts whose images a machine finds, beside those of Config and of its mirrors.
var registries = []string{"factory.talos.dev", "ghcr.io"}

var releaseTag = regexp.MustCompile(`^v\d+\.\d+\.\d+(-[a-z]+\.\d+)?$`)

// ErrNotFound is a registry's answer that it has no such image.
var ErrNotFound = errors.New("not found")

// Resolve finds the system of an installer image, or returns the error of a pull. hosts are registries that
// have images, beside the usual ones; without hasSchematic, the image factory knows every schematic.
func Resolve(ref string, hosts []string, hasSchematic func(id string) bool) (System, error) {
	host, rest, named := strings.Cut(ref, "/")
	at := strings.LastIndex(rest, ":")
	if !named || at < 0 || !strings.ContainsAny(host, ".:") {
		return System{}, fmt.Errorf("failed to parse image reference %q: invalid reference format", ref)
	}
	repository, tag := rest[:at], rest[at+1:]
	failed := fmt.Sprintf("failed to pull image %q: failed to resolve reference %q: ", ref, ref)
	switch name := strings.Split(repository, "/"); {
	case !slices.Contains(registries, host) && !slices.Contains(hosts, host):
		return System{}, fmt.Errorf("%sfailed to do request: Head \"https://%s/v2/%s/manifests/%s\": "+
			"dial tcp: lookup %s on 127.0.0.53:53: no such host", failed, host, repository, tag, host)
	case !releaseTag.MatchString(tag) || !strings.Contains(repository, "installer"):
		return System{}, fmt.Errorf("%s%s: %w", failed, ref, ErrNotFound)
	case strings.Contains(name[0], "installer") && len(name) == 2 && hasSchematic != nil &&
		!hasSchematic(name[1]):
		return System{}, fmt.Errorf("%s%s: %w", failed, ref, ErrNotFound)
	case strings.Contains(name[0], "installer") && len(name) == 2:
		return System{Release: tag, Schematic: path.Base(repository)}, nil
	default:
		return System{Release: tag}, nil
	}
}
