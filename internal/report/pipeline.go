package report

import (
	"crypto/sha256"
	"fmt"
	"io"
	"path/filepath"
	"regexp"
	"strings"
	"time"

	"github.com/ephemeral-castle/castle/internal/foreign"
)

// Pipeline is a system that runs castle in a job, and reads commands from its output.
type Pipeline string

// The systems that castle knows.
const (
	NoPipeline Pipeline = ""
	GitHub     Pipeline = "github"
	GitLab     Pipeline = "gitlab"
)

// FindPipeline returns the system that the environment names.
func FindPipeline(getenv func(string) string) Pipeline {
	switch {
	case getenv("GITHUB_ACTIONS") == "true":
		return GitHub
	case getenv("GITLAB_CI") == "true":
		return GitLab
	}
	return NoPipeline
}

// OpenSection begins lines that the job's page can fold. Stages run side by side, so a run is one section.
func (p Pipeline) OpenSection(w io.Writer, title string, at time.Time) {
	switch p {
	case GitHub:
		fmt.Fprintf(w, "::group::%s\n", gitHubText.Replace(foreign.Text(title)))
	case GitLab:
		fmt.Fprintf(w, "\x1b[0Ksection_start:%d:%s\r\x1b[0K%s\n", at.Unix(), sectionName(title),
			foreign.Text(foreign.OneLine(title)))
	}
}

// CloseSection ends the section of the title.
func (p Pipeline) CloseSection(w io.Writer, title string, at time.Time) {
	switch p {
	case GitHub:
		fmt.Fprintln(w, "::endgroup::")
	case GitLab:
		fmt.Fprintf(w, "\x1b[0Ksection_end:%d:%s\r\x1b[0K\n", at.Unix(), sectionName(title))
	}
}

// sectionChars are those that GitLab does not accept in the name of a section.
var sectionChars = regexp.MustCompile(`[^a-zA-Z0-9_.-]+`)

func sectionName(title string) string { return sectionChars.ReplaceAllString(title, "_") }

// Annotation is a message that a pipeline shows beside a line of the repository.
type Annotation struct {
	Warning bool
	File    string // relative to the Git repository's root; empty: the message has no place
	Line    int
	Title   string
	Text    string
}

// Annotate writes an annotation, if the system reads any.
func (p Pipeline) Annotate(w io.Writer, a Annotation) {
	if p != GitHub {
		return
	}
	kind, properties := "error", []string{}
	if a.Warning {
		kind = "warning"
	}
	if a.File != "" {
		properties = append(properties, "file="+gitHubProperty.Replace(filepath.ToSlash(a.File)))
		if a.Line > 0 {
			properties = append(properties, fmt.Sprintf("line=%d", a.Line))
		}
	}
	properties = append(properties, "title="+gitHubProperty.Replace(foreign.Text(foreign.OneLine(a.Title))))
	fmt.Fprintf(w, "::%s %s::%s\n", kind, strings.Join(properties, ","),
		gitHubText.Replace(foreign.Text(a.Text)))
}

// The characters that end a command of GitHub, or a property of it.
var (
	gitHubText     = strings.NewReplacer("%", "%25", "\r", "%0D", "\n", "%0A")
	gitHubProperty = strings.NewReplacer("%", "%25", "\r", "%0D", "\n", "%0A", ":", "%3A", ",", "%2C")
)

// Outputs are the values that later steps of a job can use, as lines of $GITHUB_OUTPUT.
func (r *Report) Outputs(endpoint string) string {
	return gitHubOutput("result", r.Result) + gitHubOutput("run", r.Run) +
		gitHubOutput("changed", fmt.Sprint(r.Counts.Changed() > 0)) + gitHubOutput("endpoint", endpoint)
}

// gitHubOutput is one value. One with several lines gets a delimiter that it cannot contain: its own hash.
func gitHubOutput(name, value string) string {
	if !strings.ContainsAny(value, "\r\n") {
		return name + "=" + value + "\n"
	}
	delimiter := fmt.Sprintf("castle_%x", sha256.Sum256([]byte(value)))
	return name + "<<" + delimiter + "\n" + value + "\n" + delimiter + "\n"
}

// Annotations are the failed stages of a run. place returns the line that declares a stage.
func (r *Report) Annotations(place func(stage string) (file string, line int)) (all []Annotation) {
	for _, s := range r.Stages {
		if s.Result != failed {
			continue
		}
		text := s.Reason
		for _, c := range r.Causes {
			if len(c.Stages) > 0 && c.Stages[0] == s.Name {
				text = c.Text + "\n" + text
			}
		}
		file, line := place(s.Name)
		all = append(all, Annotation{File: file, Line: line, Text: text,
			Title: fmt.Sprintf("castle %s: stage %s/%s failed", r.Kind, s.Layer, s.Name)})
	}
	return all
}

// FormatOf returns the format that the extension of a report's file names.
func FormatOf(file string) (string, error) {
	switch strings.ToLower(filepath.Ext(file)) {
	case ".txt":
		return "text", nil
	case ".md", ".markdown":
		return "markdown", nil
	case ".html", ".htm":
		return "html", nil
	case ".json":
		return "json", nil
	case ".xml":
		return "junit", nil
	}
	return "", fmt.Errorf("%s: the extension names the format: choose one of .txt, .md, .html, .json, .xml "+
		"(JUnit)", file)
}

// Write prints the report in a format: text, markdown, html, json or junit.
func (r *Report) Write(w io.Writer, format string) error {
	switch format {
	case "text":
		var text strings.Builder
		r.WriteText(&text)
		_, err := io.WriteString(w, text.String())
		return err
	case "markdown":
		return r.WriteMarkdown(w)
	case "html":
		return r.WriteHTML(w)
	case "json":
		return r.WriteJSON(w)
	case "junit":
		return r.WriteJUnit(w)
	}
	return fmt.Errorf("%q is no format; choose one of %s", format, strings.Join(Formats(), ", "))
}

// Formats lists the formats of Write.
func Formats() []string { return []string{"text", "markdown", "html", "json", "junit"} }
