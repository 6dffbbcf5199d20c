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
	"slices"
	"strings"
	"time"

	"github.com/hashicorp/hcl/v2/hclsimple"
	"github.com/hashicorp/terraform-exec/tfexec"
	"golang.org/x/sys/unix"

	"github.com/ephemeral-castle/castle/internal/atomicfile"
)

// Init runs terraform init if its inputs have changed since its last success, or if its
// result is gone. Terraform's plugin cache is not safe for two inits at once, of
// whichever castle, so they run one after the other.
func (r *Root) Init(ctx context.Context) (err error) {
	i := initialization{r}
	digest, err := i.digest()
	if err != nil {
		return err
	}
	done, err := os.ReadFile(i.stampPath())
	if err == nil && string(done) == digest && i.pluginsExist() && i.checkBackend() == nil {
		return nil
	}
	err = errors.Join(atomicfile.MkdirPrivate(r.PluginCache), atomicfile.MkdirPrivate(r.dataDir()))
	if err != nil {
		return err
	}
	unlock, err := lockFile(ctx, r.PluginCache+".lock")
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, unlock()) }()
	// A full disk or a power cut can leave half of the backend's file, at which init
	// would fail. Init writes it in any case.
	for _, old := range []string{i.stampPath(), i.backendPath()} {
		if err := os.Remove(old); err != nil && !errors.Is(err, fs.ErrNotExist) {
			return err
		}
	}
	if err := i.run(ctx); err != nil {
		return err
	}
	if err := i.checkBackend(); err != nil {
		return err
	}
	if digest, err = i.digest(); err != nil { // init may have written the lock file
		return err
	}
	return atomicfile.Write(i.stampPath(), []byte(digest))
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
	if !errors.Is(err, errWantsUpgrade) {
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
// line configuration, Terraform itself and all paths.
func (i initialization) digest() (string, error) {
	h := sha256.New()
	binary := i.root.Binary
	fmt.Fprintf(h, "%q %q %q %q\n", binary.SHA256, binary.Version, i.root.PluginCache, i.root.dataDir())
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

// checkBackend checks that the state is at StatePath: another override file in the
// module may take precedence.
func (i initialization) checkBackend() error {
	data, err := os.ReadFile(i.backendPath())
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

// ProviderHashes returns the version and checksums of each provider that Init
// has chosen, by source address; empty before the first Init.
func (r *Root) ProviderHashes() (map[string]string, error) {
	path := filepath.Join(r.Dir, lockFileName)
	if !exists(path) {
		return map[string]string{}, nil
	}
	var locked struct {
		Providers []struct {
			Source      string   `hcl:"source,label"`
			Version     string   `hcl:"version"`
			Constraints string   `hcl:"constraints,optional"`
			Hashes      []string `hcl:"hashes,optional"`
		} `hcl:"provider,block"`
	}
	if err := hclsimple.DecodeFile(path, nil, &locked); err != nil {
		return nil, err
	}
	hashes := map[string]string{}
	for _, p := range locked.Providers {
		slices.Sort(p.Hashes)
		hashes[p.Source] = p.Version + " " + strings.Join(p.Hashes, " ")
	}
	return hashes, nil
}

// lockFile waits until this process alone holds the lock on a file and returns its release function. The
// kernel releases it too when the process ends.
func lockFile(ctx context.Context, path string) (unlock func() error, err error) {
	if err := atomicfile.MkdirPrivate(filepath.Dir(path)); err != nil {
		return nil, err
	}
	f, err := os.OpenFile(path, os.O_CREATE|os.O_RDWR, 0o600)
	if err != nil {
		return nil, err
	}
	for {
		err := unix.Flock(int(f.Fd()), unix.LOCK_EX|unix.LOCK_NB)
		if err == nil {
			return f.Close, nil
		}
		if !errors.Is(err, unix.EWOULDBLOCK) && !errors.Is(err, unix.EINTR) {
			return nil, errors.Join(&os.PathError{Op: "lock", Path: path, Err: err}, f.Close())
		}
		select {
		case <-ctx.Done():
			return nil, errors.Join(context.Cause(ctx), f.Close())
		case <-time.After(pollInterval):
		}
	}
}
