package cluster

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"github.com/ephemeral-castle/castle/internal/config"
	"github.com/ephemeral-castle/castle/internal/process"
	"github.com/ephemeral-castle/castle/internal/state"
	"github.com/ephemeral-castle/castle/internal/state/keys"
)

const (
	dirVariable       = "CASTLE_STATE_DIR"
	temporaryVariable = "TMPDIR"
)

// InMemory returns environ as a command needs it where castle.hcl keeps the working copies in memory: the
// state directory and the temporary files are there. It checks and creates nothing; OpenStore does.
func InMemory(repository, stateDir string, environ []string) []string {
	o := Options{Repository: repository, StateDir: stateDir, Environ: environ}
	configured, err := o.stateStore()
	if err != nil || !usesMemory(o, configured) { // what opens the store reports the error
		return environ
	}
	environ = slices.Clone(environ)
	if stateDir == "" && process.Getenv(environ, dirVariable) == "" {
		environ = append(environ, dirVariable+"="+state.MemoryRoot(environ))
	}
	if root, err := state.Root(stateDir, environ); err == nil {
		environ = append(environ, temporaryVariable+"="+state.MemoryTemporary(root))
	}
	return environ
}

// usesMemory reports whether the working copies are in memory. Those of a rehearsal, which has neither the
// store nor its secrets, are not.
func usesMemory(o Options, configured config.StateStore) bool {
	rehearsal := process.Getenv(o.Environ, "CASTLE_LAB_REPOSITORY") != "" &&
		process.Getenv(o.Environ, storeVariable) == localStore
	return configured.Memory != "" && !rehearsal
}

// enterMemory makes this process and its children keep secrets in memory, or refuses it. at is the place in
// castle.hcl that requires it.
func enterMemory(o Options, at string) (notices []string, err error) {
	if process.Getenv(o.Environ, storeVariable) == localStore {
		return nil, memoryError(at, fmt.Errorf("%s=%s leaves no store, and a restart of this machine would "+
			"lose the states; unset it, or write working_copy = \"disk\"", storeVariable, localStore))
	}
	root, err := state.Root(o.StateDir, o.Environ)
	if err == nil {
		err = state.UseMemory(root)
	}
	if err != nil {
		return nil, memoryError(at, err)
	}
	if swap := state.Swap(root); len(swap) > 0 {
		notices = append(notices, fmt.Sprintf("warning: the kernel may write secrets of this command to the "+
			"swap on %s; if that is not encrypted, turn it off: swapoff %[1]s", strings.Join(swap, " ")))
	}
	file := process.Getenv(o.Environ, keys.IdentityFileVariable)
	if disk, err := state.CheckDisk(file); file != "" && err == nil && !disk.Memory {
		notices = append(notices, fmt.Sprintf("warning: %s is on a disk, and decrypts the store; pass it in "+
			"%s from a password store", file, keys.IdentityVariable))
	}
	return notices, errors.Join(process.NoCoreDumps(),
		os.Setenv(temporaryVariable, state.MemoryTemporary(root)))
}

func memoryError(at string, err error) error {
	return Usagef("%s keeps the working copy in memory: %v", at, err)
}

// InMemory reports whether no secret of the states may touch a disk.
func (s *StateStore) InMemory() bool { return s != nil && s.memory != "" }

// Downloads returns the folder of Terraform and its providers, which all clusters share. They are large and
// hold no secret: where root is in memory, they are where root would be otherwise.
func (s *StateStore) Downloads(o Options, root string) (string, error) {
	if !s.InMemory() {
		return root, nil
	}
	return state.Root("", slices.DeleteFunc(slices.Clone(o.Environ),
		func(entry string) bool { return strings.HasPrefix(entry, dirVariable+"=") }))
}

// refuseSecretsOnDisk refuses a cluster whose secrets are on a disk since working copies were not in memory.
func (c *Cluster) refuseSecretsOnDisk() error {
	if !c.Store.InMemory() {
		return nil
	}
	refuse := func(path, instead string) error {
		disk, err := state.CheckDisk(path)
		if err != nil || disk.Nearest != path || disk.Memory {
			return err
		}
		return memoryError(c.Store.memory,
			fmt.Errorf("%s is on a disk; %s, remove it, and rotate the secrets in it", path, instead))
	}
	before := filepath.Join(c.downloads, c.Config.Name, c.Config.Platform)
	export := "use `" + c.Command("env") + "` instead"
	return errors.Join(
		refuse(before, fmt.Sprintf("with working_copy = \"disk\", bring what it has to the store: "+
			"`%s`, or `%s` if there was no store before", c.Command("plan"), c.Command("state migrate"))),
		refuse(filepath.Join(c.ConfigsDir(), "kubeconfig"), export),
		refuse(filepath.Join(c.ConfigsDir(), "talosconfig"), export),
		refuse(filepath.Join(c.Config.Dir, "secrets.tfvars"),
			"set its values as TF_VAR_…, or write them to a secret store: `"+c.Command("secrets seed")+"`"))
}
