package docs_test

import (
	"fmt"
	"io/fs"
	"net/url"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
	"unicode"
)

var (
	codeSpan  = regexp.MustCompile("`[^`]*`")
	linkForms = []*regexp.Regexp{
		regexp.MustCompile(`\]\(<?([^)\s>]+)>?(?: "[^"]*")?\)`), // [text](target), ![text](target "title")
		regexp.MustCompile(`^\[[^\]]+\]:\s+(\S+)`),              // [text]: target
		regexp.MustCompile(`<(?:img|a)\s[^>]*(?:src|href)="([^"]+)"`),
	}
	headingLine = regexp.MustCompile(`^#{1,6} +(.*?) *#*$`)
	linkText    = regexp.MustCompile(`\[([^\]]*)\]\([^)]*\)`)
)

// TestLinksLeadSomewhere checks every link of the documentation: files and
// headings exist, and addresses of other sites are well formed.
func TestLinksLeadSomewhere(t *testing.T) {
	count := 0
	for _, file := range documents(t) {
		for n, line := range prose(t, file) {
			for _, form := range linkForms {
				for _, m := range form.FindAllStringSubmatch(codeSpan.ReplaceAllString(line, ""), -1) {
					count++
					if err := follow(t, file, m[1]); err != nil {
						t.Errorf("%s:%d: %v", file, n+1, err)
					}
				}
			}
		}
	}
	if count == 0 {
		t.Error("the documentation has no link")
	}
}

// follow returns what is wrong with a link in a file.
func follow(t *testing.T, file, target string) error {
	u, err := url.Parse(target)
	if err != nil {
		return err
	}
	if u.Scheme != "" {
		if web := u.Scheme == "https" || u.Scheme == "http"; !web || !strings.Contains(u.Host, ".") {
			return fmt.Errorf("link %s: no address of a site", target)
		}
		return nil
	}
	to := file
	if u.Path != "" {
		to = filepath.Join(filepath.Dir(file), filepath.FromSlash(u.Path))
	}
	if outside := strings.HasPrefix(to, filepath.Join("..", "..")); outside {
		return fmt.Errorf("link %s leads out of the repository", target)
	}
	if _, err := os.Stat(to); err != nil {
		return fmt.Errorf("link %s: %w", target, err)
	}
	if u.Fragment != "" && !slices.Contains(anchors(t, to), u.Fragment) {
		return fmt.Errorf("link %s: %s has no such heading", target, to)
	}
	return nil
}

// documents are the Markdown files of the repository.
func documents(t *testing.T) (files []string) {
	t.Helper()
	err := filepath.WalkDir("..", func(path string, d fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		name := d.Name()
		hidden := name != ".." && strings.HasPrefix(name, ".")
		if d.IsDir() && (hidden || name == "testdata" || name == "bin" || name == "without") {
			return fs.SkipDir
		}
		if strings.HasSuffix(name, ".md") {
			files = append(files, path)
		}
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	return files
}

// prose are the lines of a file; those of fenced blocks are empty.
func prose(t *testing.T, file string) []string {
	t.Helper()
	text, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	lines, fenced := strings.Split(string(text), "\n"), false
	for i, line := range lines {
		fence := strings.HasPrefix(strings.TrimSpace(line), "```")
		if fenced || fence {
			lines[i] = ""
		}
		fenced = fenced != fence
	}
	return lines
}

// anchors are the headings of a file as GitHub names them in links.
func anchors(t *testing.T, file string) (all []string) {
	t.Helper()
	seen := map[string]int{}
	for _, line := range prose(t, file) {
		m := headingLine.FindStringSubmatch(line)
		if m == nil {
			continue
		}
		anchor := strings.Map(func(r rune) rune {
			switch {
			case unicode.IsLetter(r) || unicode.IsDigit(r) || r == '-' || r == '_':
				return unicode.ToLower(r)
			case r == ' ':
				return '-'
			}
			return -1
		}, linkText.ReplaceAllString(m[1], "$1"))
		n := seen[anchor]
		seen[anchor]++
		if n > 0 {
			anchor = fmt.Sprintf("%s-%d", anchor, n)
		}
		all = append(all, anchor)
	}
	return all
}
