package report

import (
	"fmt"
	"io"
	"strings"

	"github.com/siderolabs/gen/xslices"
)

// WriteMarkdown prints the report for the page of a pipeline or an issue.
func (r *Report) WriteMarkdown(w io.Writer) error {
	var b strings.Builder
	fmt.Fprintf(&b, "### castle %s\n\n", markdown(r.Title()))
	fmt.Fprintf(&b, "Run `%s`, %s. %s.\n\n", r.Run, r.when(), markdown(strings.Join(r.Totals(), "; ")))
	writeItems(&b, "Causes", xslices.Map(r.Causes, Cause.String))
	if len(r.Causes) == 0 && r.Error != "" {
		fmt.Fprint(&b, "**Error**\n\n")
		WriteFenced(&b, r.Error+"\n")
	}
	if r.Resume != "" {
		fmt.Fprintf(&b, "Resume with %s\n\n", code(r.Resume))
	}
	writeItems(&b, "Longer than usual (medians of "+r.runsText()+")", xslices.Map(r.Slower, Slower.String))
	if len(r.Stages) > 0 {
		fmt.Fprint(&b, "| stage | result | Terraform | gates | total |\n| --- | --- | ---: | ---: | ---: |\n")
	}
	for _, s := range r.Stages {
		name := markdown(s.Layer + "/" + s.Name)
		if s.Critical {
			name = "**" + name + "**"
		}
		fmt.Fprintf(&b, "| %s | %s | %s | %s | %s |\n", name, markdown(ResultText(s.Result)),
			orNone(s.TerraformSeconds), orNone(s.GateSeconds), orNone(s.Seconds))
	}
	for i, m := range r.Machines {
		if i == 0 {
			fmt.Fprintln(&b)
		}
		fmt.Fprintf(&b, "* %s\n", markdown(machineLine(m)))
	}
	if len(r.CriticalPath) > 0 {
		fmt.Fprintf(&b, "\nCritical path (bold), %s: %s\n", Took(r.CriticalSeconds), markdown(r.Path()))
	}
	fmt.Fprint(&b, "\n<details><summary>The whole report</summary>\n\n")
	var whole strings.Builder
	r.WriteText(&whole)
	WriteFenced(&b, whole.String())
	fmt.Fprint(&b, "</details>\n")
	_, err := io.WriteString(w, b.String())
	return err
}

// Cut returns a page of Markdown in at most limit bytes. If it cuts the page, it closes what is open there
// and adds a line that says so; if that has no room, it returns nothing.
func Cut(page string, limit int) string {
	const closed = "\n</details>\n"
	const note = "\nThe page is cut here: its system shows no more. `castle report` has all of it.\n"
	if len(page) <= limit {
		return page
	}
	var kept strings.Builder
	fence, folded := "", false
	for line := range strings.Lines(page) {
		marker := line[:len(line)-len(strings.TrimLeft(line, "`"))]
		if kept.Len()+len(line)+len(fence)+len(marker)+len("\n"+closed+note) > limit {
			break
		}
		kept.WriteString(line)
		switch {
		case fence == "" && len(marker) >= len("```"):
			fence = marker + "\n"
		case fence == line:
			fence = ""
		case fence == "" && strings.HasPrefix(line, "<details>"):
			folded = true
		case fence == "" && strings.HasPrefix(line, "</details>"):
			folded = false
		}
	}
	if kept.Len() == 0 {
		return ""
	}
	end := fence
	if folded {
		end += closed
	}
	return kept.String() + end + note
}

// writeItems writes a title and an item for each text.
func writeItems(b *strings.Builder, title string, items []string) {
	if len(items) == 0 {
		return
	}
	fmt.Fprintf(b, "**%s**\n\n", markdown(title))
	for _, item := range items {
		fmt.Fprintf(b, "- %s\n", strings.ReplaceAll(markdown(item), "\n", "<br>"))
	}
	fmt.Fprintln(b)
}

// escaper escapes what Markdown or HTML would interpret.
var escaper = strings.NewReplacer("&", "&amp;", "<", "&lt;", ">", "&gt;", "|", `\|`, "*", `\*`, "_", `\_`,
	"`", "\\`", "[", `\[`, "]", `\]`, "#", `\#`, "~", `\~`, `\`, `\\`, "@", "@<!-- -->")

// markdown escapes a text for a line of Markdown. An @ notifies nobody.
func markdown(text string) string { return escaper.Replace(text) }

// code quotes a text as code in a line, with a fence that is longer than any in it.
func code(text string) string {
	fence := "`"
	for strings.Contains(text, fence) {
		fence += "`"
	}
	return fence + " " + strings.ReplaceAll(text, "\n", " ") + " " + fence
}

// WriteFenced writes a text as a block of code, whose fence is longer than any in the text.
func WriteFenced(w io.Writer, text string) {
	fence := "```"
	for strings.Contains(text, fence) {
		fence += "`"
	}
	fmt.Fprintf(w, "%stext\n%s%[1]s\n\n", fence, text)
}
