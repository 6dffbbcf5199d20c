package rehearsal

import (
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"github.com/ephemeral-castle/castle/internal/providers"
	"github.com/ephemeral-castle/castle/lab/internal/namespace"
)

// What holds secrets never enters a copy.
const secretFile, secretFolder = "secrets.tfvars", "configs"

// copied are the folders of a repository that a rehearsal may change, beside the one that Flux follows.
var copied = []string{"clusters", "stages", "templates"}

// double copies the configuration into a folder, which the rehearsal may change: the files of the
// repository's root and the folders that castle and Flux read. It returns the names in the root that it has
// not copied, such as .git and bin; they are empty in the copy.
func (p *plan) double(repository, to string) (rest []string, err error) {
	folders := slices.Clone(copied)
	if fleet, ok := within(repository, p.Survey.Repository); ok {
		first, _, _ := strings.Cut(fleet, "/")
		folders = append(folders, first)
	}
	entries, err := os.ReadDir(repository)
	if err != nil {
		return nil, err
	}
	if err := os.Mkdir(to, 0o700); err != nil {
		return nil, err
	}
	for _, e := range entries {
		from, name := filepath.Join(repository, e.Name()), filepath.Join(to, e.Name())
		switch hidden := strings.HasPrefix(e.Name(), "."); {
		case slices.Contains(folders, e.Name()), !e.IsDir() && !hidden:
			err = duplicate(repository, from, name)
		case e.IsDir():
			rest, err = append(rest, e.Name()), os.Mkdir(name, 0o700)
		case e.Type().IsRegular():
			rest, err = append(rest, e.Name()), os.WriteFile(name, nil, 0o600)
		}
		if err != nil {
			return nil, err
		}
	}
	// The stand-ins have other checksums than the real providers. Those have a file of the rehearsal's own.
	locks, err := filepath.Glob(filepath.Join(to, "clusters", "*", "*", providers.FileName))
	for _, lock := range locks {
		err = errors.Join(err, os.Remove(lock))
	}
	return rest, err
}

// within is the path in a folder; false for one that lies outside.
func within(folder, path string) (string, bool) {
	relative, err := filepath.Rel(folder, path)
	return relative, err == nil && filepath.IsLocal(relative)
}

// duplicate copies a file or a folder without its secrets. A link that leads out of the repository becomes
// what it leads to: through it, a change would reach the real file.
func duplicate(repository, from, to string) error {
	info, err := os.Lstat(from)
	if err != nil {
		return err
	}
	switch {
	case info.Mode()&os.ModeSymlink != 0:
		target, err := filepath.EvalSymlinks(from)
		_, inside := within(repository, target)
		_, above := within(target, repository)
		if err == nil && !inside && !above {
			return duplicate(repository, target, to)
		}
		link, err := os.Readlink(from)
		return errors.Join(err, os.Symlink(link, to))
	case info.Mode().IsRegular():
		if filepath.Base(from) == secretFile {
			return nil
		}
		content, err := os.ReadFile(from)
		return errors.Join(err, os.WriteFile(to, content, info.Mode().Perm()|0o600))
	case !info.IsDir():
		return nil
	}
	entries, err := os.ReadDir(from)
	if err != nil {
		return err
	}
	if err := os.Mkdir(to, info.Mode().Perm()|0o700); err != nil {
		return err
	}
	for _, e := range entries {
		if e.IsDir() && slices.Contains([]string{secretFolder, ".terraform", ".git"}, e.Name()) {
			continue
		}
		err := duplicate(repository, filepath.Join(from, e.Name()), filepath.Join(to, e.Name()))
		if err != nil {
			return err
		}
	}
	return nil
}

// mounts cover the real files: the repository with a copy that the rehearsal may change, in which everything
// but the configuration is the real thing, read-only, and the state directory with an empty one. The mounts
// create nothing in the repository, so rehearsals do not interfere with each other.
func (p *plan) mounts() ([]namespace.Mount, error) {
	repository, double := p.Repository, p.path("repository")
	rest, err := p.double(repository, double)
	if err != nil {
		return nil, err
	}
	cluster, err := filepath.Rel(repository, p.Survey.ClusterDir)
	if err != nil {
		return nil, err
	}
	if err := os.MkdirAll(filepath.Join(double, cluster, secretFolder), 0o700); err != nil {
		return nil, err
	}
	if p.Options.Providers == fromRegistry {
		lock := filepath.Join(double, cluster, providers.FileName)
		if err := os.Rename(p.path(providers.FileName), lock); err != nil {
			return nil, err
		}
	}
	// First: what is bound from it later is read-only, too.
	mounts := []namespace.Mount{{Path: repository}}
	secrets := filepath.Join(cluster, secretFile)
	if _, err := os.Stat(filepath.Join(repository, secrets)); err == nil {
		if err := os.WriteFile(filepath.Join(double, secrets), nil, 0o600); err != nil {
			return nil, err
		}
		rest = append(rest, secrets)
	} else if !errors.Is(err, fs.ErrNotExist) {
		return nil, err
	}
	for _, name := range rest {
		mounts = append(mounts, namespace.Mount{Path: filepath.Join(double, name),
			From: filepath.Join(repository, name)})
	}
	mounts = append(mounts, namespace.Mount{Path: repository, From: double})
	if p.Fleet != "" { // castle reads what Flux follows, and a command may edit it
		mounts = append(mounts, namespace.Mount{Path: p.Fleet, From: p.Survey.Repository})
	}
	// Inside, clients have to trust the lab's authority.
	for _, file := range p.Survey.Certificates {
		mounts = append(mounts, namespace.Mount{Path: file, From: p.path(bundleName)})
	}
	state := realState(p.Options.Environ)
	if _, err := os.Stat(state); err == nil {
		mounts = append(mounts, namespace.Mount{Path: state, From: p.path("covered")})
	}
	return mounts, nil
}
