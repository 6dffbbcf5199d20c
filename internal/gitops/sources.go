package gitops

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"maps"
	"path"
	"path/filepath"
	"regexp"
	"slices"
	"strings"

	"sigs.k8s.io/kustomize/kyaml/yaml"
)

// sources reads the files of a build before kustomize does: what is wrong is found
// with its line, nothing is fetched from elsewhere, and each object's line is known.
type sources struct {
	files     *files
	documents map[string][]document // by file
	folders   map[string]bool       // that have been looked at
	problems  Problems
}

// document is one of the objects that a file holds.
type document struct {
	apiVersion, kind, namespace, name string
	line                              int
}

// references are the fields of a kustomization.yaml that name files or folders: a
// list of them, or objects with fields that do.
func references() map[string][]string {
	generator := []string{"files", "envs", "env"}
	return map[string][]string{
		"resources": nil, "bases": nil, "components": nil, "crds": nil, "configurations": nil, "generators": nil, "transformers": nil, "validators": nil,
		"patchesStrategicMerge": nil, "patches": {"path"}, "patchesJson6902": {"path"}, "replacements": {"path"}, "openapi": {"path"},
		"configMapGenerator": generator, "secretGenerator": generator,
	}
}

// folder looks at a folder with a kustomization.yaml and at all that this names.
func (s *sources) folder(folder string) {
	file := s.files.kustomizationFile(folder)
	if file == "" || s.folders[folder] {
		return
	}
	s.folders[folder] = true
	for _, d := range s.parse(file) {
		if field(d.Content[0], "helmCharts") != nil {
			s.problems.add(Place{file, field(d.Content[0], "helmCharts").Line}, errors.New("helmCharts: Flux does not render charts here; make it a HelmRelease"))
		}
		for name, inside := range references() {
			manifests := name == "resources" || name == "bases" || name == "components"
			for _, item := range items(field(d.Content[0], name)) {
				if inside == nil {
					s.named(file, item, manifests)
				}
				for _, of := range inside {
					for _, n := range items(field(item, of)) {
						s.named(file, n, false)
					}
				}
			}
		}
	}
}

// named looks at what a kustomization.yaml names, unless it is written out there.
func (s *sources) named(file string, n *yaml.Node, manifests bool) {
	if n.Kind != yaml.ScalarNode || strings.Contains(n.Value, "\n") {
		return
	}
	_, name, keyed := strings.Cut(n.Value, "=") // KEY=FILE, of a generator
	if !keyed || manifests {
		name = n.Value
	}
	s.entry(Place{file, n.Line}, path.Dir(file), name, manifests)
}

// remote is what kustomize would fetch.
var remote = regexp.MustCompile(`://|^[\w.-]+@|^git::|^(?i:gh:|(www\.)?github\.com[/:])`)

// entry looks at a file or folder that a kustomization.yaml names.
func (s *sources) entry(at Place, folder, name string, manifests bool) {
	if remote.MatchString(name) {
		s.problems.add(at, fmt.Errorf("%s is not in this repository, so castle cannot read it; copy it in, or make it a source of Flux's with a Kustomization of its own", name))
		return
	}
	target := path.Join(folder, name)
	if path.IsAbs(name) || !filepath.IsLocal(filepath.FromSlash(target)) {
		s.problems.add(at, fmt.Errorf("%s is outside of the repository", name))
		return
	}
	if s.files.isFolder(target) {
		if s.files.kustomizationFile(target) == "" {
			s.problems.add(at, fmt.Errorf("%s has no kustomization.yaml", name))
		}
		s.folder(target)
		return
	}
	if _, err := s.files.read(target); err != nil {
		if missing(err) {
			err = fmt.Errorf("%s does not exist", name)
		}
		s.problems.add(at, err)
		return
	}
	if manifests {
		s.manifest(target)
	}
}

// manifest reads a file of objects.
func (s *sources) manifest(file string) {
	if _, done := s.documents[file]; done {
		return
	}
	s.documents[file] = nil
	for _, d := range s.parse(file) {
		if len(d.Content) != 1 || d.Content[0].Tag == "!!null" {
			continue // nothing between two ---
		}
		body := d.Content[0]
		metadata := field(body, "metadata")
		one := document{scalar(body, "apiVersion"), scalar(body, "kind"), scalar(metadata, "namespace"), scalar(metadata, "name"), body.Line}
		switch {
		case one.apiVersion == "" || one.kind == "":
			s.problems.add(Place{file, body.Line}, errors.New("no object of Kubernetes: it has no apiVersion or no kind"))
		case one.name == "" && !strings.HasSuffix(one.kind, "List"):
			s.problems.add(Place{file, body.Line}, fmt.Errorf("%s without metadata.name", one.kind))
		}
		s.documents[file] = append(s.documents[file], one)
	}
}

// parse reads the documents of a file.
func (s *sources) parse(file string) []*yaml.Node {
	data, err := s.files.read(file)
	if err != nil {
		s.problems.add(Place{File: file}, err)
		return nil
	}
	var all []*yaml.Node
	for decoder := yaml.NewDecoder(bytes.NewReader(data)); ; {
		n := &yaml.Node{}
		if err := decoder.Decode(n); errors.Is(err, io.EOF) {
			return all
		} else if err != nil {
			s.problems = append(s.problems, yamlProblem(file, err))
			return nil
		}
		all = append(all, n)
	}
}

// line is where an object begins; 0 if the file has none like it. Its name may have
// got a prefix and a suffix.
func (s *sources) line(file, kind, name string) int {
	best := document{}
	for _, d := range s.documents[file] {
		if d.kind == kind && strings.Contains(name, d.name) && len(d.name) > len(best.name) {
			best = d
		}
	}
	return best.line
}

// twice finds an object that two files, or one, declare.
func (s *sources) twice() (Problem, bool) {
	first := map[document]Place{}
	for _, file := range slices.Sorted(maps.Keys(s.documents)) {
		for _, d := range s.documents[file] {
			at := Place{file, d.line}
			d.line = 0
			if other, is := first[d]; is {
				return Problem{at, fmt.Sprintf("%s %s is declared twice; the other one is at %s", d.kind, d.name, other)}, true
			}
			first[d] = at
		}
	}
	return Problem{}, false
}
