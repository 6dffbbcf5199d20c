package cluster

import (
	"cmp"
	"context"
	"crypto/sha256"
	"errors"
	"fmt"
	"net/url"
	"os"
	"os/user"
	"path/filepath"
	"slices"
	"strconv"
	"time"

	"github.com/ephemeral-castle/castle/internal/config"
	"github.com/ephemeral-castle/castle/internal/process"
	"github.com/ephemeral-castle/castle/internal/state"
	"github.com/ephemeral-castle/castle/internal/state/backups"
	"github.com/ephemeral-castle/castle/internal/state/commits"
	"github.com/ephemeral-castle/castle/internal/state/keys"
	"github.com/ephemeral-castle/castle/internal/state/workingcopy"
	"github.com/ephemeral-castle/castle/internal/store"
	"github.com/ephemeral-castle/castle/internal/store/location"
)

// The variables of the environment that say where the states are. None reaches Terraform.
const (
	storeVariable   = "CASTLE_STATE_STORE" // overrides castle.hcl
	atLeastVariable = "CASTLE_STATE_AT_LEAST"

	localStore = "local" // as the URL of a store: the state directory alone
)

// StateStore is the store in which machines share the states of all clusters. A nil *StateStore is the state
// directory of this machine alone.
type StateStore struct {
	Store      store.Store
	Encryption commits.Encryption
	Writer     commits.Writer // without a run

	notices  []string // for the user
	memory   string   // the place in castle.hcl that keeps working copies in memory; empty: on disk
	lockTime time.Duration
	atLeast  int64 // the number that the newest commit of each log must have
}

// OpenStore opens the store that the environment or castle.hcl names; nil if neither does. It makes no
// request. Repository, Environ and Version of o are enough.
func OpenStore(ctx context.Context, o Options) (*StateStore, error) {
	url := process.Getenv(o.Environ, storeVariable)
	configured, err := o.stateStore()
	inMemory := err == nil && usesMemory(o, configured)
	if url == localStore && !inMemory {
		return nil, nil
	}
	var notices []string
	if inMemory {
		if notices, err = enterMemory(o, configured.Memory); err != nil {
			return nil, err
		}
	}
	s, err := OpenStoreAt(ctx, o, url)
	if s == nil || err != nil {
		return nil, err
	}
	s.notices = notices
	if text := process.Getenv(o.Environ, atLeastVariable); text != "" {
		if s.atLeast, err = strconv.ParseInt(text, 10, 64); err != nil || s.atLeast < 0 {
			return nil, Usagef("%s=%s: give the number of a commit, which `castle state log` shows",
				atLeastVariable, text)
		}
	}
	return s, nil
}

// OpenStoreAt is OpenStore for a URL; without one for that in castle.hcl. The encryption is the configured
// one. A log may be of any length.
func OpenStoreAt(ctx context.Context, o Options, url string) (*StateStore, error) {
	configured, err := o.stateStore()
	if err != nil {
		return nil, err
	}
	if url = cmp.Or(url, configured.URL); url == "" {
		return nil, nil
	}
	if _, err := location.Parse(url); err != nil {
		return nil, Usagef("the store of the states: %v", err)
	}
	identities, err := keys.FromEnviron(o.Environ)
	switch {
	case err != nil:
		return nil, &UsageError{Message: err.Error()}
	case identities == "" && len(configured.Recipients) > 0:
		return nil, Usagef("castle.hcl encrypts the states in %s: set %s, or %s to the path of a file with "+
			"the identity of one of the recipients", url, keys.IdentityVariable, keys.IdentityFileVariable)
	case identities != "" && o.Repository == "": // what it wrote would be in clear
		return nil, Usagef("castle.hcl says for whom the states in %s are encrypted, and there is no castle "+
			"repository here: run the command in the repository, or name that with -C DIR", url)
	}
	s := &StateStore{Encryption: commits.Encryption{Recipients: configured.Recipients,
		Signers: configured.Signers, Identities: identities}, memory: configured.Memory}
	if s.lockTime, err = workingcopy.LockTime(o.Environ); err != nil {
		return nil, &UsageError{Message: err.Error()}
	}
	s.Writer = commits.Writer{User: userName(), Castle: o.Version}
	if s.Writer.Host, err = os.Hostname(); err != nil {
		return nil, err
	}
	if s.Store, err = store.Open(ctx, url); err != nil {
		return nil, &UsageError{Message: err.Error()}
	}
	return s, nil
}

// stateStore reads what castle.hcl says about the store.
func (o Options) stateStore() (config.StateStore, error) {
	if o.Repository == "" {
		return config.StateStore{}, nil
	}
	configured, files, diags := config.ReadStateStore(
		config.Options{Repository: o.Repository, Environ: o.Environ})
	if diags.HasErrors() {
		return configured, &ConfigError{Diagnostics: diags, Files: files}
	}
	return configured, nil
}

// Self names who runs castle, and where: user@host.
func Self() string {
	host, err := os.Hostname()
	if err != nil {
		host = "unknown"
	}
	return userName() + "@" + host
}

func userName() string {
	u, err := user.Current()
	if err != nil {
		return "unknown"
	}
	return u.Username
}

// Clusters lists the clusters of which root or the store has a state: blue/proxmox.
func (s *StateStore) Clusters(ctx context.Context, root string) ([]string, error) {
	all, err := state.Clusters(root)
	if s == nil {
		return all, err
	}
	stored, storeErr := commits.Clusters(ctx, s.Store)
	all = append(all, stored...)
	slices.Sort(all)
	return slices.Compact(all), errors.Join(err, storeErr)
}

// Log returns the log of a cluster in the store.
func (s *StateStore) Log(cluster string) (*commits.Log, error) {
	log, err := commits.Open(s.Store, cluster, s.Encryption)
	if err != nil {
		return nil, &UsageError{Message: err.Error()}
	}
	log.Expect(s.atLeast)
	return log, nil
}

// Open returns the working copy of the store in a cluster's state directory; nil without a store. It makes no
// request. The error is a *workingcopy.OtherError if the state is not where the configuration says.
func (s *StateStore) Open(dir *state.Dir) (*workingcopy.Copy, error) {
	if s == nil {
		return nil, workingcopy.Local(dir)
	}
	log, err := s.Log(dir.Cluster())
	if err != nil {
		return nil, err
	}
	working, err := workingcopy.Open(dir, log, s.Writer)
	if err != nil {
		return nil, err
	}
	working.SetLockTime(s.lockTime)
	if s.InMemory() {
		working.SetVolatile()
	}
	return working, nil
}

// OpenDir opens the state directory of a cluster and brings it to the newest commit of the store. Without a
// store the copy is nil. Notices are for the user.
func (s *StateStore) OpenDir(ctx context.Context, root, cluster, platform string) (
	dir *state.Dir, working *workingcopy.Copy, notices []string, err error) {
	if dir, err = state.Open(root, cluster, platform); err != nil {
		return nil, nil, nil, err
	}
	if working, err = s.Open(dir); err != nil || working == nil {
		return dir, nil, nil, err
	}
	notices, err = working.Checkout(ctx)
	return dir, working, notices, err
}

// openAnyPlace is OpenDir without a checkout. The copy is nil if the state is not in the configured place.
func (s *StateStore) openAnyPlace(_ context.Context, root, cluster, platform string) (
	dir *state.Dir, working *workingcopy.Copy, notices []string, err error) {
	if dir, err = state.Open(root, cluster, platform); err != nil {
		return nil, nil, nil, err
	}
	if working, err = s.Open(dir); errors.As(err, new(*workingcopy.OtherError)) {
		err = nil
	}
	return dir, working, nil, err
}

// Close ends the connections.
func (s *StateStore) Close() error {
	if s == nil {
		return nil
	}
	return s.Store.Close()
}

// StoreFix returns what a user can do about an error of a store, "" for any other error.
func StoreFix(err error) string {
	failed, is := errors.AsType[*store.Error](err)
	if !is {
		return ""
	}
	const again = "and run the same command again; what is only on this machine is not lost"
	switch failed.Kind {
	case store.Away:
		return fmt.Sprintf("check that %s can be reached from here, %s", failed.URL, again)
	case store.Refused:
		return fmt.Sprintf("%s refuses the credentials of this environment, or they do not suffice: renew "+
			"them, or grant reading, creating, listing and deleting, %s", failed.URL, again)
	case store.Full:
		return fmt.Sprintf("%s is full: make room there, %s", failed.URL, again)
	case store.Missing:
		return fmt.Sprintf("%s does not exist: create it, or correct the URL in the block state of "+
			"castle.hcl or in %s", failed.URL, storeVariable)
	}
	return ""
}

// Backups returns the backups of the cluster's etcd: in the store of its state, else in its directory.
func (c *Cluster) Backups(ctx context.Context) (*backups.Shelf, error) {
	if c.Store != nil {
		return backups.Open(c.Store.Store, c.Name(), c.Store.Encryption), nil
	}
	folder, err := openFolder(ctx, filepath.Dir(filepath.Dir(c.Dir.Path())))
	return backups.Open(folder, c.Name(), commits.Encryption{}), err
}

// openFolder opens a state directory as a store. It needs no Close.
func openFolder(ctx context.Context, root string) (store.Store, error) {
	return store.Open(ctx, (&url.URL{Scheme: "file", Path: root}).String())
}

// fleetFolder is where the records of runs over many clusters are, in the store and in the state directory.
// No name of a cluster has an underscore.
const fleetFolder = "fleet_runs"

// OpenFleet opens the place of the records of runs over many clusters, which are kept as the states of
// clusters are: a part of the store, with the folder of its working copies. It makes no request.
func OpenFleet(ctx context.Context, o Options) (s *StateStore, root string, err error) {
	root, err = state.Root(o.StateDir, o.Environ)
	if err == nil {
		err = OutOfTree(root, o.Repository)
	}
	if err != nil {
		return nil, "", err
	}
	of := localStore // another store has other records, and nobody moves these
	if s, err = OpenStore(ctx, o); s != nil {
		of = fmt.Sprintf("%x", sha256.Sum256([]byte(s.Store.URL())))[:16]
		s.Store, s.atLeast = store.Within(s.Store, fleetFolder), 0
	}
	return s, filepath.Join(root, fleetFolder, of), err
}

// FileEncryption encrypts files that leave the machine, such as saved plans; without a store it does not.
func (s *StateStore) FileEncryption() commits.Encryption {
	if s == nil {
		return commits.Encryption{}
	}
	return s.Encryption
}
