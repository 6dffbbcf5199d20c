package scaffold

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"

	"github.com/hashicorp/hcl/v2"
	"github.com/hashicorp/hcl/v2/hclsyntax"
	"github.com/hashicorp/hcl/v2/hclwrite"
	"github.com/zclconf/go-cty/cty"
	ctyjson "github.com/zclconf/go-cty/cty/json"

	"github.com/ephemeral-castle/castle/internal/syntax"
)

// overlay lays the repository's templates/ over the embedded ones, file by file.
type overlay struct{ over, under fs.FS }

// layered returns the embedded template files, shadowed by those in the repository.
func layered(repository string, embedded fs.FS) fs.FS {
	return overlay{os.DirFS(filepath.Join(repository, "templates")), embedded}
}

// Open opens the repository's file, or else the embedded one.
func (t overlay) Open(name string) (fs.File, error) {
	f, err := t.over.Open(name)
	if errors.Is(err, fs.ErrNotExist) {
		return t.under.Open(name)
	}
	return f, err
}

// ReadDir lists the files of both, each name once.
func (t overlay) ReadDir(name string) ([]fs.DirEntry, error) {
	entries, err := fs.ReadDir(t.over, name)
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return nil, err
	}
	under, errUnder := fs.ReadDir(t.under, name)
	if err != nil && errUnder != nil {
		return nil, err
	}
	entries = append(entries, under...)
	byName := func(a, b fs.DirEntry) int { return strings.Compare(a.Name(), b.Name()) }
	slices.SortStableFunc(entries, byName)
	return slices.CompactFunc(entries, func(a, b fs.DirEntry) bool { return a.Name() == b.Name() }), nil
}

// part is one file of a template.
type part struct {
	name string // in the template's folder
	file string // in the repository: "templates/own/cluster.hcl"
	src  []byte
	text hclsyntax.Expression
}

// readParts reads a template's files.
func readParts(all fs.FS, name string) ([]part, error) {
	var parts []part
	err := fs.WalkDir(all, name, func(file string, d fs.DirEntry, err error) error {
		if err != nil || d.IsDir() {
			return err
		}
		p := part{name: strings.TrimPrefix(file, name+"/"), file: filepath.Join("templates", file)}
		if p.src, err = fs.ReadFile(all, file); err == nil {
			p.text, err = parseTemplate(p.src, p.file)
		}
		parts = append(parts, p)
		return err
	})
	if errors.Is(err, fs.ErrNotExist) || errors.Is(err, fs.ErrInvalid) || err == nil && len(parts) == 0 {
		names := templateNames(all)
		return nil, fmt.Errorf("no template %q; choose one of %s%s", name, strings.Join(names, ", "),
			syntax.DidYouMean(name, names))
	}
	return parts, err
}

// languageHint ends the errors of a template.
const languageHint = "\n  templates are in the language of Terraform's templatefile: ${key} is an answer, " +
	"$${ and %%{ are ${ and %{ in the file"

// parseTemplate parses a text in HCL's template language. It reports the first error only: HCL reads on after
// it, and reports what follows from it.
func parseTemplate(src []byte, file string) (hclsyntax.Expression, error) {
	text, diags := hclsyntax.ParseTemplate(src, file, hcl.InitialPos)
	if diags.HasErrors() {
		if strings.HasPrefix(diags[0].Summary, "Unclosed") { // HCL names the first line of the file
			tokens, _ := hclsyntax.LexTemplate(src, file, hcl.InitialPos)
			for _, t := range tokens {
				if t.Type == hclsyntax.TokenTemplateInterp {
					diags[0].Subject = &t.Range
				}
			}
		}
		return nil, templateError(diags[:1])
	}
	if alone, is := text.(*hclsyntax.TemplateWrapExpr); is { // "${x}" would keep the type of x
		parts := []hclsyntax.Expression{alone.Wrapped}
		text = &hclsyntax.TemplateExpr{Parts: parts, SrcRange: alone.SrcRange}
	}
	return text, nil
}

// fill renders a template.
func fill(text hclsyntax.Expression, values map[string]cty.Value) ([]byte, error) {
	v, diags := text.Value(&hcl.EvalContext{Variables: values, Functions: syntax.Functions()})
	if diags.HasErrors() {
		return nil, templateError(syntax.Distinct(syntax.Plain(diags)))
	}
	return []byte(v.AsString()), nil
}

// templateError returns the errors with file and line.
func templateError(diags hcl.Diagnostics) error {
	var lines []string
	for _, d := range diags {
		at := syntax.Subject(d)
		detail, _, _ := strings.Cut(d.Detail, "\n\n") // then follows what languageHint says
		lines = append(lines, fmt.Sprintf("%s:%d: %s: %s", at.Filename, at.Start.Line,
			strings.ToLower(d.Summary[:1])+d.Summary[1:], detail))
	}
	return errors.New(strings.Join(lines, "\n") + languageHint)
}

// valuesOf returns the fields of a value for a template, by way of JSON: an address becomes a text, and a
// struct an object with the names of its tags.
func valuesOf(v any) (map[string]cty.Value, error) {
	text, err := json.Marshal(v)
	if err != nil {
		return nil, err
	}
	var object ctyjson.SimpleJSONValue
	if err := object.UnmarshalJSON(text); err != nil {
		return nil, err
	}
	return object.AsValueMap(), nil
}

// Templates had been in the language of Go's text/template: {{ .vip }}, {{ range .nodes }}.
var (
	keyName   = regexp.MustCompile(`^[a-z][a-z0-9_]*$`)
	goAction  = regexp.MustCompile(`\{\{[^\n]*?(?:\}\}|\n|$)`)
	goMention = regexp.MustCompile(`[ ({$-]\.([a-z][a-z0-9_]*)`)
	goKey     = regexp.MustCompile(`^\{\{-?\s*\$?\.([a-z][a-z0-9_]*)\s*-?\}\}$`)
)

// checkParts returns the first error of check.
func checkParts(parts []part, keys []string) error {
	for _, p := range parts {
		if err := p.check(keys); err != nil {
			return err
		}
	}
	return nil
}

// check refuses a name that is none of the keys, and an action of a Go template, which castle would copy as
// it is. Without keys, every name in lower case is one, and every action is refused. With keys, only actions
// that mention one are: files for Flux may contain actions for operators.
func (p part) check(keys []string) error {
	for _, v := range p.text.Variables() {
		name := v.RootName()
		if keys == nil && keyName.MatchString(name) || slices.Contains(keys, name) {
			continue
		}
		return fmt.Errorf("%s:%d: %s: the template has no such key%s%s", p.file,
			v.SourceRange().Start.Line, name, syntax.DidYouMean(name, keys), languageHint)
	}
	isKey := func(m [][]byte) bool { return slices.Contains(keys, string(m[1])) }
	tokens, _ := hclsyntax.LexTemplate(p.src, p.file, hcl.InitialPos)
	for _, t := range tokens {
		if t.Type != hclsyntax.TokenStringLit || !bytes.Contains(t.Bytes, []byte("{{")) {
			continue
		}
		line, _, _ := bytes.Cut(p.src[t.Range.Start.Byte:], []byte("\n")) // a $ ends the token
		for _, action := range goAction.FindAll(line, -1) {
			if keys != nil && !slices.ContainsFunc(goMention.FindAllSubmatch(action, -1), isKey) {
				continue
			}
			write := "${…}, %{ if … } or %{ for … }"
			if m := goKey.FindSubmatch(action); m != nil {
				write = "${" + string(m[1]) + "}"
			}
			return fmt.Errorf("%s:%d: %s: castle no longer reads Go's templates; write %s\n  templates are "+
				"in the language of Terraform's templatefile; ${\"{{\"} is {{ in the file", p.file,
				t.Range.Start.Line, action, write)
		}
	}
	return nil
}

// render writes the file with the answers, HCL as `terraform fmt` would.
func (p part) render(answers map[string]cty.Value) ([]byte, error) {
	text, err := fill(p.text, answers)
	if err != nil {
		return nil, err
	}
	if ext := filepath.Ext(p.name); ext != ".hcl" && ext != ".tfvars" && ext != ".tf" {
		return text, nil
	}
	if _, diags := hclsyntax.ParseConfig(text, p.file, hcl.InitialPos); diags.HasErrors() {
		return nil, fmt.Errorf("%w (with the answers filled in)", diags)
	}
	return hclwrite.Format(text), nil
}
