package terraform

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"sync"

	"github.com/hashicorp/terraform-config-inspect/tfconfig"
	"github.com/hashicorp/terraform-exec/tfexec"
	"golang.org/x/sys/unix"

	"github.com/ephemeral-castle/castle/internal/atomicfile"
	"github.com/ephemeral-castle/castle/internal/ownfile"
	"github.com/ephemeral-castle/castle/internal/process"
	"github.com/ephemeral-castle/castle/internal/providers"
	"github.com/ephemeral-castle/castle/internal/terraform/warm"
)

// warmProviders is the variable that turns warm providers off, with 0 or false.
const warmProviders = "CASTLE_WARM_PROVIDERS"

// servers are the providers that run for the commands of a root.
type servers struct {
	mu      sync.Mutex
	current *warm.Servers // nil: Terraform starts the providers
	crashed []string      // sources of those that Terraform starts from then on
}

// StartProviders starts the providers that Init has linked, for the commands that follow, and returns at
// once. It verifies the checksums of those that have changed since Init did. Terraform starts those that
// cannot run so. If they run already, it does nothing.
func (r *Root) StartProviders() {
	r.servers.mu.Lock()
	defer r.servers.mu.Unlock()
	on, err := strconv.ParseBool(process.Getenv(r.Env, warmProviders))
	if r.servers.current != nil || err == nil && !on || r.checkLinks() != nil {
		return // the next command reports a link
	}
	all := slices.DeleteFunc(r.workdir().startable(initialization{r}.chosen()), func(p warm.Provider) bool {
		return slices.Contains(r.servers.crashed, p.Source)
	})
	if len(all) > 0 {
		r.servers.current = warm.Start(all, warm.Options{
			Dir: r.Dir, Env: entries(r.environment()), Sockets: process.RuntimeDir(r.Run), Log: r.Log,
		})
	}
}

// StopProviders ends the providers that StartProviders has started.
func (r *Root) StopProviders() {
	r.servers.mu.Lock()
	defer r.servers.mu.Unlock()
	if r.servers.current != nil {
		r.servers.crashed = append(r.servers.crashed, r.servers.current.Crashed()...)
		r.servers.current.Close()
		r.servers.current = nil
	}
}

// reattach is the option of a command that uses the running providers.
func (s *servers) reattach(ctx context.Context) (*tfexec.ReattachOption, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.current == nil {
		return tfexec.Reattach(nil), nil
	}
	running, err := s.current.Addresses(ctx)
	if err != nil || len(running) == 0 {
		return tfexec.Reattach(nil), err
	}
	info := tfexec.ReattachInfo{}
	for source, at := range running {
		info[source] = tfexec.ReattachConfig{
			Protocol: "grpc", ProtocolVersion: at.Protocol, Pid: at.PID,
			Test: true, // Terraform leaves it running
			Addr: tfexec.ReattachConfigAddr{Network: "unix", String: at.Socket},
		}
	}
	return tfexec.Reattach(info), nil
}

// own reports whether a process is a running provider or its child.
func (s *servers) own(p process.Process) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.current == nil {
		return false
	}
	pids := s.current.PIDs()
	return slices.Contains(pids, p.PID) || slices.Contains(pids, p.Parent)
}

// startable are the providers of a lock that can serve all commands of the work directory. A server has one
// configuration, so a provider that the module configures more than once is not among them.
func (w workdir) startable(lock providers.Lock) []warm.Provider {
	if len(lock) == 0 {
		return nil
	}
	configured, err := w.configurations()
	if err != nil {
		return nil // Terraform reports what is wrong with the module
	}
	var all []warm.Provider
	for _, source := range slices.Sorted(maps.Keys(lock)) {
		dir, path := w.linked(source, lock[source])
		if path == "" || configured[source] > 1 {
			continue
		}
		all = append(all, warm.Provider{Source: source, Path: path, Verify: func() error {
			if w.isVerified(source, path) {
				return nil
			}
			hash, err := providers.Hash(dir)
			if err == nil && !slices.Contains(lock[source].Hashes, hash) {
				err = fmt.Errorf("the lock file lacks its checksum %s", hash)
			}
			return err
		}})
	}
	return all
}

// identity changes when a file is replaced or written: it covers the path, the inode, the size and the times.
func identity(path string) (string, error) {
	real, err := filepath.EvalSymlinks(path)
	if err != nil {
		return "", err
	}
	var info unix.Stat_t
	if err := unix.Stat(real, &info); err != nil {
		return "", &os.PathError{Op: "stat", Path: real, Err: err}
	}
	return fmt.Sprint(real, info.Dev, info.Ino, info.Size, info.Mtim, info.Ctim), nil
}

// verifiedPath is where a work directory keeps the identities of the executables that init has verified.
func (w workdir) verifiedPath() string { return filepath.Join(w.dir, ".terraform", "castle-verified") }

// noteVerified records the executables that init has just verified.
func (w workdir) noteVerified(lock providers.Lock) error {
	verified := map[string]string{}
	for source, entry := range lock {
		_, path := w.linked(source, entry)
		if path == "" {
			continue
		}
		id, err := identity(path)
		if err != nil {
			return err
		}
		verified[source] = id
	}
	if len(verified) == 0 && !exists(w.verifiedPath()) {
		return nil
	}
	data, err := json.Marshal(verified)
	if err != nil {
		return err
	}
	return atomicfile.Write(w.verifiedPath(), data)
}

// isVerified reports whether an executable is still the one that init has verified.
func (w workdir) isVerified(source, path string) bool {
	verified := map[string]string{}
	data, err := ownfile.ReadFile(w.verifiedPath())
	if err != nil || json.Unmarshal(data, &verified) != nil {
		return false
	}
	id, err := identity(path)
	return err == nil && verified[source] == id
}

// linked is the package of a provider that init has linked, and its executable; "" without one.
func (w workdir) linked(source string, entry providers.Entry) (dir, executable string) {
	pkg := providers.Package{Source: source, Version: entry.Version, Platform: providers.Here()}
	dir = filepath.Join(w.dir, ".terraform", "providers", pkg.Unpacked())
	return dir, warm.Executable(dir, providers.Type(source))
}

// configurations counts the configurations of each provider, by source, in the module and in those that it
// calls. A configuration that a module expects from its caller counts too. Any but the root module's default
// one counts twice: that one needs no block.
func (w workdir) configurations() (map[string]int, error) {
	modules, err := w.modules()
	if err != nil {
		return nil, err
	}
	dirs := map[string]bool{w.dir: true}
	for _, m := range modules {
		dirs[filepath.Join(w.dir, m.Dir)] = true
	}
	count := map[string]int{}
	for dir := range dirs {
		module, diags := tfconfig.LoadModule(dir)
		if diags.HasErrors() {
			return nil, diags.Err()
		}
		source := func(name string) string {
			required := module.RequiredProviders[name]
			if required == nil {
				return completed(name)
			}
			return completed(cmp.Or(required.Source, name))
		}
		for _, configured := range module.ProviderConfigs {
			count[source(configured.Name)]++
			if configured.Alias != "" || dir != w.dir {
				count[source(configured.Name)]++
			}
		}
		for name, required := range module.RequiredProviders {
			count[source(name)] += len(required.ConfigurationAliases)
		}
	}
	return count, nil
}

// module is the root module, or one that it calls.
type module struct{ Key, Dir string }

// modules are the root module and those that it calls, as init has recorded them.
func (w workdir) modules() ([]module, error) {
	recorded := struct{ Modules []module }{[]module{{Dir: "."}}}
	data, err := ownfile.ReadFile(filepath.Join(w.dir, ".terraform", "modules", "modules.json"))
	if errors.Is(err, fs.ErrNotExist) {
		return recorded.Modules, nil
	}
	if err == nil {
		err = json.Unmarshal(data, &recorded)
	}
	return recorded.Modules, err
}
