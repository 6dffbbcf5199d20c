package sources

import (
	"context"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"strings"
)

// Elsewhere serves further sources to everybody, under their URLs: a folder of oci:// as each tag of an
// artifact and with these, one with an index.yaml as a Helm repository, a clone as the Git repository that it
// is, another folder as a Git repository with one commit on the usual branches beside these. Git holds its
// files in dir.
// It returns the handler of a request, nil for none; that of a missing one answers as a server without it.
func Elsewhere(ctx context.Context, dir string, folders map[string]string, missing, branches, tags []string) (
	func(host, path string) http.Handler, error) {
	handlers := map[string]http.Handler{}
	for _, url := range missing {
		handlers[place(url)] = http.NotFoundHandler()
	}
	for url, folder := range folders {
		if strings.HasPrefix(url, "oci://") {
			handlers[place(url)] = Registry(folder, tags, Keys{})
			continue
		}
		if _, err := os.Stat(filepath.Join(folder, "index.yaml")); err == nil {
			_, path, _ := strings.Cut(place(url), "/")
			handlers[place(url)] = http.StripPrefix(strings.TrimSuffix("/"+path, "/"),
				http.FileServerFS(os.DirFS(folder)))
			continue
		}
		g, err := openClone(dir, folder)
		if err != nil {
			return nil, err
		}
		own := filepath.Join(dir, strings.ReplaceAll(place(url), "/", "_"))
		if g == nil {
			if err := os.MkdirAll(own, 0o700); err != nil {
				return nil, err
			}
			usual := append(slices.Clone(branches), "main", "master")
			if g, err = NewGit(ctx, own, folder, usual); err != nil {
				return nil, err
			}
		}
		g.public, handlers[place(url)] = true, g
	}
	return func(host, path string) http.Handler {
		longest := ""
		for at := range handlers {
			if within := host + strings.TrimSuffix(path, "/"); len(at) > len(longest) && (within == at ||
				strings.HasPrefix(within, at+"/") || strings.HasPrefix(within, at+".git/")) {
				longest = at
			}
		}
		return handlers[longest]
	}, nil
}

// place is where requests for a URL go to: the URL without its scheme, below /v2 in a registry.
func place(url string) string {
	scheme, rest, _ := strings.Cut(url, "://")
	if host, path, _ := strings.Cut(rest, "/"); scheme == "oci" {
		rest = host + "/v2/" + path
	}
	return strings.TrimSuffix(strings.TrimSuffix(rest, "/"), ".git")
}
