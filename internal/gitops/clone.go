package gitops

import (
	"bytes"
	"fmt"
	"os"
	"path"
	"path/filepath"
	"slices"
	"strings"
)

// Branch returns the branch that a clone has checked out; "" for a folder that is no clone, or has none.
func Branch(folder string) string {
	head, _ := os.ReadFile(filepath.Join(gitFolder(folder), "HEAD")) //nolint:errcheck // then it has none
	branch, is := strings.CutPrefix(strings.TrimSpace(string(head)), "ref: refs/heads/")
	if !is || branch == ".invalid" { // of reftables
		return ""
	}
	return branch
}

// gitFolder is where Git keeps a clone's index and HEAD: .git, or the folder that this file names.
func gitFolder(folder string) string {
	git := filepath.Join(folder, ".git")
	text, err := os.ReadFile(git)
	if err != nil {
		return git // it is a folder
	}
	named := strings.TrimSpace(strings.TrimPrefix(string(text), "gitdir:"))
	if filepath.IsAbs(named) {
		return named
	}
	return filepath.Join(folder, named)
}

// The files with patterns of what is not in Flux's copy of the repository: Git does not commit the files of
// the first, and Flux leaves out those of the second.
const gitIgnore, sourceIgnore = ".gitignore", ".sourceignore"

// ignoreRule is one pattern of such a file.
type ignoreRule struct {
	at       Place
	segments []string // of the pattern, relative to the file's folder
	negated  bool
	folders  bool // it matches folders only
}

// ignoreRules reads the patterns of a folder's own file.
func (f *files) ignoreRules(folder, name string) []ignoreRule {
	file := path.Join(folder, name)
	if rules, known := f.rules[file]; known {
		return rules
	}
	var rules []ignoreRule
	data, _ := f.ReadFile(f.absolute(file)) //nolint:errcheck // most folders have none
	for i, line := range strings.Split(string(data), "\n") {
		pattern := strings.TrimRight(line, " \t\r")
		if pattern == "" || strings.HasPrefix(pattern, "#") {
			continue
		}
		rule := ignoreRule{at: Place{file, i + 1}}
		pattern, rule.negated = strings.CutPrefix(pattern, "!")
		pattern, rule.folders = strings.CutSuffix(strings.TrimPrefix(pattern, `\`), "/")
		if !strings.Contains(pattern, "/") {
			pattern = "**/" + pattern
		}
		rule.segments = strings.Split(strings.TrimPrefix(pattern, "/"), "/")
		rules = append(rules, rule)
	}
	f.rules[file] = rules
	return rules
}

// matches compares a pattern's segments with a path's; ** stands for any number of folders.
func matches(pattern, name []string) bool {
	switch {
	case len(pattern) == 0:
		return len(name) == 0
	case pattern[0] == "**" && len(pattern) == 1:
		return len(name) > 0
	case pattern[0] == "**":
		return matches(pattern[1:], name) || len(name) > 0 && matches(pattern, name[1:])
	case len(name) == 0:
		return false
	}
	same, _ := path.Match(pattern[0], name[0]) //nolint:errcheck // a malformed pattern matches nothing
	return same && matches(pattern[1:], name[1:])
}

// ignored returns the line that keeps a file or folder out of Flux's copy, and whether there is one. Git has
// a file that it tracks, whatever .gitignore says.
func (f *files) ignored(name string) (Place, bool) {
	all := strings.Split(name, "/")
	if name == "" {
		return Place{}, false
	}
	for _, kind := range []string{sourceIgnore, gitIgnore} {
		for i := range all { // what is in an ignored folder is ignored
			var last ignoreRule
			part := path.Join(all[:i+1]...)
			for depth := range i + 1 {
				for _, rule := range f.ignoreRules(path.Join(all[:depth]...), kind) {
					if matches(rule.segments, all[depth:i+1]) && (!rule.folders || f.isFolder(part)) {
						last = rule
					}
				}
			}
			if last.at.File != "" && !last.negated && (kind == sourceIgnore || !f.tracked(name)) {
				return last.at, true
			}
		}
	}
	return Place{}, false
}

// tracked reports whether Git has a file, or files of a folder: an entry of its index ends with the length of
// the name, the name and a null byte.
func (f *files) tracked(name string) bool {
	if f.index == nil {
		//nolint:errcheck // it is no clone
		f.index, _ = os.ReadFile(filepath.Join(gitFolder(f.root), "index"))
	}
	if f.isFolder(name) {
		return bytes.Contains(f.index, []byte(name+"/"))
	}
	return bytes.Contains(f.index, slices.Concat([]byte{byte(len(name))}, []byte(name), []byte{0}))
}

// Ignored is a manifest that Git ignores, so that Flux does not have it, and the pattern's place.
type Ignored struct {
	File string
	By   Place
}

// leftOut is an error for what a file of the repository names, is there, and is not in Flux's copy.
func (f *files) leftOut(name, file string) error {
	by, is := f.ignored(file)
	if !is || !f.FileSystem.Exists(f.absolute(file)) {
		return nil
	}
	return fmt.Errorf("%s is in this folder, and not in Flux's copy of the repository: %s leaves it out",
		name, by)
}
