package config

import (
	"errors"
	"io/fs"
	"maps"
	"os"
	"path"
	"path/filepath"
	"slices"
	"strings"

	"github.com/hashicorp/hcl/v2"
)

// library is every stage there is: those in the binary, shadowed folder by folder by
// those in the repository.
type library struct {
	repository string // empty: none
	embedded   fs.FS  // may be nil
	files      map[string]*hcl.File
	known      map[string]*definition
}

// definition is the content of a stage's folder, the same for every cluster.
type definition struct {
	source, layer string
	origin        string
	module        fs.FS
	file          string // stage.hcl, as diagnostics name it

	files             map[string]*hcl.File // the module's Terraform files
	variables         map[string]Variable
	outputs           map[string]Output
	providers         map[string]string // local name to source address
	versions          map[string]string // local name to the versions that the module allows
	inCluster         []string
	resources         map[string]bool // managed: "infisical_secret.kubeconfig"
	resourceProviders []string        // providers of these; "" for those of child modules

	stage      stageBlock
	settings   settings
	gates      []*block
	preflights []*block
	adopts     []*block

	diags hcl.Diagnostics
}

func newLibrary(o Options, files map[string]*hcl.File) *library {
	known := make(map[string]*definition)
	return &library{repository: o.Repository, embedded: o.Library, files: files, known: known}
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
		names, _ := fs.Glob(tree, "*/*") // an error is that of a bad pattern
		for _, name := range names {
			info, err := fs.Stat(tree, name)
			if err == nil && info.IsDir() && layerIndex(path.Dir(name)) >= 0 {
				found[name] = true
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
	d := &definition{source: source, layer: path.Dir(source), files: map[string]*hcl.File{},
		outputs: map[string]Output{}, variables: map[string]Variable{}}
	l.known[source] = d
	folder := path.Join("stages", source)
	shadow := filepath.Join(l.repository, filepath.FromSlash(folder))
	switch info, err := os.Stat(shadow); {
	case l.repository != "" && err == nil && info.IsDir():
		d.origin, d.module = folder, os.DirFS(shadow)
	case l.embedded == nil:
		d.report(problem(hcl.Range{}, "stage "+source+": not readable", "%s is no folder.", folder))
		return d
	default:
		sub, err := fs.Sub(l.embedded, source)
		if err != nil {
			d.report(problem(hcl.Range{}, "stage "+source+": not readable", "%s.", err))
			return d
		}
		d.origin, d.module, folder = "embedded", sub, path.Join("<embedded>", folder)
	}
	d.readModule(l, folder)
	d.readStageFile(l, folder)
	return d
}

func (d *definition) report(diags ...*hcl.Diagnostic) { d.diags = append(d.diags, diags...) }

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

// read parses one file of tree, which diagnostics call name. Without quote, diagnostic
// writers cannot print its lines, which may hold secrets. A file that does not exist
// is nil and no error.
func (l *library) read(tree fs.FS, file, name string, quote bool) (*hcl.File, hcl.Diagnostics) {
	src, err := fs.ReadFile(tree, file)
	switch {
	case errors.Is(err, fs.ErrNotExist):
		return nil, nil
	case err != nil:
		return nil, hcl.Diagnostics{problem(wholeFile(name), "file not readable", "%s.", err)}
	}
	f, diags := parse(src, name)
	if quote && f != nil {
		l.files[name] = f
	}
	return f, diags
}

// templates lays the repository's templates/ over the embedded ones, file by file.
type templates struct{ over, under fs.FS }

// Templates are the embedded template files, shadowed by those in the repository.
func Templates(repository string, embedded fs.FS) fs.FS {
	return templates{os.DirFS(filepath.Join(repository, "templates")), embedded}
}

// Open opens the repository's file, or else the embedded one.
func (t templates) Open(name string) (fs.File, error) {
	f, err := t.over.Open(name)
	if !errors.Is(err, fs.ErrNotExist) || t.under == nil {
		return f, err
	}
	return t.under.Open(name)
}

// ReadDir lists the files of both, each name once.
func (t templates) ReadDir(name string) ([]fs.DirEntry, error) {
	entries, err := fs.ReadDir(t.over, name)
	if t.under == nil || err != nil && !errors.Is(err, fs.ErrNotExist) {
		return entries, err
	}
	under, errUnder := fs.ReadDir(t.under, name)
	if errUnder != nil && !errors.Is(errUnder, fs.ErrNotExist) {
		return nil, errUnder
	}
	if err != nil && errUnder != nil {
		return nil, err
	}
	for _, e := range under {
		if !slices.ContainsFunc(entries, func(o fs.DirEntry) bool { return o.Name() == e.Name() }) {
			entries = append(entries, e)
		}
	}
	slices.SortFunc(entries, func(a, b fs.DirEntry) int { return strings.Compare(a.Name(), b.Name()) })
	return entries, nil
}
