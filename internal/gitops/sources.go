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

	"github.com/siderolabs/gen/xslices"
	"sigs.k8s.io/kustomize/api/types"
	"sigs.k8s.io/kustomize/kyaml/yaml"
	k8syaml "sigs.k8s.io/yaml"
)

// sources reads the files of a build before kustomize does: problems get a line,
// nothing is fetched from elsewhere, and each object's line is known.
type sources struct {
	files     *files
	documents map[string][]document // by file; also those that have been read without objects
	problems  Problems
}

// document is one of the objects that a file holds.
type document struct {
	yaml.TypeMeta `yaml:",inline"`
	Metadata      yaml.NameMeta `yaml:"metadata"`
	line          int
}

// folder reads a folder's kustomization.yaml and all files and folders that it names. kustomize gets the file
// without deprecated fields: it would warn of each on this process's stderr.
func (s *sources) folder(folder string) (k types.Kustomization) {
	file := s.files.kustomizationFile(folder)
	if _, done := s.documents[file]; done || file == "" {
		return k
	}
	s.documents[file] = nil
	data, documents := s.parse(file)
	if len(documents) == 0 {
		return k
	}
	if err := k8syaml.Unmarshal(data, &k); err != nil {
		s.problems = append(s.problems, yamlProblem(file, err))
		return k
	}
	// kustomize's own conversion would look for files in the working directory.
	for _, p := range k.PatchesStrategicMerge {
		if patch := string(p); strings.Contains(patch, "\n") {
			k.Patches = append(k.Patches, types.Patch{Patch: patch})
		} else {
			k.Patches = append(k.Patches, types.Patch{Path: patch})
		}
	}
	k.PatchesStrategicMerge = nil
	k.FixKustomization()
	if k.FixKustomizationPreMarshalling(nil) == nil && new(types.Kustomization).Unmarshal(data) == nil {
		if changed, err := k8syaml.Marshal(k); err == nil {
			s.files.replaced[s.files.absolute(file)] = changed
		}
	} // or kustomize reports the error
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
	names = append(names, xslices.Map(k.Patches, func(p types.Patch) string { return p.Path })...)
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
	return k
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
	case s.files.leftOut(name, target) != nil:
		s.problems.add(at, s.files.leftOut(name, target))
	case s.files.isFolder(target):
		if s.files.kustomizationFile(target) == "" {
			s.problems.add(at, fmt.Errorf("%s has no kustomization.yaml", name))
		}
		s.folder(target)
	default:
		_, err := s.files.ReadFile(s.files.absolute(target))
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
	_, documents := s.parse(file)
	for _, d := range documents {
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

// parse reads a file and its documents.
func (s *sources) parse(file string) (data []byte, documents []*yaml.Node) {
	data, err := s.files.ReadFile(s.files.absolute(file))
	if err != nil {
		s.problems.add(Place{File: file}, err)
		return nil, nil
	}
	for decoder := yaml.NewDecoder(bytes.NewReader(data)); ; {
		n := &yaml.Node{}
		if err := decoder.Decode(n); errors.Is(err, io.EOF) {
			return data, documents
		} else if err != nil {
			s.problems = append(s.problems, yamlProblem(file, err))
			return nil, nil
		}
		documents = append(documents, n)
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

// line is where an object begins, whose name may have got a prefix and a suffix; 0 if it is not found.
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
