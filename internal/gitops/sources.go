package gitops

//lint:file-ignore SA1019 repositories still use the patch fields that kustomize has deprecated

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"maps"
	"path"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"

	"sigs.k8s.io/kustomize/api/types"
	"sigs.k8s.io/kustomize/kyaml/yaml"
	k8syaml "sigs.k8s.io/yaml"
)

// sources reads the files of a build before kustomize does: problems get a line,
// nothing is fetched from elsewhere, and each object's line is known.
type sources struct {
	files     *files
	documents map[string][]document // by file
	folders   map[string]bool       // that have been read
	problems  Problems
}

// document is one of the objects that a file holds.
type document struct {
	APIVersion string `yaml:"apiVersion"`
	Kind       string `yaml:"kind"`
	Metadata   struct {
		Namespace string `yaml:"namespace"`
		Name      string `yaml:"name"`
	} `yaml:"metadata"`

	line int
}

// folder reads a folder's kustomization.yaml and all files and folders that it names.
func (s *sources) folder(folder string) {
	file := s.files.kustomizationFile(folder)
	if file == "" || s.folders[folder] {
		return
	}
	s.folders[folder] = true
	documents := s.parse(file)
	data, err := s.files.read(file)
	k := types.Kustomization{}
	if err != nil || len(documents) == 0 || k8syaml.Unmarshal(data, &k) != nil {
		return // kustomize reports fields of another type
	}
	k.FixKustomization()
	at := func(text string) Place { return Place{file, lineOf(documents[0], text)} }
	if len(k.HelmCharts) > 0 {
		s.problems.add(at("helmCharts"),
			errors.New("helmCharts: Flux does not render charts here; make it a HelmRelease"))
	}
	for _, name := range slices.Concat(k.Resources, k.Components) {
		s.entry(at(name), folder, name, true)
	}
	names := slices.Concat(k.Crds, k.Configurations, k.Generators, k.Transformers, k.Validators,
		[]string{k.OpenAPI["path"]})
	for _, p := range k.PatchesStrategicMerge {
		names = append(names, string(p))
	}
	for _, p := range slices.Concat(k.Patches, k.PatchesJson6902) {
		names = append(names, p.Path)
	}
	for _, r := range k.Replacements {
		names = append(names, r.Path)
	}
	for _, g := range k.ConfigMapGenerator {
		names = slices.Concat(names, g.FileSources, g.EnvSources)
	}
	for _, g := range k.SecretGenerator {
		names = slices.Concat(names, g.FileSources, g.EnvSources)
	}
	for _, text := range names {
		if text == "" || strings.Contains(text, "\n") {
			continue // it is written out there
		}
		name := text
		if _, after, keyed := strings.Cut(text, "="); keyed { // KEY=FILE, of a generator
			name = after
		}
		s.entry(at(text), folder, name, false)
	}
}

// remote matches resources that kustomize would fetch.
var remote = regexp.MustCompile(`://|^[\w.-]+@|^git::|^(?i:gh:|(www\.)?github\.com[/:])`)

// entry checks a file or folder that a kustomization.yaml names.
func (s *sources) entry(at Place, folder, name string, manifests bool) {
	target := path.Join(folder, name)
	switch {
	case remote.MatchString(name):
		s.problems.add(at, fmt.Errorf("%s is not in this repository, so castle cannot read it; copy it in, "+
			"or make it a source of Flux's with a Kustomization of its own", name))
	case path.IsAbs(name) || !filepath.IsLocal(filepath.FromSlash(target)):
		s.problems.add(at, fmt.Errorf("%s is outside of the repository", name))
	case s.files.isFolder(target):
		if s.files.kustomizationFile(target) == "" {
			s.problems.add(at, fmt.Errorf("%s has no kustomization.yaml", name))
		}
		s.folder(target)
	default:
		_, err := s.files.read(target)
		switch {
		case errors.Is(err, fs.ErrNotExist):
			s.problems.add(at, fmt.Errorf("%s does not exist", name))
		case err != nil:
			s.problems.add(at, err)
		case manifests:
			s.manifest(target)
		}
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
		one := document{line: d.Content[0].Line}
		_ = d.Decode(&one) // a field of another type is missing; kustomize says more
		switch {
		case one.APIVersion == "" || one.Kind == "":
			s.problems.add(Place{file, one.line},
				errors.New("no object of Kubernetes: it has no apiVersion or no kind"))
		case one.Metadata.Name == "" && !strings.HasSuffix(one.Kind, "List"):
			s.problems.add(Place{file, one.line}, fmt.Errorf("%s without metadata.name", one.Kind))
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

// lineOf is the line of the first scalar with a text; 0 if there is none.
func lineOf(n *yaml.Node, text string) int {
	if n.Kind == yaml.ScalarNode && n.Value == text {
		return n.Line
	}
	for _, inner := range n.Content {
		if line := lineOf(inner, text); line > 0 {
			return line
		}
	}
	return 0
}

var yamlLine = regexp.MustCompile(`^(?:error converting YAML to JSON: )?yaml: (?:line (\d+): )?`)

// yamlProblem takes the line from the YAML parser's message.
func yamlProblem(file string, err error) Problem {
	p := Problem{Place{File: file}, err.Error()}
	if found := yamlLine.FindStringSubmatch(err.Error()); found != nil {
		p.Message = "no YAML: " + err.Error()[len(found[0]):]
		p.At.Line, _ = strconv.Atoi(found[1])
	}
	return p
}

// line is where an object begins; 0 if the file has none like it. Its name may have
// got a prefix and a suffix.
func (s *sources) line(file, kind, name string) int {
	best := document{}
	for _, d := range s.documents[file] {
		if d.Kind == kind && strings.Contains(name, d.Metadata.Name) &&
			len(d.Metadata.Name) > len(best.Metadata.Name) {
			best = d
		}
	}
	return best.line
}

// twice finds an object that is declared twice.
func (s *sources) twice() (Problem, bool) {
	first := map[document]Place{}
	for _, file := range slices.Sorted(maps.Keys(s.documents)) {
		for _, d := range s.documents[file] {
			at := Place{file, d.line}
			d.line = 0
			if other, is := first[d]; is {
				return Problem{at, fmt.Sprintf("%s %s is declared twice; the other one is at %s", d.Kind,
					d.Metadata.Name, other)}, true
			}
			first[d] = at
		}
	}
	return Problem{}, false
}
