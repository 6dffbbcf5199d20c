package config

import (
	"errors"
	"io/fs"
	"os"
	"path"
	"path/filepath"
	"slices"
	"strings"

	"github.com/hashicorp/hcl/v2"
	"github.com/hashicorp/hcl/v2/hclsyntax"
	"github.com/hashicorp/hcl/v2/json"
)

// library is every stage there is: those in the binary, shadowed folder by folder by those in the repository.
type library struct {
	repository string // empty: none
	embedded   fs.FS
	files      map[string]*hcl.File
	known      map[string]*definition
}

// definition is the content of a stage's folder, the same for every cluster.
type definition struct {
	stage     Stage                // as far as the folder decides it
	file      string               // stage.hcl, as diagnostics name it
	files     map[string]*hcl.File // the module's Terraform files
	versions  map[string]string    // of providers: local name to the versions that the module allows
	resources map[string]bool      // managed: "infisical_secret.kubeconfig"

	settings   settings
	gates      []*block
	preflights []*block
	adopts     []*block

	diags problems
}

func newLibrary(o Options, files map[string]*hcl.File) *library {
	known := make(map[string]*definition)
	return &library{repository: o.Repository, embedded: o.Library, files: files, known: known}
}

// sources returns every stage there is as "layer/stage", sorted.
func (l *library) sources() []string {
	trees := []fs.FS{l.embedded}
	if l.repository != "" {
		trees = append(trees, os.DirFS(filepath.Join(l.repository, "stages")))
	}
	var found []string
	for _, tree := range trees {
		names, _ := fs.Glob(tree, "*/*") // an error is that of a bad pattern
		found = append(found, slices.DeleteFunc(names, func(name string) bool {
			info, err := fs.Stat(tree, name)
			return err != nil || !info.IsDir() || layerIndex(path.Dir(name)) < 0
		})...)
	}
	slices.Sort(found)
	return slices.Compact(found)
}

// definition reads a stage's folder, once. source must be one of sources.
func (l *library) definition(source string) *definition {
	if d, ok := l.known[source]; ok {
		return d
	}
	d := &definition{files: map[string]*hcl.File{}, versions: map[string]string{},
		resources: map[string]bool{}}
	l.known[source] = d
	s := &d.stage
	s.Source, s.Layer, s.Origin = source, path.Dir(source), path.Join("stages", source)
	s.Variables, s.Outputs, s.Providers = map[string]Variable{}, map[string]Output{}, map[string]string{}
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
	d.readModule(l, folder)
	d.readStageFile(l, folder)
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

// read parses one file of tree, which diagnostics call name. Without quote, diagnostic writers cannot print
// its lines, which may hold secrets. A file that does not exist is nil and no error.
func (l *library) read(tree fs.FS, file, name string, quote bool) (*hcl.File, hcl.Diagnostics) {
	src, err := fs.ReadFile(tree, file)
	switch {
	case errors.Is(err, fs.ErrNotExist):
		return nil, nil
	case err != nil:
		return nil, hcl.Diagnostics{problem(wholeFile(name), "file not readable", "%s.", err)}
	}
	parse := json.Parse
	if !strings.HasSuffix(name, ".json") {
		parse = func(src []byte, name string) (*hcl.File, hcl.Diagnostics) {
			return hclsyntax.ParseConfig(src, name, hcl.InitialPos)
		}
	}
	f, diags := parse(src, name)
	if quote && f != nil {
		l.files[name] = f
	}
	return f, diags
}
