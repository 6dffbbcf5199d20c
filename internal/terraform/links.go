package terraform

import (
	"cmp"
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"github.com/ephemeral-castle/castle/internal/ownfile"
)

// checkLinks refuses what Terraform and its providers would follow, or wait for, in the work directory and
// beside the state: they open files as the system does.
func (r *Root) checkLinks() error {
	_, err := ownfile.ReadDir(filepath.Dir(r.StatePath))
	if r.StatePath != "" && err != nil && !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	return filepath.WalkDir(r.Dir, func(path string, d fs.DirEntry, err error) error {
		info, unknown := os.Lstat(path)
		if errors.Is(unknown, fs.ErrNotExist) { // removed meanwhile, or before the first use
			return nil
		}
		if err = cmp.Or(err, unknown); err != nil || d.Type()&fs.ModeSymlink != 0 && r.isInstalled(path) {
			return err
		}
		return ownfile.Check(path, info)
	})
}

// isInstalled reports whether a link is one that init makes: to a provider's package in the plugin cache or
// in a mirror, or to none any more. A module that init downloads may hold links to files of modules, too.
func (r *Root) isInstalled(link string) bool {
	target, err := filepath.EvalSymlinks(link)
	leads := func(to string) bool { return err == nil && strings.HasPrefix(target, ownfile.Resolve(to)+"/") }
	modules, packages := filepath.Join(r.dataDir(), "modules"), filepath.Join(r.dataDir(), "providers")
	if strings.HasPrefix(link, modules+"/") {
		return leads(modules)
	}
	origins, _ := ReadOrigins(r.Env) //nolint:errcheck // then there is no mirror
	return strings.HasPrefix(link, packages+"/") && (errors.Is(err, fs.ErrNotExist) || leads(r.PluginCache) ||
		slices.ContainsFunc(origins.Folders, func(m method) bool { return leads(m.Path) }))
}

// discardPackages removes the providers of a work directory, which init makes again, if they hold another
// link. On a full disk init copies a package instead of linking it, with the links that are in a mirror.
func (r *Root) discardPackages() (err error) {
	packages := filepath.Join(r.dataDir(), "providers")
	refused, is := errors.AsType[*ownfile.RefusedError](r.checkLinks())
	if is && strings.HasPrefix(refused.Path, packages+"/") {
		err = ownfile.RemoveAll(packages)
	}
	return err
}
