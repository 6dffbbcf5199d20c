package internal_test

import (
	"bytes"
	"fmt"
	"go/ast"
	"go/parser"
	"go/token"
	"io/fs"
	"maps"
	"os"
	"path"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"
	"unicode"
	"unicode/utf8"
)

// These limits bound the tree. A tab counts as four columns.
const (
	mostFiles   = 25
	mostLines   = 3500
	mostColumns = 110
	mostName    = 60
	mostTotal   = 91861 // of the product, without its doubles
)

// oldWords are the words that the glossary replaced; no identifier is one of
// them. Those in oldTypes are common words for a value: only types, functions
// and methods may not be called so.
var (
	oldWords = words(`judge judged judgeLate doubts hindered halfway discord testimony witness workshop
		marks keeper renew renewed raze razed doomed collapses factory silence said hear put persist
		letGo letLoose disown forget takeIn undermined outliving claim stranger trace thing happening
		sight patient examination spoken trouble way nudge nudged asked_by askedBy`)
	oldTypes = words(`current rest`)
)

// A source is one parsed Go file.
type source struct {
	path, dir string // relative to the repository
	text      []byte
	file      *ast.File
	test      bool
}

func TestShapePackageSize(t *testing.T) {
	files, lines := map[string]int{}, map[string]int{}
	for _, s := range parsed(t) {
		if !s.test {
			files[s.dir]++
			lines[s.dir] += bytes.Count(s.text, []byte("\n"))
		}
	}
	for _, dir := range slices.Sorted(maps.Keys(files)) {
		if dir == "internal/cli" {
			continue
		}
		if files[dir] > mostFiles {
			t.Errorf("%s: %d files without tests, at most %d", dir, files[dir], mostFiles)
		}
		if lines[dir] > mostLines {
			t.Errorf("%s: %d lines without tests, at most %d", dir, lines[dir], mostLines)
		}
	}
}

func TestShapeTotalSize(t *testing.T) {
	total := 0
	for _, s := range parsed(t) {
		double := strings.HasPrefix(s.dir, "internal/emulator/") || strings.HasSuffix(s.dir, "test")
		if !s.test && !double && strings.HasPrefix(s.dir, "internal/") {
			total += bytes.Count(s.text, []byte("\n"))
		}
	}
	if total > mostTotal {
		t.Errorf("internal: %d lines without tests, at most %d", total, mostTotal)
	}
}

func TestShapeEmbeddedStructs(t *testing.T) {
	all := parsed(t)
	types := map[string]ast.Expr{} // by package and name
	for _, s := range all {
		each(s, func(spec *ast.TypeSpec) { types[s.dir+"."+spec.Name.Name] = spec.Type })
	}
	for _, s := range all {
		imports := imported(s)
		each(s, func(spec *ast.TypeSpec) {
			body, ok := spec.Type.(*ast.StructType)
			if !ok {
				return
			}
			for _, field := range body.Fields.List {
				if len(field.Names) > 0 {
					continue
				}
				name := resolve(s.dir, imports, field.Type)
				if _, is := types[name].(*ast.StructType); is {
					t.Errorf("%s: %s embeds the struct %s; give the field a name",
						s.place(field), spec.Name.Name, name)
				}
			}
		})
	}
}

func TestShapeColumns(t *testing.T) {
	for _, s := range parsed(t) {
		n := 0
		for line := range strings.Lines(string(s.text)) {
			n++
			line = strings.ReplaceAll(strings.TrimRight(line, "\n"), "\t", "    ")
			if columns := utf8.RuneCountInString(line); columns > mostColumns {
				t.Errorf("%s:%d: %d columns, at most %d", s.path, n, columns, mostColumns)
			}
		}
	}
}

func TestShapeRegexpsCompiledOnce(t *testing.T) {
	constants := map[string]bool{} // of any package: their names are enough here
	for _, s := range parsed(t) {
		ast.Inspect(s.file, func(n ast.Node) bool {
			if d, ok := n.(*ast.GenDecl); ok && d.Tok == token.CONST {
				for _, spec := range d.Specs {
					for _, name := range spec.(*ast.ValueSpec).Names {
						constants[name.Name] = true
					}
				}
			}
			return true
		})
	}
	for _, s := range parsed(t) {
		for _, d := range s.file.Decls {
			f, ok := d.(*ast.FuncDecl)
			if !ok || f.Body == nil {
				continue
			}
			for _, call := range calls(f.Body, "regexp", "MustCompile", "Compile", "MatchString", "Match") {
				if constant(call.Args[0], constants) {
					t.Errorf("%s: compile this regular expression once, in a variable of the package",
						s.place(call))
				}
			}
		}
	}
}

func TestShapeNoSleepInTests(t *testing.T) {
	byDir := map[string][]source{}
	for _, s := range parsed(t) {
		if s.test {
			byDir[s.dir] = append(byDir[s.dir], s)
		}
	}
	for _, dir := range slices.Sorted(maps.Keys(byDir)) {
		bubbles := bubbles(byDir[dir])
		for _, s := range byDir[dir] {
			for _, call := range calls(s.file, "time", "Sleep") {
				if !within(call, bubbles) {
					t.Errorf("%s: time.Sleep outside synctest; wait for a condition or a channel",
						s.place(call))
				}
			}
		}
	}
}

func TestShapeTestNames(t *testing.T) {
	for _, s := range parsed(t) {
		for _, d := range s.file.Decls {
			f, ok := d.(*ast.FuncDecl)
			if !ok || !s.test || f.Recv != nil || len(f.Name.Name) <= mostName {
				continue
			}
			for _, kind := range []string{"Test", "Benchmark", "Fuzz", "Example"} {
				if strings.HasPrefix(f.Name.Name, kind) {
					t.Errorf("%s: %s has %d characters, at most %d",
						s.place(f), f.Name.Name, len(f.Name.Name), mostName)
				}
			}
		}
	}
}

func TestShapeWords(t *testing.T) {
	for _, s := range parsed(t) {
		names := declared(s.file)
		byPlace := func(a, b *ast.Ident) int { return int(a.Pos() - b.Pos()) }
		for _, id := range slices.SortedFunc(maps.Keys(names), byPlace) {
			word := lowerFirst(id.Name)
			if oldWords[word] || oldTypes[word] && names[id] != "" {
				t.Errorf("%s: %s is a word that the glossary replaced", s.place(id), id.Name)
			}
		}
	}
}

// place is a node's file and line.
func (s source) place(n ast.Node) string {
	return fmt.Sprintf("%s:%d", s.path, 1+bytes.Count(s.text[:n.Pos()-s.file.FileStart], []byte("\n")))
}

// parsed returns every Go file of castle, lab included, except the stubs of third-party modules.
func parsed(t *testing.T) []source {
	t.Helper()
	var all []source
	set := token.NewFileSet()
	err := filepath.WalkDir("..", func(name string, d fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		rel := filepath.ToSlash(strings.TrimPrefix(name, ".."+string(filepath.Separator)))
		if d.IsDir() {
			hidden := len(d.Name()) > 2 && d.Name()[0] == '.'
			if hidden || rel == "lab/vault/without" || d.Name() == "testdata" || d.Name() == "bin" {
				return fs.SkipDir
			}
			return nil
		}
		if !strings.HasSuffix(rel, ".go") {
			return nil
		}
		text, err := os.ReadFile(name)
		if err != nil {
			return err
		}
		file, err := parser.ParseFile(set, rel, text, parser.SkipObjectResolution)
		if err != nil {
			return err
		}
		all = append(all, source{rel, path.Dir(rel), text, file, strings.HasSuffix(rel, "_test.go")})
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	if len(all) < 100 {
		t.Fatalf("found only %d Go files", len(all))
	}
	return all
}

// each calls do for every type declared in a file, in functions too.
func each(s source, do func(*ast.TypeSpec)) {
	ast.Inspect(s.file, func(n ast.Node) bool {
		if spec, ok := n.(*ast.TypeSpec); ok {
			do(spec)
		}
		return true
	})
}

// typeName is the name of a receiver's or field's type, without pointer and
// type arguments; "" for a type of another package.
func typeName(e ast.Expr) string {
	switch e := e.(type) {
	case *ast.StarExpr:
		return typeName(e.X)
	case *ast.IndexExpr:
		return typeName(e.X)
	case *ast.IndexListExpr:
		return typeName(e.X)
	case *ast.Ident:
		return e.Name
	}
	return ""
}

// resolve is the package and name of a type that stands in a file of dir.
func resolve(dir string, imports map[string]string, e ast.Expr) string {
	if star, ok := e.(*ast.StarExpr); ok {
		return resolve(dir, imports, star.X)
	}
	if sel, ok := e.(*ast.SelectorExpr); ok {
		return imports[typeName(sel.X)] + "." + sel.Sel.Name
	}
	return dir + "." + typeName(e)
}

// imported returns castle's packages that a file imports, by the name that they
// have there.
func imported(s source) map[string]string {
	names := map[string]string{}
	for _, spec := range s.file.Imports {
		value, _ := strconv.Unquote(spec.Path.Value)
		rest, ours := strings.CutPrefix(value, module)
		if !ours {
			continue
		}
		name := path.Base(rest)
		if spec.Name != nil {
			name = spec.Name.Name
		}
		names[name] = rest
	}
	return names
}

// calls returns the calls of a package's functions within a node; pkg is empty
// for the package of the node itself.
func calls(root ast.Node, pkg string, functions ...string) (found []*ast.CallExpr) {
	ast.Inspect(root, func(n ast.Node) bool {
		call, ok := n.(*ast.CallExpr)
		if !ok {
			return true
		}
		name, of := typeName(call.Fun), ""
		if sel, ok := call.Fun.(*ast.SelectorExpr); ok {
			name, of = sel.Sel.Name, typeName(sel.X)
		}
		if of == pkg && slices.Contains(functions, name) {
			found = append(found, call)
		}
		return true
	})
	return found
}

// constant reports whether an expression consists of literals and constants.
func constant(e ast.Expr, constants map[string]bool) bool {
	switch e := e.(type) {
	case *ast.BasicLit:
		return true
	case *ast.Ident:
		return constants[e.Name]
	case *ast.ParenExpr:
		return constant(e.X, constants)
	case *ast.BinaryExpr:
		return constant(e.X, constants) && constant(e.Y, constants)
	}
	return false
}

// bubbles returns the code of a package's tests that runs under synctest: calls of synctest.Test and of
// helpers that make such a call. Functions that only this code uses count too.
func bubbles(files []source) []ast.Node {
	var found []ast.Node
	var functions []*ast.FuncDecl
	var helpers []string
	uses := map[string][]ast.Node{}
	for _, s := range files {
		for _, d := range s.file.Decls {
			f, ok := d.(*ast.FuncDecl)
			if !ok {
				continue
			}
			functions = append(functions, f)
			takesFunction := slices.ContainsFunc(f.Type.Params.List, func(p *ast.Field) bool {
				_, is := p.Type.(*ast.FuncType)
				return is
			})
			if takesFunction && len(calls(f, "synctest", "Test")) > 0 {
				helpers = append(helpers, f.Name.Name)
			}
		}
	}
	for _, s := range files {
		for _, call := range append(calls(s.file, "synctest", "Test"), calls(s.file, "", helpers...)...) {
			found = append(found, call)
		}
		ast.Inspect(s.file, func(n ast.Node) bool {
			if id, ok := n.(*ast.Ident); ok {
				uses[id.Name] = append(uses[id.Name], id)
			}
			return true
		})
	}
	for grown := true; grown; {
		grown = false
		for _, f := range functions {
			outside := func(n ast.Node) bool { return n != f.Name && !within(n, found) }
			used := uses[f.Name.Name]
			if len(used) > 1 && !within(f, found) && !slices.ContainsFunc(used, outside) {
				found, grown = append(found, f), true
			}
		}
	}
	return found
}

// within reports whether a node is part of one of the others.
func within(n ast.Node, others []ast.Node) bool {
	return slices.ContainsFunc(others, func(o ast.Node) bool {
		return o.Pos() <= n.Pos() && n.End() <= o.End()
	})
}

// declared returns the identifiers that a file declares; kind is empty for a
// variable, field, parameter or label.
func declared(file *ast.File) map[*ast.Ident]string {
	found := map[*ast.Ident]string{file.Name: "package"}
	variables := func(list ...ast.Expr) {
		for _, e := range list {
			if id, ok := e.(*ast.Ident); ok {
				found[id] = ""
			}
		}
	}
	ast.Inspect(file, func(n ast.Node) bool {
		switch n := n.(type) {
		case *ast.FuncDecl:
			found[n.Name] = "function"
		case *ast.TypeSpec:
			found[n.Name] = "type"
		case *ast.ValueSpec:
			for _, id := range n.Names {
				found[id] = ""
			}
		case *ast.Field:
			for _, id := range n.Names {
				found[id] = ""
				if _, method := n.Type.(*ast.FuncType); method {
					found[id] = "method" // or a field that is called like one
				}
			}
		case *ast.AssignStmt:
			if n.Tok == token.DEFINE {
				variables(n.Lhs...)
			}
		case *ast.RangeStmt:
			if n.Tok == token.DEFINE {
				variables(n.Key, n.Value)
			}
		case *ast.LabeledStmt:
			found[n.Label] = ""
		}
		return true
	})
	return found
}

func lowerFirst(s string) string {
	first, size := utf8.DecodeRuneInString(s)
	return string(unicode.ToLower(first)) + s[size:]
}

func words(list string) map[string]bool {
	all := map[string]bool{}
	for word := range strings.FieldsSeq(list) {
		all[word] = true
	}
	return all
}
