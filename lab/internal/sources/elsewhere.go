package sources

import (
	"context"
	"net/http"
	"os"
	"path/filepath"
	"strings"
)

// Elsewhere serves further sources under their URLs: a folder with an index.yaml as a Helm repository,
// another one as a Git repository. Git holds its files in dir. It returns the handler of a request, nil for
// none; that of a missing one answers as a server without the repository does.
func Elsewhere(ctx context.Context, dir string, folders map[string]string, missing, branches []string) (
	func(host, path string) http.Handler, error) {
	handlers := map[string]http.Handler{}
	for _, url := range missing {
		handlers[place(url)] = http.NotFoundHandler()
	}
	for url, folder := range folders {
		if _, err := os.Stat(filepath.Join(folder, "index.yaml")); err == nil {
			_, path, _ := strings.Cut(place(url), "/")
			handlers[place(url)] = http.StripPrefix(strings.TrimSuffix("/"+path, "/"),
				http.FileServerFS(os.DirFS(folder)))
			continue
		}
		own := filepath.Join(dir, strings.ReplaceAll(place(url), "/", "_"))
		if err := os.MkdirAll(own, 0o700); err != nil {
			return nil, err
		}
		g, err := NewGit(ctx, own, folder, branches)
		if err != nil {
			return nil, err
		}
		handlers[place(url)] = g
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

// place is a URL without its scheme.
func place(url string) string {
	_, rest, _ := strings.Cut(url, "://")
	return strings.TrimSuffix(strings.TrimSuffix(rest, "/"), ".git")
}
