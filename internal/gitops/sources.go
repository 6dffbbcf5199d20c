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
	"strconv"
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

// references are the fields of a kustomization.yaml that name files or folders.
func references() []string {
	return []string{
		"resources", "bases", "components", "crds", "configurations", "generators", "transformers", "validators",
		"patchesStrategicMerge", "path", "files", "envs", "env",
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
		s.field(file, "", d)
	}
}

// field walks a kustomization.yaml; of is the name of the field that holds n.
func (s *sources) field(file, of string, n *yaml.Node) {
	switch n.Kind {
	case yaml.DocumentNode, yaml.SequenceNode:
		for _, inner := range n.Content {
			s.field(file, of, inner)
		}
	case yaml.MappingNode:
		for i := 0; i+1 < len(n.Content); i += 2 {
			if name := n.Content[i].Value; name != "helmCharts" {
				s.field(file, name, n.Content[i+1])
			} else {
				s.problems.add(Place{file, n.Content[i].Line}, errors.New("helmCharts: Flux does not render charts here; make it a HelmRelease"))
			}
		}
	case yaml.ScalarNode:
		if slices.Contains(references(), of) && !strings.Contains(n.Value, "\n") {
			value := n.Value
			if of == "files" { // KEY=FILE
				value = value[strings.Index(value, "=")+1:]
			}
			s.entry(Place{file, n.Line}, path.Dir(file), value, of == "resources" || of == "bases" || of == "components")
		}
	}
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

func field(n *yaml.Node, name string) *yaml.Node {
	if n == nil || n.Kind != yaml.MappingNode {
		return nil
	}
	for i := 0; i+1 < len(n.Content); i += 2 {
		if n.Content[i].Value == name {
			return n.Content[i+1]
		}
	}
	return nil
}

func scalar(n *yaml.Node, name string) string {
	if v := field(n, name); v != nil {
		return v.Value
	}
	return ""
}

var yamlLine = regexp.MustCompile(`^(?:error converting YAML to JSON: )?yaml: (?:line (\d+): )?`)

// yamlProblem takes the line out of what the YAML parser says.
func yamlProblem(file string, err error) Problem {
	text := err.Error()
	p := Problem{Place{File: file}, "no YAML: " + text[len(yamlLine.FindString(text)):]}
	if m := yamlLine.FindStringSubmatch(text); len(m) > 1 {
		p.Line, _ = strconv.Atoi(m[1])
	}
	return p
}
