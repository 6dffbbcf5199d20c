package terraform

import (
	"cmp"
	"context"
	"crypto/sha256"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"

	"github.com/hashicorp/terraform-exec/tfexec"

	"github.com/ephemeral-castle/castle/internal/atomicfile"
	"github.com/ephemeral-castle/castle/internal/ownfile"
	"github.com/ephemeral-castle/castle/internal/providers"
)

// Init runs terraform init if its inputs have changed since its last success, or if its result is gone. One
// init runs at a time, of any castle: Terraform's plugin cache is not safe for two.
func (r *Root) Init(ctx context.Context) (err error) {
	i := initialization{r}
	if err := i.align(false); err != nil {
		return err
	}
	digest, err := i.digest()
	if err != nil {
		return err
	}
	done, err := ownfile.ReadFile(i.stampPath())
	if err == nil && string(done) == digest && i.pluginsExist() && i.checkBackend() == nil {
		return i.record()
	}
	err = errors.Join(atomicfile.MkdirPrivate(r.PluginCache), atomicfile.MkdirPrivate(r.dataDir()))
	if err != nil {
		return err
	}
	if err := r.askVersion(ctx); err != nil {
		return err
	}
	unlock, err := lockCache(ctx, r.PluginCache)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, unlock()) }()
	// A full disk or a power cut can leave half of the backend's file, at which init
	// would fail. Init writes it in any case.
	if err := errors.Join(ownfile.RemoveAll(i.stampPath()), ownfile.RemoveAll(i.backendPath())); err != nil {
		return err
	}
	i.root.StopProviders() // init may choose others
	before, unread := ownfile.ReadFile(r.lockPath())
	// Another init may have recorded a provider meanwhile.
	if err := i.align(true); err != nil {
		return err
	}
	defer func() { // or the stage would seem to use every provider of the cluster
		switch {
		case err == nil:
		case unread == nil:
			err = errors.Join(err, atomicfile.Update(r.lockPath(), before))
		case errors.Is(unread, fs.ErrNotExist) && exists(r.lockPath()):
			err = errors.Join(err, ownfile.Remove(r.lockPath()))
		}
	}()
	for _, step := range []func() error{
		func() error { return i.run(ctx) }, i.record, i.checkBackend,
		func() error { return i.root.workdir().noteVerified(i.chosen()) },
	} {
		if err := step(); err != nil {
			return err
		}
	}
	if digest, err = i.digest(); err != nil { // init may have written the lock file
		return err
	}
	return atomicfile.WriteUnflushed(i.stampPath(), []byte(digest))
}

// GetReady does what the first Init of a root can do beside the Init of another one, before the module is
// there. It does nothing for a root that was initialised, which may need no Terraform at all.
func (r *Root) GetReady(ctx context.Context) error {
	if exists(initialization{r}.stampPath()) {
		return nil
	}
	return errors.Join(atomicfile.MkdirPrivate(r.Dir), r.askVersion(ctx))
}

// askVersion asks Terraform for its version, as terraform-exec does before the first init. That takes nearly
// as long as an init, and needs no lock. Packages with links, over which no command would start, go first.
func (r *Root) askVersion(ctx context.Context) error {
	if err := r.discardPackages(); err != nil || r.last != nil {
		return err
	}
	return r.command(ctx, "version", nil, func(tf *tfexec.Terraform, _ *stream) error {
		_, _, err := tf.Version(ctx, false)
		return err
	})
}

// initializing is full while an init of this process has the plugin cache or waits for another process that
// has it. The next one gets it at once, while the lock on the file is only asked for now and then.
var initializing = make(chan struct{}, 1)

// lockCache waits until no other init uses the plugin cache.
func lockCache(ctx context.Context, cache string) (unlock func() error, err error) {
	select {
	case initializing <- struct{}{}:
	case <-ctx.Done():
		return nil, context.Cause(ctx)
	}
	release, err := atomicfile.Lock(ctx, cache+".lock")
	if err != nil {
		<-initializing
		return nil, err
	}
	return func() error {
		defer func() { <-initializing }()
		return release()
	}, nil
}

// initialization holds the inputs and results of one Init of a root.
type initialization struct{ root *Root }

func (i initialization) run(ctx context.Context) error {
	// Only init gets the cache, which it links plugins from. It uses a cached plugin even if no lock file has
	// its hash yet: Terraform would download and replace it otherwise, while other stages run it.
	cache := map[string]string{
		"TF_PLUGIN_CACHE_DIR": i.root.PluginCache, "TF_PLUGIN_CACHE_MAY_BREAK_DEPENDENCY_LOCK_FILE": "1",
	}
	run := func(upgrade bool) error {
		return i.root.command(ctx, "init", cache, func(tf *tfexec.Terraform, s *stream) error {
			return tf.InitJSON(ctx, s, tfexec.Reconfigure(true), tfexec.Upgrade(upgrade))
		})
	}
	err := run(false)
	if i.onlyPublished(err) {
		cache = nil
		err = run(false)
	}
	if !errors.Is(err, errWantsUpgrade) {
		return err
	}
	if i.locks(err) {
		if command := i.root.Providers.Upgrade(); command != "" {
			err = fmt.Errorf("%w\n  `%s` chooses a version for all stages", err, command)
		}
		return err
	}
	// The module requires other versions than its lock file has. If the module ships the
	// lock file, its author must fix that; one that an earlier init wrote is outdated.
	shipped, readErr := i.root.workdir().manifest()
	if _, ok := shipped[lockFileName]; ok || readErr != nil {
		return errors.Join(err, readErr)
	}
	return run(true)
}

func (i initialization) stampPath() string { return filepath.Join(i.root.dataDir(), "castle-init") }

// backendPath is where init writes the location of the state.
func (i initialization) backendPath() string {
	return filepath.Join(i.root.dataDir(), "terraform.tfstate")
}

// digest covers the inputs of init: the configuration, the lock file, the command
// line configuration, Terraform's version and all paths.
func (i initialization) digest() (string, error) {
	h := sha256.New()
	binary := i.root.Binary
	fmt.Fprintf(h, "%q %q %q %q\n", binary.Path, binary.Version, i.root.PluginCache, i.root.dataDir())
	names, err := i.root.workdir().sources()
	if err != nil {
		return "", err
	}
	for n, name := range names {
		names[n] = filepath.Join(i.root.Dir, filepath.FromSlash(name))
	}
	for _, file := range append(names, cliConfig(i.root.environment())) {
		data, err := os.ReadFile(file)
		if err != nil && !errors.Is(err, fs.ErrNotExist) {
			return "", err
		}
		fmt.Fprintf(h, "%q %x\n", file, sha256.Sum256(data))
	}
	return fmt.Sprintf("%x", h.Sum(nil)), nil
}

// cliConfig is the path of Terraform's own configuration in an environment.
func cliConfig(env map[string]string) string {
	return cmp.Or(env["TF_CLI_CONFIG_FILE"], filepath.Join(env["HOME"], ".terraformrc"))
}

// pluginsExist reports whether every provider that init has linked is still in the cache.
func (i initialization) pluginsExist() bool {
	providers := filepath.Join(i.root.dataDir(), "providers")
	err := filepath.WalkDir(providers, func(path string, d fs.DirEntry, err error) error {
		if err != nil || d.Type()&fs.ModeSymlink == 0 {
			return err
		}
		_, err = os.Stat(path)
		return err
	})
	return err == nil || errors.Is(err, fs.ErrNotExist) && !exists(providers)
}

func exists(path string) bool {
	_, err := os.Lstat(path)
	return err == nil
}

// checkBackend checks that the state is at StatePath: another override file may take precedence.
func (i initialization) checkBackend() error {
	data, err := ownfile.ReadFile(i.backendPath())
	if err != nil {
		return err
	}
	var chosen struct {
		Backend struct {
			Type   string
			Config struct{ Path string }
		}
	}
	if err := json.Unmarshal(data, &chosen); err != nil {
		return err
	}
	if b := chosen.Backend; b.Type != "local" || b.Config.Path != i.root.StatePath {
		return fmt.Errorf("the module keeps its state elsewhere (backend %q): "+
			"an override file of its own takes precedence over %s", b.Type, overrideFile)
	}
	return nil
}

// ProviderVersions returns the version of each provider that Init has chosen, by source; empty before that.
func (r *Root) ProviderVersions() (map[string]string, error) {
	lock, err := providers.ReadFile(r.lockPath(), ownfile.ReadFile)
	if err != nil {
		return nil, err
	}
	versions := map[string]string{}
	for source, entry := range lock {
		versions[source] = entry.Version
	}
	return versions, nil
}
