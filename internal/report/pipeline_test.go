package report_test

import (
	"bytes"
	"strings"
	"testing"

	"github.com/ephemeral-castle/castle/internal/report"
)

// TestPipelineCommands compares what GitHub and GitLab read with golden files.
func TestPipelineCommands(t *testing.T) {
	r := newReport()
	place := func(string) (string, int) { return "clusters/blue,a/proxmox/cluster.hcl", 12 }
	for _, p := range []report.Pipeline{report.GitHub, report.GitLab} {
		var got bytes.Buffer
		p.OpenSection(&got, "castle create blue/proxmox", began)
		p.CloseSection(&got, "castle create blue/proxmox", r.Ended)
		for _, a := range r.Annotations(place) {
			p.Annotate(&got, a)
		}
		p.Annotate(&got, report.Annotation{Warning: true, Title: "a\n::warning",
			Text: "100 % sure\n::error::no"})
		if p == report.GitHub {
			got.WriteString(r.Outputs("https://192.168.1.1:6443"))
		}
		golden(t, string(p)+".txt", got.Bytes())
	}
	var none bytes.Buffer
	report.NoPipeline.OpenSection(&none, "a", began)
	report.NoPipeline.CloseSection(&none, "a", began)
	report.NoPipeline.Annotate(&none, report.Annotation{Text: "a"})
	if none.Len() > 0 {
		t.Errorf("without a pipeline: %q", none.String())
	}
}

// A value with several lines must not end its own block, nor add a value of its own.
func TestOutputWithSeveralLinesIsOneValue(t *testing.T) {
	r := newReport()
	evil := "a\nresult=succeeded\nEOF\ncastle_\nadded<<EOF"
	var values []string
	delimiter := ""
	for line := range strings.Lines(r.Outputs(evil)) {
		line = strings.TrimSuffix(line, "\n")
		name, rest, isBlock := strings.Cut(line, "<<")
		switch {
		case delimiter != "" && line == delimiter:
			delimiter = ""
		case delimiter != "":
		case isBlock:
			values, delimiter = append(values, name), rest
		default:
			name, _, _ := strings.Cut(line, "=")
			values = append(values, name)
		}
	}
	if got := strings.Join(values, " "); got != "result run changed endpoint" || delimiter != "" {
		t.Errorf("got the values %s, open block %q", got, delimiter)
	}
}

// GitHub shows nothing of a page that is too long.
func TestAPageThatIsCutIsWhole(t *testing.T) {
	page := "### title\n\n<details><summary>all</summary>\n\n````text\n```\n" +
		strings.Repeat("line\n", 500) + "````\n\n</details>\n"
	if report.Cut(page, len(page)) != page {
		t.Error("a page that fits is changed")
	}
	for limit := range len(page) {
		cut := report.Cut(page, limit)
		if len(cut) > limit {
			t.Fatalf("%d bytes, at most %d", len(cut), limit)
		}
		folded := strings.Contains(cut, "<details>") && !strings.Contains(cut, "</details>")
		if strings.Count(cut, "````") == 1 || folded {
			t.Fatalf("something is open in %q", cut)
		}
		if cut != "" && !strings.HasSuffix(cut, "`castle report` has all of it.\n") {
			t.Fatalf("it does not say that it is cut: %q", cut)
		}
	}
	if report.Cut(page, 400) == "" {
		t.Error("400 bytes are room enough")
	}
}

func TestFindPipeline(t *testing.T) {
	for variable, want := range map[string]report.Pipeline{
		"GITHUB_ACTIONS": report.GitHub, "GITLAB_CI": report.GitLab, "CI": report.NoPipeline,
	} {
		getenv := func(name string) string {
			if name == variable {
				return "true"
			}
			return ""
		}
		if got := report.FindPipeline(getenv); got != want {
			t.Errorf("%s=true: got %q, want %q", variable, got, want)
		}
	}
}
