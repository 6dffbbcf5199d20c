// Command licenses writes the licenses of every module that programs link, and of Go itself, into one file:
//
//	licenses -o FILE PROGRAM…
//
// The modules are those that the linker recorded in the programs, and the texts are in the module cache. It
// fails for a module without a license, and for licenses under which castle cannot be released.
package main

import (
	"bytes"
	"debug/buildinfo"
	"errors"
	"flag"
	"fmt"
	"io/fs"
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"runtime/debug"
	"slices"
	"strings"

	"golang.org/x/mod/module"
)

const own = "github.com/ephemeral-castle/castle"

var (
	license = regexp.MustCompile(`(?i)^(li[cs]en[cs]e|copying|notice|copyright|patents|unlicense)([-.].*)?$`)
	// A test's, or of what is not compiled.
	skipped = regexp.MustCompile(`(^|/)(testdata|_?examples?|docs?|test|tests|node_modules|\.[^/]+)$`)
	source  = regexp.MustCompile(`\.(go|html|tmpl|s|c|h)$`)
	refused = regexp.MustCompile(`(?i)business source license|gnu (affero )?general public license\s+` +
		`version|server side public license|commons clause`)
)

// A text is a license with the modules that have it.
type text struct {
	content []byte
	modules []string
}

func main() {
	out := flag.String("o", "", "write to `FILE`")
	flag.Parse()
	if err := run(*out, flag.Args()); err != nil {
		fmt.Fprintln(os.Stderr, "licenses:", err)
		os.Exit(1)
	}
}

func run(out string, programs []string) error {
	modules := map[string]string{} // folders by module and version
	goVersion := ""
	for _, program := range programs {
		info, err := buildinfo.ReadFile(program)
		if err != nil {
			return err
		}
		goVersion = info.GoVersion
		for _, m := range append(info.Deps, &info.Main) {
			if err := locate(modules, m); err != nil {
				return err
			}
		}
	}
	root, err := goEnv("GOROOT")
	if err != nil {
		return err
	}
	texts := map[string]*text{}
	problems := read(texts, "Go "+goVersion, filepath.Join(root, "LICENSE"))
	for _, m := range slices.Sorted(maps.Keys(modules)) {
		problems = errors.Join(problems, collect(texts, m, modules[m]))
	}
	if problems != nil {
		return problems
	}
	return os.WriteFile(out, page(texts), 0o644)
}

// locate finds a module in the module cache.
func locate(modules map[string]string, m *debug.Module) error {
	if m.Replace != nil {
		m = m.Replace
	}
	if m.Path == own || strings.HasPrefix(m.Path, own+"/") || strings.HasPrefix(m.Path, ".") || m.Path == "" {
		return nil // castle's own
	}
	cache, err := goEnv("GOMODCACHE")
	if err != nil {
		return err
	}
	path, pathErr := module.EscapePath(m.Path)
	version, versionErr := module.EscapeVersion(m.Version)
	if err := errors.Join(pathErr, versionErr); err != nil {
		return fmt.Errorf("%s %s: %w", m.Path, m.Version, err)
	}
	modules[m.Path+" "+m.Version] = filepath.Join(cache, path+"@"+version)
	return nil
}

var known = map[string]string{}

func goEnv(name string) (string, error) {
	if value, is := known[name]; is {
		return value, nil
	}
	out, err := exec.Command("go", "env", name).Output()
	known[name] = strings.TrimSpace(string(out))
	return known[name], err
}

// collect reads the licenses of a module: in its root, and in folders that hold code of others.
func collect(texts map[string]*text, module, dir string) error {
	found := 0
	err := filepath.WalkDir(dir, func(path string, e fs.DirEntry, err error) error {
		switch {
		case err != nil:
			return err
		case e.IsDir() && path != dir && skipped.MatchString(filepath.ToSlash(path)):
			return filepath.SkipDir
		case e.IsDir() || !license.MatchString(e.Name()) || source.MatchString(e.Name()):
			return nil
		}
		if filepath.Dir(path) == dir {
			found++
		}
		return read(texts, module, path)
	})
	if err == nil && found == 0 {
		err = fmt.Errorf("%s has no license in %s", module, dir)
	}
	return err
}

func read(texts map[string]*text, module, path string) error {
	content, err := os.ReadFile(path)
	if err != nil {
		return err
	}
	content = bytes.TrimSpace(bytes.ReplaceAll(content, []byte("\r\n"), []byte("\n")))
	if hit := refused.Find(content); hit != nil {
		return fmt.Errorf("%s is under a license that no release can have: %s: %s", module, path, hit)
	}
	key := strings.Join(strings.Fields(string(content)), " ") // the same text in other lines
	if texts[key] == nil {
		texts[key] = &text{content: content}
	}
	if !slices.Contains(texts[key].modules, module) {
		texts[key].modules = append(texts[key].modules, module)
	}
	return nil
}

// page writes each text once, below the modules that have it.
func page(texts map[string]*text) []byte {
	var b bytes.Buffer
	b.WriteString("The modules that this program links, and their licenses. The command\n")
	b.WriteString("`go mod download MODULE@VERSION` fetches the source of a module, and\n")
	b.WriteString("https://pkg.go.dev/MODULE@VERSION shows where it is kept.\n")
	for _, t := range texts {
		slices.Sort(t.modules)
	}
	byModules := func(a, c string) int {
		return strings.Compare(strings.Join(texts[a].modules, "\n")+a, strings.Join(texts[c].modules, "\n")+c)
	}
	for _, key := range slices.SortedFunc(maps.Keys(texts), byModules) {
		fmt.Fprintf(&b, "\n%s\n\n%s\n\n%s\n", strings.Repeat("=", 80),
			strings.Join(texts[key].modules, "\n"), texts[key].content)
	}
	return b.Bytes()
}
