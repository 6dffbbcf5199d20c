package terraform

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"github.com/hashicorp/hcl/v2/gohcl"
	"github.com/hashicorp/hcl/v2/hclparse"
	"github.com/hashicorp/terraform-exec/tfexec"

	"github.com/ephemeral-castle/castle/internal/atomicfile"
)

// Init runs terraform init, if what it depends on has changed since it last went
// well or what it installed is gone. Terraform's plugin cache is not safe for
// two inits at once, of whichever castle, so they go one after the other.
func (r *Root) Init(ctx context.Context) (err error) {
	digest, err := r.initDigest()
	if err != nil {
		return err
	}
	if done, err := os.ReadFile(r.initStamp()); err == nil && string(done) == digest && r.pluginsThere() && r.checkBackend() == nil {
		return nil
	}
	if err := errors.Join(atomicfile.MkdirPrivate(r.PluginCache), atomicfile.MkdirPrivate(r.dataDir())); err != nil {
		return err
	}
	unlock, err := lockFile(ctx, r.PluginCache+".lock")
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, unlock()) }()
	// A full disk or a power cut leaves half of what the last init has written of
	// the backend, and init would stop at it. It is written anew in any case.
	for _, old := range []string{r.initStamp(), r.backendPath()} {
		if err := os.Remove(old); err != nil && !errors.Is(err, fs.ErrNotExist) {
			return err
		}
	}
	if err := r.init(ctx); err != nil {
		return err
	}
	if err := r.checkBackend(); err != nil {
		return err
	}
	if digest, err = r.initDigest(); err != nil { // init may have written the lock file
		return err
	}
	return atomicfile.Write(r.initStamp(), []byte(digest))
}

func (r *Root) init(ctx context.Context) error {
	run := func(upgrade bool) error {
		// The cache is for init alone: what it installs are links into it. What is in
		// it is taken as it is, though no lock file has its hash yet: Terraform would
		// fetch it again and replace it, under the stages that run it at that moment.
		cache := map[string]string{"TF_PLUGIN_CACHE_DIR": r.PluginCache, "TF_PLUGIN_CACHE_MAY_BREAK_DEPENDENCY_LOCK_FILE": "1"}
		return r.command(ctx, "init", cache, func(tf *tfexec.Terraform, s *stream) error {
			return tf.InitJSON(ctx, s, tfexec.Reconfigure(true), tfexec.Upgrade(upgrade))
		})
	}
	err := run(false)
	var failed *Error
	if !errors.As(err, &failed) || !failed.wantsUpgrade() {
		return err
	}
	// The module asks for other versions than its lock file. One that was shipped
	// is the author's to mend; one that an earlier init wrote is out of date.
	shipped, mErr := r.manifest()
	if _, ok := shipped[lockFileName]; ok || mErr != nil {
		return errors.Join(err, mErr)
	}
	return run(true)
}

func (e *Error) wantsUpgrade() bool {
	return slices.ContainsFunc(e.Diagnostics, func(d Diagnostic) bool {
		return strings.Contains(strings.Join(strings.Fields(d.Detail), " "), "must use terraform init -upgrade")
	})
}

func (r *Root) initStamp() string { return filepath.Join(r.dataDir(), "castle-init") }

// backendPath is where init notes where the state is.
func (r *Root) backendPath() string { return filepath.Join(r.dataDir(), "terraform.tfstate") }

// initDigest covers what init reads: the configuration, the lock file, the
// command line configuration, Terraform itself and where things are.
func (r *Root) initDigest() (string, error) {
	h := sha256.New()
	fmt.Fprintf(h, "%q %q %q %q\n", r.SHA256, r.Version, r.PluginCache, r.dataDir())
	names, err := r.sources()
	if err != nil {
		return "", err
	}
	for i, name := range names {
		names[i] = filepath.Join(r.Dir, filepath.FromSlash(name))
	}
	env := r.environment()
	config := env["TF_CLI_CONFIG_FILE"]
	if config == "" {
		config = filepath.Join(env["HOME"], ".terraformrc")
	}
	for _, file := range append(names, config) {
		data, err := os.ReadFile(file)
		if err != nil && !errors.Is(err, fs.ErrNotExist) {
			return "", err
		}
		fmt.Fprintf(h, "%q %x\n", file, sha256.Sum256(data))
	}
	return hex.EncodeToString(h.Sum(nil)), nil
}

// pluginsThere reports whether every provider that init has linked can still be
// reached: somebody may have emptied the cache.
func (r *Root) pluginsThere() bool {
	err := filepath.WalkDir(filepath.Join(r.dataDir(), "providers"), func(path string, d fs.DirEntry, err error) error {
		if err != nil || d.Type()&fs.ModeSymlink == 0 {
			return err
		}
		_, err = os.Stat(path)
		return err
	})
	return err == nil || errors.Is(err, fs.ErrNotExist) && !exists(filepath.Join(r.dataDir(), "providers"))
}

func exists(path string) bool {
	_, err := os.Lstat(path)
	return err == nil
}

// checkBackend makes sure that the state is where castle expects it: another
// override file in the module may have had the last word.
func (r *Root) checkBackend() error {
	data, err := os.ReadFile(r.backendPath())
	if err != nil {
		return err
	}
	var chosen struct {
		Backend struct {
			Type   string `json:"type"`
			Config struct {
				Path string `json:"path"`
			} `json:"config"`
		} `json:"backend"`
	}
	if err := json.Unmarshal(data, &chosen); err != nil {
		return err
	}
	if b := chosen.Backend; b.Type != "local" || b.Config.Path != r.StatePath {
		return fmt.Errorf("the module keeps its state elsewhere (backend %q): an override file of its own takes precedence over %s", b.Type, overrideFile)
	}
	return nil
}

// ProviderHashes returns the version and checksums of each provider that Init
// has chosen, by source address; nothing before the first Init.
func (r *Root) ProviderHashes() (map[string]string, error) {
	path := filepath.Join(r.Dir, lockFileName)
	if !exists(path) {
		return map[string]string{}, nil
	}
	file, diags := hclparse.NewParser().ParseHCLFile(path)
	if diags.HasErrors() {
		return nil, diags
	}
	var locked struct {
		Providers []struct {
			Source      string   `hcl:"source,label"`
			Version     string   `hcl:"version"`
			Constraints string   `hcl:"constraints,optional"`
			Hashes      []string `hcl:"hashes,optional"`
		} `hcl:"provider,block"`
	}
	if diags := gohcl.DecodeBody(file.Body, nil, &locked); diags.HasErrors() {
		return nil, diags
	}
	hashes := map[string]string{}
	for _, p := range locked.Providers {
		slices.Sort(p.Hashes)
		hashes[p.Source] = p.Version + " " + strings.Join(p.Hashes, " ")
	}
	return hashes, nil
}
