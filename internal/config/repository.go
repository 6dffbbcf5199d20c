package config

import (
	"cmp"
	"errors"
	"io/fs"
	"maps"
	"os"
	"path"
	"path/filepath"
	"slices"
	"strings"
	"sync"

	"github.com/hashicorp/hcl/v2"
	"github.com/hashicorp/hcl/v2/json"

	"github.com/ephemeral-castle/castle/internal/module"
	"github.com/ephemeral-castle/castle/internal/naming"
	"github.com/ephemeral-castle/castle/internal/outline"
	"github.com/ephemeral-castle/castle/internal/syntax"
)

// library is every stage there is: those in the binary, shadowed folder by folder by those in the repository.
type library struct {
	repository  string // empty: none
	embedded    fs.FS
	files       map[string]*hcl.File
	definitions *Definitions
}

// Definitions are the stages that Load has read. Where Options share them, as for the clusters of one
// repository, each stage is read once.
type Definitions struct {
	mu      sync.Mutex
	sources func() []string
	known   map[string]func() *definition
	// clusters are the sources that each cluster of the repository lists; nil where castle cannot read them.
	clusters func() map[string][]string

	misnamed error // the folders whose names break the rule, known after sources
}

// definition is the content of a stage's folder, the same for every cluster.
type definition struct {
	stage     Stage                // as far as the folder decides it
	file      string               // stage.hcl, as diagnostics name it
	files     map[string]*hcl.File // the module's Terraform files
	sources   map[string]*hcl.File // these and stage.hcl, as diagnostics name them
	versions  map[string]string    // of providers: local name to the versions that the module allows
	resources map[string]bool      // managed: "infisical_secret.kubeconfig"

	settings   settings
	gates      []*block
	preflights []*block
	adopts     []*block
	replaces   []*block

	diags problems
	// incomplete reports whether a file could not be read: a name that the folder lacks may be there.
	incomplete bool
}

func newLibrary(o Options, files map[string]*hcl.File) *library {
	l := &library{o.Repository, o.Library, files, cmp.Or(o.Definitions, new(Definitions))}
	l.definitions.mu.Lock()
	defer l.definitions.mu.Unlock()
	if l.definitions.known == nil {
		l.definitions.known, l.definitions.sources = map[string]func() *definition{}, sync.OnceValue(l.find)
		l.definitions.clusters = sync.OnceValue(func() map[string][]string {
			return outline.Sources(o.Repository)
		})
	}
	return l
}

// sources returns every stage there is as "layer/stage", sorted.
func (l *library) sources() []string { return slices.Clone(l.definitions.sources()) }

func (l *library) has(source string) bool {
	_, found := slices.BinarySearch(l.definitions.sources(), source)
	return found
}

// find lists the stages' folders.
func (l *library) find() []string {
	trees := []fs.FS{l.embedded}
	if l.repository != "" {
		trees = append(trees, os.DirFS(filepath.Join(l.repository, "stages")))
	}
	var found []string
	for _, tree := range trees {
		names, _ := fs.Glob(tree, "*/[^.]*") // an error is that of a bad pattern
		for _, name := range names {
			info, err := fs.Stat(tree, name)
			if err != nil || !info.IsDir() || layerIndex(path.Dir(name)) < 0 {
				continue // nothing uses it
			}
			wrong := naming.Check("stages/"+name, "rename the folder", path.Base(name))
			if l.definitions.misnamed = errors.Join(l.definitions.misnamed, wrong); wrong == nil {
				found = append(found, name)
			}
		}
	}
	slices.Sort(found)
	return slices.Compact(found)
}

// definition returns a stage's definition. source must be one of sources.
func (l *library) definition(source string) *definition {
	d := l.once(source)
	maps.Copy(l.files, d.sources)
	return d
}

// prepare reads stages concurrently.
func (l *library) prepare(sources []string) {
	var reading sync.WaitGroup
	defer reading.Wait()
	for _, source := range sources {
		reading.Go(func() { l.once(source) })
	}
}

// once reads a stage's folder, unless it has been read.
func (l *library) once(source string) *definition {
	l.definitions.mu.Lock()
	read := l.definitions.known[source]
	if read == nil {
		read = sync.OnceValue(func() *definition { return l.readFolder(source) })
		l.definitions.known[source] = read
	}
	l.definitions.mu.Unlock()
	return read()
}

func (l *library) readFolder(source string) *definition {
	d := &definition{files: map[string]*hcl.File{}, sources: map[string]*hcl.File{},
		versions: map[string]string{}, resources: map[string]bool{}}
	s := &d.stage
	s.Source, s.Layer, s.Origin = source, path.Dir(source), path.Join("stages", source)
	s.Variables, s.Outputs = map[string]module.Variable{}, map[string]module.Output{}
	s.Providers = map[string]string{}
	folder := s.Origin
	s.Module = os.DirFS(filepath.Join(l.repository, filepath.FromSlash(folder)))
	if info, err := fs.Stat(s.Module, "."); l.repository == "" || err != nil || !info.IsDir() {
		s.Module, err = fs.Sub(l.embedded, source)
		if err != nil {
			d.diags.add(hcl.Range{}, "stage "+source+": not readable", "%s.", err)
			return d
		}
		s.Origin, folder = "embedded", path.Join("<embedded>", folder)
	}
	d.readModule(folder)
	d.readStageFile(folder)
	return d
}

// provides returns the sources in layer whose module has the output.
func (l *library) provides(layer, output string) []string {
	return slices.DeleteFunc(l.sources(), func(source string) bool {
		if path.Dir(source) != layer {
			return true
		}
		_, has := l.definition(source).stage.Outputs[output]
		return !has
	})
}

// read is readFile. Without quote, diagnostic writers cannot print the lines, which may hold secrets.
func (l *library) read(tree fs.FS, file, name string, quote bool) (*hcl.File, hcl.Diagnostics) {
	f, diags := readFile(tree, file, name)
	if quote && f != nil {
		l.files[name] = f
	}
	return f, diags
}

// readFile parses one file of tree, which diagnostics call name. One that does not exist is nil and no error.
func readFile(tree fs.FS, file, name string) (*hcl.File, hcl.Diagnostics) {
	src, err := fs.ReadFile(tree, file)
	switch {
	case errors.Is(err, fs.ErrNotExist):
		return nil, nil
	case err != nil:
		d := syntax.Problem(syntax.WholeFile(name), "file not readable", "%s.", err)
		d.Extra = syntax.Unread{}
		return nil, hcl.Diagnostics{d}
	}
	if strings.HasSuffix(name, ".json") {
		return json.Parse(src, name)
	}
	return syntax.Parse(src, name)
}

// Sources returns every stage there is as "layer/stage", sorted. It reads none of them.
func Sources(o Options) []string { return newLibrary(o, map[string]*hcl.File{}).sources() }
