package scaffold

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"github.com/zclconf/go-cty/cty"

	"github.com/ephemeral-castle/castle/internal/gitops"
)

const (
	// gitopsTemplate is the skeleton of the repository that Flux reads.
	gitopsTemplate = "gitops"
	// clusterFolder is the placeholder in it for the cluster's folder, git_path.
	clusterFolder = "clusters/CLUSTER/"
)

// GitOps makes Write also write the skeleton of Flux's repository to a folder. If the folder has the rest,
// Write adds only the cluster's part.
func (c *NewCluster) GitOps(folder string) error {
	absolute, err := filepath.Abs(folder)
	if err != nil {
		return err
	}
	repository, err := filepath.EvalSymlinks(c.repository)
	if err != nil {
		return err
	}
	s := &skeleton{flag: folder, folder: resolve(absolute)}
	inside, err := filepath.Rel(repository, s.folder)
	if err != nil {
		return err
	}
	top, _, _ := strings.Cut(inside, "/")
	if inside == "." || slices.Contains([]string{"clusters", "stages", "templates"}, top) {
		return fmt.Errorf("--gitops %s: this is the castle repository; Flux needs a repository of its own",
			folder)
	}
	if s.parts, err = readParts(c.templates, gitopsTemplate); err != nil {
		return err
	}
	if err := checkParts(s.parts, c.known()); err != nil {
		return err
	}
	if err := s.inspect(); err != nil {
		return err
	}
	s.relative, err = filepath.Rel(filepath.Join(repository, "clusters", c.Name, c.Platform), s.folder)
	c.skeleton = s
	return err
}

// resolve returns a path without symbolic links, as far as it exists.
func resolve(p string) string {
	if found, err := filepath.EvalSymlinks(p); err == nil || p == filepath.Dir(p) {
		return found
	}
	return filepath.Join(resolve(filepath.Dir(p)), filepath.Base(p))
}

// skeleton is the part of Flux's repository that castle writes.
type skeleton struct {
	flag     string // the folder, as the user wrote it
	folder   string // absolute
	relative string // to the folder of cluster.hcl
	parts    []part
	joins    bool // the folder has the skeleton from another cluster
	readme   bool // the folder has a README.md of its own

	view    string   // the folder as it will be, in the draft
	cluster string   // the cluster's folder in it
	files   []string // that castle adds
}

// inspect accepts a folder that does not exist, is empty or a fresh clone, or has another cluster's skeleton.
func (s *skeleton) inspect() error {
	entries, err := os.ReadDir(s.folder)
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	if err != nil {
		return fmt.Errorf("--gitops %s: %w", s.flag, err)
	}
	var ours, foreign []string
	for _, e := range entries {
		name := e.Name()
		switch {
		case name == "README.md":
			s.readme = true
		case slices.ContainsFunc(s.parts, func(p part) bool { return strings.HasPrefix(p.name, name+"/") }):
			ours = append(ours, name)
		case !strings.HasPrefix(name, ".") && !strings.HasPrefix(name, "LICENSE") &&
			!strings.HasPrefix(name, "README"):
			foreign = append(foreign, name)
		}
	}
	s.joins = len(ours) > 0
	if s.joins || len(foreign) == 0 {
		return nil
	}
	names := strings.Join(foreign, ", ")
	if more := len(foreign) - 3; more > 0 {
		names = fmt.Sprintf("%s and %d more", strings.Join(foreign[:3], ", "), more)
	}
	return fmt.Errorf("--gitops %s: it contains %s, and is neither empty nor a repository that Flux reads\n"+
		"  choose a new folder, or a fresh clone of git_url", s.flag, names)
}

// block returns the block of cluster.hcl that refers to it.
func (s *skeleton) block() []byte {
	return fmt.Appendf(nil, "\n# A clone of git_url, which Flux reads: castle check finds objects with two "+
		"owners.\ngitops {\n  repository = %q\n}\n", s.relative)
}

// clusterPath returns the cluster's folder in Flux's repository, from git_path.
func (s *skeleton) clusterPath(gitPath string) (string, error) {
	cluster := filepath.Clean(gitPath)
	top, _, _ := strings.Cut(cluster, "/")
	shared := slices.ContainsFunc(s.parts, func(p part) bool {
		return strings.HasPrefix(p.name, top+"/") && !strings.HasPrefix(p.name, clusterFolder)
	})
	if cluster == "." || !filepath.IsLocal(cluster) || shared {
		return "", fmt.Errorf("git_path %s: with --gitops it must be a folder of its own, such as "+
			"./clusters/blue", gitPath)
	}
	if _, err := os.Lstat(filepath.Join(s.folder, cluster)); err == nil {
		return "", fmt.Errorf("%s/%s already exists\n  choose another folder with --set git_path=./…, or "+
			"leave out --gitops", s.flag, cluster)
	}
	return cluster, nil
}

// write writes a view of Flux's repository, with the cluster in it, to a folder of the draft.
func (s *skeleton) write(view, gitPath string, answers map[string]cty.Value) (err error) {
	if s.cluster, err = s.clusterPath(gitPath); err != nil {
		return err
	}
	s.view = view
	if _, err := copyTree(os.DirFS(s.folder), view); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	for _, p := range s.parts {
		name := p.name
		if own, is := strings.CutPrefix(name, clusterFolder); is {
			name = filepath.Join(s.cluster, own)
		} else if s.joins || s.readme && name == "README.md" {
			continue
		}
		data, err := p.render(answers)
		if err != nil {
			return err
		}
		if err := writeFile(filepath.Join(s.view, name), data, 0o644); err != nil {
			return err
		}
		s.files = append(s.files, name)
	}
	slices.Sort(s.files)
	return s.check()
}

// check reports references of the cluster's part that the repository does not have.
func (s *skeleton) check() error {
	_, err := gitops.Read(gitops.Options{Folder: s.view, Path: s.cluster})
	var problems gitops.Problems
	if !errors.As(err, &problems) {
		return err
	}
	for _, p := range problems {
		if strings.HasPrefix(p.At.File, s.cluster+"/") {
			return fmt.Errorf("--gitops %s: the new files do not fit the existing ones: %w", s.flag, p)
		}
	}
	return nil // castle check reports problems of the existing files
}

// place moves the new files from the view to Flux's repository. Existing files stay. The cluster's part comes
// last, because it makes Flux read the rest. If it fails, it removes them again.
func (s *skeleton) place() (err error) {
	var placed []string
	defer func() {
		if err != nil {
			for _, p := range slices.Backward(placed) {
				err = errors.Join(err, os.RemoveAll(p))
			}
		}
	}()
	if _, err := os.Lstat(s.folder); errors.Is(err, fs.ErrNotExist) {
		placed = append(placed, s.folder)
		if err := makeFolder(s.folder); err != nil {
			return err
		}
	}
	temp, err := os.MkdirTemp(s.folder, ".new-")
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, os.RemoveAll(temp)) }()
	for _, name := range s.files {
		data, err := os.ReadFile(filepath.Join(s.view, name))
		if err == nil {
			err = writeFile(filepath.Join(temp, name), data, 0o644)
		}
		if err != nil {
			return err
		}
	}
	for _, name := range s.units() {
		to := filepath.Join(s.folder, name)
		if _, err := os.Lstat(to); err == nil {
			return fmt.Errorf("%s has appeared in the meantime; nothing was changed", to)
		}
		if err := makeFolder(filepath.Dir(to)); err != nil {
			return err
		}
		if err := os.Rename(filepath.Join(temp, name), to); err != nil {
			return err
		}
		placed = append(placed, to)
	}
	return nil
}

// units returns the files and folders to move as a whole, in order.
func (s *skeleton) units() []string {
	if s.joins {
		return []string{s.cluster}
	}
	last, _, _ := strings.Cut(s.cluster, "/")
	var units []string
	for _, name := range s.files {
		if top, _, _ := strings.Cut(name, "/"); top != last && !slices.Contains(units, top) {
			units = append(units, top)
		}
	}
	return append(units, last)
}
