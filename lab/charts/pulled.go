package charts

import (
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"os"
	"path"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"time"
)

// Pulled is the archive of a chart, as `helm pull` writes it.
type Pulled struct {
	Name, Version string
	archive       []byte
}

// archiveName is that of a chart's archive: its name and version.
var archiveName = regexp.MustCompile(`^(.+?)-(v?\d+\.\d+\.\d+\S*)\.tgz$`)

// ReadFolder reads the archives of charts in a folder.
func ReadFolder(folder string) ([]Pulled, error) {
	entries, err := os.ReadDir(folder)
	if err != nil {
		return nil, err
	}
	var all []Pulled
	for _, e := range entries {
		found := archiveName.FindStringSubmatch(e.Name())
		if found == nil {
			continue
		}
		archive, err := os.ReadFile(filepath.Join(folder, e.Name()))
		if err != nil {
			return nil, err
		}
		all = append(all, Pulled{found[1], found[2], archive})
	}
	if len(all) == 0 {
		return nil, fmt.Errorf("%s has no charts: no file NAME-VERSION.tgz, as `helm pull` writes it", folder)
	}
	return all, nil
}

// exact is a version, and no range of versions.
var exact = regexp.MustCompile(`^v?\d+\.\d+\.\d+[\w.+-]*$`)

// Has reports whether a chart is there, in one version. Of a range, it is not known which ones it has.
func Has(all []Pulled, name, version string) bool {
	return slices.ContainsFunc(all, func(p Pulled) bool {
		return p.Name == name && (p.Version == version || !exact.MatchString(version))
	})
}

func named(all []Pulled, name string) []Pulled {
	return slices.DeleteFunc(slices.Clone(all), func(p Pulled) bool { return p.Name != name })
}

// at is the place of a URL, and what is there: one chart in a registry, or a repository of all charts.
func (o Options) at(url string) (place, []Pulled) {
	scheme, rest, _ := strings.Cut(url, "://")
	host, folder, _ := strings.Cut(rest, "/")
	folder = "/" + folder
	if one := named(o.Pulled, path.Base(folder)); scheme == "oci" && len(one) > 0 {
		return place{host, path.Dir(folder)}, one
	}
	return place{host, folder}, o.Pulled
}

// publish serves charts, as a Helm repository and in a registry.
func (r *Repositories) publish(at place, all []Pulled) {
	served := r.files[at.host]
	if served == nil {
		served = map[string][]byte{}
		r.files[at.host] = served
	}
	entries := map[string][]map[string]any{}
	for _, c := range all {
		file := c.Name + "-" + c.Version + ".tgz"
		served[path.Join(at.folder, file)] = c.archive
		addArtifact(served, path.Join("/v2", at.folder, c.Name), c)
		digest := sha256.Sum256(c.archive)
		entries[c.Name] = append(entries[c.Name], map[string]any{"apiVersion": "v2", "name": c.Name,
			"version": c.Version, "urls": []string{file}, "digest": hex.EncodeToString(digest[:])})
	}
	index, err := json.Marshal(map[string]any{"apiVersion": "v1",
		"generated": built().Format(time.RFC3339), "entries": entries})
	if err != nil {
		panic(err) // texts
	}
	served[path.Join(at.folder, "index.yaml")] = index
	if slices.Contains(Hosts(), at.host) {
		served["/v2/"] = []byte("{}") // another registry may have more than charts, with a password
	}
}
