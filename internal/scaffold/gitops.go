package scaffold

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path"
	"path/filepath"
	"slices"
	"strings"

	"github.com/ephemeral-castle/castle/internal/atomicfile"
	"github.com/ephemeral-castle/castle/internal/gitops"
)

const (
	// gitopsTemplate is the skeleton of the repository that Flux reads.
	gitopsTemplate = "gitops"
	// clusterFolder stands in it for the folder of the cluster, which git_path names.
	clusterFolder = "clusters/CLUSTER/"
)

// GitOps has the skeleton of Flux's repository written into a folder, too: all of it
// where there is none, and only the cluster's part into one that has the rest.
func (o *Order) GitOps(folder string) error {
	absolute, err := filepath.Abs(folder)
	if err != nil {
		return err
	}
	repository, err := filepath.EvalSymlinks(o.repository)
	if err != nil {
		return err
	}
	s := &skeleton{said: folder, folder: real(absolute)}
	inside, err := filepath.Rel(repository, s.folder)
	if err != nil {
		return err
	}
	top, _, _ := strings.Cut(filepath.ToSlash(inside), "/")
	if inside == "." || slices.Contains([]string{"clusters", "stages", "templates"}, top) {
		return fmt.Errorf("--gitops %s: that is the castle repository, and Flux reads one of its own", folder)
	}
	if s.parts, err = readParts(o.templates, gitopsTemplate); err != nil {
		return err
	}
	if err := s.look(); err != nil {
		return err
	}
	s.relative, err = filepath.Rel(filepath.Join(repository, "clusters", o.Cluster, o.Platform), s.folder)
	o.skeleton = s
	return err
}

// real is a path without symbolic links, as far as it exists.
func real(p string) string {
	if found, err := filepath.EvalSymlinks(p); err == nil || p == filepath.Dir(p) {
		return found
	}
	return filepath.Join(real(filepath.Dir(p)), filepath.Base(p))
}

// skeleton is what is written of Flux's repository.
type skeleton struct {
	said     string // as the user names the folder
	folder   string // absolute
	relative string // seen from the cluster's cluster.hcl
	parts    []part
	joins    bool // the folder has all but the cluster's part
	readme   bool // the folder has a README.md of its own
}

// look finds out what the folder is: nothing, a fresh clone, or one that has the
// skeleton from another cluster. Everything else is nobody's business but its owner's.
func (s *skeleton) look() error {
	entries, err := os.ReadDir(s.folder)
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	if err != nil {
		return fmt.Errorf("--gitops %s: %w", s.said, err)
	}
	var ours, foreign []string
	for _, e := range entries {
		name := e.Name()
		switch {
		case name == "README.md":
			s.readme = true
		case slices.ContainsFunc(s.parts, func(p part) bool { return strings.HasPrefix(p.name, name+"/") }):
			ours = append(ours, name)
		case !strings.HasPrefix(name, ".") && !strings.HasPrefix(name, "LICENSE") && !strings.HasPrefix(name, "README"):
			foreign = append(foreign, name)
		}
	}
	s.joins = len(ours) > 0
	if !s.joins && len(foreign) > 0 {
		return fmt.Errorf("--gitops %s: it holds %s, and is neither empty nor a repository that Flux reads\n"+
			"  take a new folder, or a fresh clone of git_url", s.said, few(foreign))
	}
	return nil
}

// few names the first of many.
func few(names []string) string {
	const most = 3
	if len(names) <= most {
		return strings.Join(names, ", ")
	}
	return fmt.Sprintf("%s and %d more", strings.Join(names[:most], ", "), len(names)-most)
}

// block is what cluster.hcl says of it.
func (s *skeleton) block() []byte {
	return fmt.Appendf(nil, "\n# A clone of git_url, which Flux reads: castle check compares who owns what.\ngitops {\n  repository = %q\n}\n", filepath.ToSlash(s.relative))
}

// writes are the files to write, by their names in the folder, and who renders them.
func (s *skeleton) writes(cluster string) map[string]part {
	all := map[string]part{}
	for _, p := range s.parts {
		name, own := strings.CutPrefix(p.name, clusterFolder)
		switch {
		case own:
			all[path.Join(cluster, name)] = p
		case !s.joins && !(s.readme && p.name == "README.md"):
			all[p.name] = p
		}
	}
	return all
}

// clusterPath is the cluster's folder in Flux's repository, as git_path says it.
func (s *skeleton) clusterPath(gitPath string) (string, error) {
	cluster := path.Clean(gitPath)
	top, _, _ := strings.Cut(cluster, "/")
	shared := slices.ContainsFunc(s.parts, func(p part) bool {
		return strings.HasPrefix(p.name, top+"/") && !strings.HasPrefix(p.name, clusterFolder)
	})
	if cluster == "." || !filepath.IsLocal(cluster) || shared {
		return "", fmt.Errorf("git_path %s: with --gitops it is a folder of the cluster's own, such as ./clusters/blue", gitPath)
	}
	return cluster, nil
}

// view writes Flux's repository into a folder of the draft, as it will be.
func (s *skeleton) view(to, cluster string, answers map[string]any) (files []string, err error) {
	if _, err := os.Lstat(filepath.Join(s.folder, filepath.FromSlash(cluster))); err == nil {
		return nil, fmt.Errorf("%s/%s is there already\n  name another folder with --set git_path=./…, or leave out --gitops", s.said, cluster)
	}
	if err := copyManifests(s.folder, to); err != nil {
		return nil, err
	}
	for name, p := range s.writes(cluster) {
		data, err := p.render(answers)
		if err != nil {
			return nil, err
		}
		file := filepath.Join(to, filepath.FromSlash(name))
		if err := makeFolder(filepath.Dir(file)); err != nil {
			return nil, err
		}
		if err := atomicfile.Create(file, data, 0o644); err != nil {
			return nil, err
		}
		files = append(files, name)
	}
	slices.Sort(files)
	return files, s.fits(to, cluster)
}

// fits says what the cluster's part would look for in vain.
func (s *skeleton) fits(view, cluster string) error {
	_, err := gitops.Read(gitops.Options{Folder: view, Path: cluster})
	var problems gitops.Problems
	if !errors.As(err, &problems) {
		return err
	}
	for _, p := range problems {
		if strings.HasPrefix(p.At.File, cluster+"/") {
			return fmt.Errorf("--gitops %s: what would be written does not fit what is there: %w", s.said, p)
		}
	}
	return nil // what was there before is not this cluster's fault, and castle check tells of it
}
