// Package syntax parses files in HCL and reports each mistake once. HCL reads on after an error and reports
// what follows from it: after a missing quote, every quote closes what it should open. So where a file has an
// error, Parse parses each top-level attribute and block alone. One begins where a line is not indented.
// Parse reports the first error of each and reads the others.
package syntax

import (
	"bytes"
	"fmt"
	"regexp"
	"slices"
	"strings"
	"unicode"
	"unicode/utf8"

	"github.com/hashicorp/hcl/v2"
	"github.com/hashicorp/hcl/v2/hclsyntax"
	"github.com/zclconf/go-cty/cty"

	"github.com/ephemeral-castle/castle/internal/secret"
)

// Unread is the Extra of an error: what could not be read.
type Unread struct {
	Name   string // the word that the attribute or block begins with; "": anything of the file may be missing
	All    bool   // likewise
	hidden bool   // the line may hold any value
}

// Unquoted keeps ui from printing the line if it may hold a secret.
func (u Unread) Unquoted() bool { return u.hidden || secret.LikelyName(u.Name) }

// Names returns the names that errors hide; all reports whether they may hide any other.
func Names(diags hcl.Diagnostics) (names []string, all bool) {
	for _, d := range diags {
		if x, is := d.Extra.(Unread); is && x.Name != "" && !x.All {
			names = append(names, x.Name)
		} else if is {
			all = true
		}
	}
	return names, all
}

// Parse parses a file in native syntax. The file has what could be read; it is nil where nothing could.
func Parse(src []byte, name string) (*hcl.File, hcl.Diagnostics) {
	f, all := hclsyntax.ParseConfig(src, name, hcl.InitialPos)
	if !all.HasErrors() {
		return f, all
	}
	if !utf8.Valid(src) {
		d := wrong(hcl.Range{Filename: name, Start: hcl.InitialPos, End: hcl.InitialPos}, "file not readable",
			"It is no text in UTF-8. Save it as UTF-8.")
		d.Extra = Unread{}
		return nil, hcl.Diagnostics{d}
	}
	var diags hcl.Diagnostics
	var yaml *hcl.Diagnostic // the first line of YAML stands for all
	rest := bytes.Clone(src)
	parts := items(src, name)
	for i, x := range parts {
		d := x.problem(src, name)
		if d == nil {
			continue
		}
		blank(rest[x.from:x.to])
		switch {
		case i+1 < len(parts) && parts[i+1].conflict: // the conflict is inside of it
			continue
		case yamlLine.Match(src[x.from:x.to]) && yaml != nil:
			yaml.Extra = Unread{Name: yaml.Extra.(Unread).Name, All: true}
			continue
		case yamlLine.Match(src[x.from:x.to]):
			yaml = d
		}
		d.Extra = Unread{Name: x.name(src), hidden: src[x.from] == '{'} // one line of JSON may be all
		diags = append(diags, d)
	}
	f, left := hclsyntax.ParseConfig(rest, name, hcl.InitialPos)
	if len(diags) == 0 || left.HasErrors() {
		d := QuoteOneLine(nameInvisible(all[0], src))
		d.Extra = Unread{}
		diags = hcl.Diagnostics{d}
		blank(rest)
		f, _ = hclsyntax.ParseConfig(rest, name, hcl.InitialPos)
	}
	f.Bytes = src
	return f, diags
}

// item is a top-level attribute or block of a file, or the two sides of a merge conflict.
type item struct {
	from, to int
	at       hcl.Pos
	conflict bool
	open     *hcl.Range // the beginning of a heredoc or conflict that goes on to the end of the file
}

// items cuts a file. It returns one for the whole file where blocks are not indented.
func items(src []byte, name string) []item {
	var all []item
	var open *hcl.Range
	pos, end, alone := hcl.InitialPos, "", false // end is the line that ends a heredoc or a conflict
	for text := range bytes.Lines(src) {
		trimmed := strings.TrimSpace(string(text))
		next := hcl.Pos{Line: pos.Line + 1, Column: 1, Byte: pos.Byte + len(text)}
		begins := end == "" && trimmed != "" && !strings.ContainsRune(" \t}])", rune(text[0]))
		switch {
		case begins && alone && !conflict.MatchString(trimmed):
			return []item{{to: len(src), at: hcl.InitialPos}}
		case begins:
			all = append(all, item{from: pos.Byte, at: pos, conflict: conflict.MatchString(trimmed)})
		case end == trimmed, end == conflictEnd && strings.HasPrefix(trimmed, end):
			end = ""
		}
		alone = begins && strings.HasSuffix(trimmed, "{")
		m := heredoc.FindStringSubmatch(trimmed)
		if begins && all[len(all)-1].conflict {
			m = []string{"", conflictEnd}
		}
		if m != nil && end == "" {
			width := len(trimmed)
			open = &hcl.Range{Filename: name, Start: pos,
				End: hcl.Pos{Line: pos.Line, Column: 1 + width, Byte: pos.Byte + width}}
			end = m[1]
		}
		if pos = next; len(all) > 0 {
			all[len(all)-1].to = pos.Byte
		}
	}
	if len(all) > 0 && end != "" {
		all[len(all)-1].open = open
	}
	return all
}

// conflictEnd begins the last line of a merge conflict.
const conflictEnd = ">>>>>>>"

var (
	conflict   = regexp.MustCompile(`^(<{7}|\|{7}|={7}|>{7})( |$)`)
	address    = regexp.MustCompile(`=\s*[0-9]+[.:/][\w.:/]*[.:/]`)
	yamlLine   = regexp.MustCompile(`^[\w-]+:\s`)
	spaced     = regexp.MustCompile(`(?m)[^<\n]<<-?[ \t]+[A-Za-z_]\w*[ \t\r]*$`)
	heredoc    = regexp.MustCompile(`<<-?\s*([A-Za-z_]\w*)$`)
	identifier = regexp.MustCompile(`^"?([A-Za-z_][\w-]*)`)
)

// name is the identifier that the item begins with; "" where anything may be in it.
func (x item) name(src []byte) string {
	m := identifier.FindSubmatch(src[x.from:x.to])
	if m == nil || x.open != nil || x.conflict {
		return ""
	}
	return string(m[1])
}

// problem returns the first error of the item, parsed alone, or nil.
func (x item) problem(src []byte, name string) *hcl.Diagnostic {
	_, diags := hclsyntax.ParseConfig(src[x.from:x.to], name, x.at)
	if !diags.HasErrors() {
		return nil
	}
	line := firstLine(src[1+bytes.LastIndexByte(src[:diags[0].Subject.Start.Byte], '\n'):])
	d, text := QuoteOneLine(diags[0]), src[x.from:x.to]
	word := hcl.Range{Filename: name, Start: x.at, End: hcl.Pos{Line: x.at.Line, Column: 3, Byte: x.from + 2}}
	switch at, bracket := unbalanced(text, name, x.at); {
	case x.conflict:
		return wrong(word, "merge conflict", "Git has left both sides of a conflict here. Keep one, and "+
			"remove the lines that begin with <<<<<<<, ======= and >>>>>>>.")
	case spaced.Match(text):
		return wrong(x.line(text, spaced.FindIndex(text)[0], name), "heredoc: blank after <<",
			"Write <<EOT without a blank.")
	case x.open != nil:
		return x.unclosed(text, name)
	case bytes.HasPrefix(text, []byte("/*")):
		return wrong(word, "comment not closed", "Write */ at its end.")
	case bytes.HasPrefix(text, []byte("{")):
		return wrong(word, "JSON instead of HCL",
			"The file is written as JSON. Write name = value, each in a line of its own.")
	case yamlLine.Match(text):
		return wrong(word, "YAML instead of HCL",
			"This is written as YAML. An argument is written name = value, a block with { and }.")
	case (bytes.Count(line, []byte(`"`))-bytes.Count(line, []byte(`\"`)))%2 == 1:
		return wrong(*d.Subject, "quote missing",
			"A text begins or ends in this line without its other quote. Write both in the same line.")
	case bytes.Count(line, []byte("${")) > bytes.Count(line, []byte("}")):
		return wrong(*d.Subject, "${ is not closed", "Write } in the same line.")
	case address.Match(line):
		return wrong(*d.Subject, "quotes missing", "Write a text, such as an address, in quotes.")
	case bracket != "" && strings.Contains("{[(", bracket):
		return wrong(at, bracket+" is not closed", "Write %s where it ends.",
			map[string]string{"{": "}", "[": "]", "(": ")"}[bracket])
	case bracket != "":
		return wrong(at, bracket+" closes nothing", "Remove it, or write what it should close.")
	}
	return nameInvisible(d, src)
}

// nameInvisible names a character that HCL refuses and nobody sees.
func nameInvisible(d *hcl.Diagnostic, src []byte) *hcl.Diagnostic {
	c, _ := utf8.DecodeRune(src[d.Subject.Start.Byte:])
	if d.Summary == "Invalid character" && (!unicode.IsGraphic(c) || unicode.IsSpace(c)) {
		d.Detail = fmt.Sprintf("The invisible character U+%04X stands here. Remove it, or write a blank.", c)
	}
	return d
}

// unclosed is the problem of a heredoc that goes on to the end of the file.
func (x item) unclosed(text []byte, name string) *hcl.Diagnostic {
	begin := x.open.Start.Byte - x.from
	first, rest, _ := bytes.Cut(text[begin:], []byte("\n"))
	m := heredoc.FindSubmatch(bytes.TrimSpace(first))
	if m == nil { // a conflict's
		return wrong(*x.open, "heredoc not closed", "Write the word after << alone in a line after the text.")
	}
	at := begin + len(first) + 1
	for line := range bytes.Lines(rest) {
		if after, is := strings.CutPrefix(strings.TrimSpace(string(line)), string(m[1])); is {
			return wrong(x.line(text, at, name), "heredoc not closed",
				"Write %s alone in its line, and %q in the next one.", m[1], strings.TrimSpace(after))
		}
		at += len(line)
	}
	return wrong(*x.open, "heredoc not closed", "Write %s alone in a line after the text.", m[1])
}

// line is the range of the line of the item's text in which an offset lies.
func (x item) line(text []byte, offset int, name string) hcl.Range {
	number := x.at.Line + bytes.Count(text[:offset], []byte("\n"))
	begin := 1 + bytes.LastIndexByte(text[:offset], '\n')
	end := begin + len(bytes.TrimRight(firstLine(text[begin:]), "\r\n"))
	return hcl.Range{Filename: name,
		Start: hcl.Pos{Line: number, Column: 1, Byte: x.from + begin},
		End:   hcl.Pos{Line: number, Column: 1 + end - begin, Byte: x.from + end}}
}

func firstLine(text []byte) []byte {
	first, _, _ := bytes.Cut(text, []byte("\n"))
	return first
}

// unbalanced finds the bracket that nothing closes, by the indentation of its line, or that closes nothing.
func unbalanced(src []byte, name string, start hcl.Pos) (at hcl.Range, bracket string) {
	tokens, _ := hclsyntax.LexConfig(src, name, start)
	var open hclsyntax.Tokens
	var indents []int
	line, indent := 0, 0
	for _, t := range tokens {
		first := t.Range.Start.Line != line
		if first {
			line, indent = t.Range.Start.Line, t.Range.Start.Column
		}
		switch t.Type {
		case hclsyntax.TokenOBrace, hclsyntax.TokenOBrack, hclsyntax.TokenOParen:
			open, indents = append(open, t), append(indents, indent)
		case hclsyntax.TokenCBrace, hclsyntax.TokenCBrack, hclsyntax.TokenCParen:
			if len(open) == 0 {
				return t.Range, string(t.Bytes)
			}
			i := len(open) - 1
			pairs := map[byte]byte{'{': '}', '[': ']', '(': ')'}
			if pairs[open[i].Bytes[0]] != t.Bytes[0] || first && indents[i] > indent {
				return open[i].Range, string(open[i].Bytes)
			}
			open, indents = open[:i], indents[:i]
		}
	}
	if len(open) == 0 {
		return at, ""
	}
	return open[len(open)-1].Range, string(open[len(open)-1].Bytes)
}

// wrong makes an error.
func wrong(at hcl.Range, summary, detail string, args ...any) *hcl.Diagnostic {
	return &hcl.Diagnostic{Severity: hcl.DiagError, Summary: summary, Detail: fmt.Sprintf(detail, args...),
		Subject: &at}
}

// blank replaces a text with spaces; its lines remain.
func blank(text []byte) {
	for i, c := range text {
		if c != '\n' && c != '\r' {
			text[i] = ' '
		}
	}
}

// Reduce drops the errors of a decoded file that follow from others in an expression. It makes one error of a
// missing argument and of an unexpected one in the same block: the user meant that.
func Reduce(f *hcl.File, diags hcl.Diagnostics) hcl.Diagnostics {
	all := map[hcl.Range]subject{}
	addSubjects(all, f.Body.(*hclsyntax.Body))
	about := func(d *hcl.Diagnostic) subject { return all[*d.Subject] }
	var kept hcl.Diagnostics
	for _, d := range diags {
		it := about(d)
		sameLine := func(k *hcl.Diagnostic) bool {
			return !about(k).missing && k.Subject.Start.Line == d.Subject.Start.Line
		}
		if slices.ContainsFunc(kept, sameLine) {
			continue
		}
		earlier := func(e *hcl.Diagnostic) bool { // HCL's order of arguments is that of a map
			return about(e).argument && about(e).in == it.in && e.Subject.Start.Byte < d.Subject.Start.Byte
		}
		lacks := func(m *hcl.Diagnostic) bool { return about(m).missing && about(m).in == it.in }
		i := slices.IndexFunc(kept, lacks)
		if i >= 0 && it.argument && !slices.ContainsFunc(diags, earlier) {
			d.Detail += " " + kept[i].Detail
			kept = slices.Delete(kept, i, i+1)
		}
		if place := rightPlaces()[it.name]; place != "" {
			d.Detail = fmt.Sprintf("%q is not expected here. %s", it.name, place)
		}
		kept = append(kept, QuoteOneLine(d))
	}
	return kept
}

// subject is what HCL reports at a range: an argument or a type of block that is not expected, at its name,
// or a missing argument, at the beginning of its block.
type subject struct {
	name              string
	in                *hclsyntax.Body
	argument, missing bool
}

// addSubjects adds the subjects of a body. At the second block without labels an error is about their number.
func addSubjects(all map[hcl.Range]subject, b *hclsyntax.Body) {
	all[b.MissingItemRange()] = subject{in: b, missing: true}
	for name, argument := range b.Attributes {
		all[argument.NameRange] = subject{name: name, in: b, argument: true}
	}
	seen := map[string]bool{}
	for _, inner := range b.Blocks {
		if !seen[inner.Type] || len(inner.Labels) > 0 {
			all[inner.TypeRange] = subject{name: inner.Type, in: b}
		}
		seen[inner.Type] = true
		addSubjects(all, inner.Body)
	}
}

// rightPlaces are arguments and blocks of other places and other tools, and what to write instead.
func rightPlaces() map[string]string {
	const terraform = "Terraform belongs into the files of a stage, stages/<layer>/<stage>/*.tf."
	const order = "References to outputs order the stages. Where no value flows, write needs = [layer]."
	return map[string]string{
		"protect":  "Write cluster { protect = true } in cluster.hcl.",
		"gate":     "A gate is no part of the block stage of stage.hcl: write it below.",
		"stage":    "Stages stand side by side in clusters/<name>/<platform>/cluster.hcl.",
		"backend":  "State that machines share is in a store: write state { store = … } in castle.hcl.",
		"variable": terraform, "locals": terraform, "module": terraform, "resource": terraform,
		"data": terraform, "output": terraform, "provider": terraform, "terraform": terraform,
		"depends_on": order, "dependency": order, "dependencies": order,
	}
}

// QuoteOneLine has a diagnostic quote the line where it begins, without those around it.
func QuoteOneLine(d *hcl.Diagnostic) *hcl.Diagnostic {
	d.Context = nil
	if at := d.Subject; at.End.Line > at.Start.Line {
		before := at.Start
		before.Column, before.Byte = max(1, before.Column-1), max(0, before.Byte-1)
		d.Subject = &hcl.Range{Filename: at.Filename, Start: before, End: at.Start}
	}
	return d
}

// CollectTexts adds every known string inside v, at any depth, to found.
func CollectTexts(found map[string]bool, v cty.Value) {
	cty.Walk(v, func(_ cty.Path, v cty.Value) (bool, error) { //nolint:errcheck // the function returns none
		if Text(v) != "" {
			found[Text(v)] = true
		}
		return true, nil
	})
}
