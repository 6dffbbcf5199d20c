package config

import (
	"errors"
	"io/fs"
	"maps"
	"os"
	"path"
	"path/filepath"
	"slices"

	"github.com/hashicorp/hcl/v2"
)

// library knows every stage there is: those in the binary, shadowed folder by
// folder by those in the repository.
type library struct {
	repository string // empty: none
	embedded   fs.FS  // may be nil
	files      map[string]*hcl.File
	known      map[string]*definition
}

// definition is what a stage's folder says, the same for every cluster.
type definition struct {
	source, layer string
	origin        string
	module        fs.FS
	file          string // stage.hcl, as diagnostics name it

	files     map[string]*hcl.File // the module's Terraform files
	variables map[string]Variable
	outputs   map[string]Output
	providers map[string]string // local name to source address
	versions  map[string]string // local name to the versions that the module allows
	inCluster []string
	resources map[string]bool // managed: "infisical_secret.kubeconfig"
	makers    []string        // providers of these; "" for those of child modules

	stage      stageBlock
	gates      []*block
	preflights []*block
	adopts     []*block

	diags hcl.Diagnostics
}

// sources returns every stage there is as "layer/stage", sorted.
func (l *library) sources() []string {
	found := make(map[string]bool)
	var trees []fs.FS
	if l.repository != "" {
		trees = append(trees, os.DirFS(filepath.Join(l.repository, "stages")))
	}
	if l.embedded != nil {
		trees = append(trees, l.embedded)
	}
	for _, tree := range trees {
		for _, layer := range Layers() {
			entries, err := fs.ReadDir(tree, layer)
			if err != nil {
				continue // a tree need not have every layer
			}
			for _, e := range entries {
				source := layer + "/" + e.Name()
				if info, err := fs.Stat(tree, source); err == nil && info.IsDir() {
					found[source] = true
				}
			}
		}
	}
	return slices.Sorted(maps.Keys(found))
}

// definition reads a stage's folder, once. source must be one of sources.
func (l *library) definition(source string) *definition {
	if d, ok := l.known[source]; ok {
		return d
	}
	d := &definition{source: source, layer: path.Dir(source), files: map[string]*hcl.File{}, outputs: map[string]Output{}, variables: map[string]Variable{}}
	l.known[source] = d
	folder := path.Join("stages", source)
	shadow := filepath.Join(l.repository, filepath.FromSlash(folder))
	switch info, err := os.Stat(shadow); {
	case l.repository != "" && err == nil && info.IsDir():
		d.origin, d.module = folder, os.DirFS(shadow)
	case l.embedded == nil:
		d.diags = append(d.diags, problem(hcl.Range{}, "stage "+source+": not readable", "%s is no folder.", folder))
		return d
	default:
		sub, err := fs.Sub(l.embedded, source)
		if err != nil {
			d.diags = append(d.diags, problem(hcl.Range{}, "stage "+source+": not readable", "%s.", err))
			return d
		}
		d.origin, d.module, folder = "embedded", sub, path.Join("<embedded>", folder)
	}
	d.readModule(l, folder)
	d.readStageFile(l, folder)
	return d
}

// provides returns the sources in layer whose module has the output.
func (l *library) provides(layer, output string) []string {
	var found []string
	for _, source := range l.sources() {
		if path.Dir(source) != layer {
			continue
		}
		if _, ok := l.definition(source).outputs[output]; ok {
			found = append(found, source)
		}
	}
	return found
}

// read parses one file of tree, which diagnostics call name. Where quote is
// not set the file is kept from diagnostic writers, as it may hold secrets. A
// file that does not exist is no error and nil.
func (l *library) read(tree fs.FS, file, name string, quote bool) (*hcl.File, hcl.Diagnostics) {
	src, err := fs.ReadFile(tree, file)
	switch {
	case errors.Is(err, fs.ErrNotExist):
		return nil, nil
	case err != nil:
		at := hcl.Range{Filename: name, Start: hcl.InitialPos, End: hcl.InitialPos}
		return nil, hcl.Diagnostics{problem(at, "file not readable", "%s.", err)}
	}
	f, diags := parse(src, name)
	if quote && f != nil {
		l.files[name] = f
	}
	return f, diags
}
