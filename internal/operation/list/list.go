// Package list lists all clusters: those of the repository, and those that only have a record. It reads what
// the last runs have recorded, in the state directory or the store, and contacts no cluster: it never says
// that a cluster is ready.
package list

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"io/fs"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/siderolabs/gen/xslices"

	"github.com/ephemeral-castle/castle/internal/cluster"
	"github.com/ephemeral-castle/castle/internal/fleet"
	"github.com/ephemeral-castle/castle/internal/folders"
	"github.com/ephemeral-castle/castle/internal/history"
	"github.com/ephemeral-castle/castle/internal/labels"
	"github.com/ephemeral-castle/castle/internal/naming"
	"github.com/ephemeral-castle/castle/internal/outline"
	"github.com/ephemeral-castle/castle/internal/ownfile"
	"github.com/ephemeral-castle/castle/internal/run"
	"github.com/ephemeral-castle/castle/internal/state"
)

// The states in which a cluster's record can be. None says anything about the cluster itself.
const (
	Absent      = "absent"         // nothing is recorded
	Created     = "created"        // the last apply of every stage was good
	Partly      = "partly created" // that of some stages
	Running     = "running"        // a run works on it
	Failed      = "failed"         // the last run that changes it failed
	Interrupted = "interrupted"    // the last run that changes it was interrupted, or died
	Unknown     = "unknown"        // castle cannot read the record
)

// Cluster is one cluster, by its record.
type Cluster struct {
	Cluster    string `json:"cluster"`
	Platform   string `json:"platform"`
	Status     string `json:"status"`
	Configured bool   `json:"configured"` // the repository has it
	// Labels are those of its cluster.hcl.
	Labels   map[string]string `json:"labels,omitempty"`
	Ready    int               `json:"stages_recorded"`    // stages whose last apply was good
	Stages   int               `json:"stages"`             // that are configured, else recorded
	Nodes    int               `json:"nodes,omitempty"`    // 0: none recorded
	Endpoint string            `json:"endpoint,omitempty"` // of the Kubernetes API
	// LastRun is the newest run; nil if there was none.
	LastRun *history.Run `json:"last_run,omitempty"`
	Created time.Time    `json:"created,omitzero"` // when its first stage was recorded
	Problem string       `json:"problem,omitempty"`
}

// Name is the cluster with its platform: blue/proxmox.
func (c Cluster) Name() string { return c.Cluster + "/" + c.Platform }

// Run lists the clusters that the selector chooses by name, also if others have names that castle refuses: a
// *naming.Error for each. A cluster whose labels castle cannot read is always listed, with the problem.
func Run(ctx context.Context, o cluster.Options, chosen fleet.Selector) ([]Cluster, error) {
	root, err := state.Root(o.StateDir, o.Environ)
	if err != nil {
		return nil, err
	}
	store, err := cluster.OpenStore(ctx, o)
	if err != nil {
		return nil, err
	}
	defer store.Close() //nolint:errcheck // all was read
	return in(ctx, store, root, o.Repository, chosen)
}

// in lists the clusters of a store, or of a state directory, and of a repository.
func in(ctx context.Context, store *cluster.StateStore, root, repository string, chosen fleet.Selector) (
	[]Cluster, error) {
	recorded, wrong := store.Clusters(ctx, root)
	if _, misnamed := errors.AsType[*naming.Error](wrong); wrong != nil && !misnamed {
		return nil, wrong
	}
	var configured []string
	if repository != "" {
		var err error
		configured, err = folders.Clusters(repository)
		wrong = errors.Join(wrong, err)
	}
	known := slices.Concat(configured, recorded)
	slices.Sort(known)
	all := run.Each(slices.Compact(known), func(name string) Cluster {
		c := Cluster{Status: Absent, Configured: slices.Contains(configured, name)}
		c.Cluster, c.Platform, _ = strings.Cut(name, "/")
		var stages []string
		var err error
		if c.Configured {
			file, diags := outline.Read(repository, name)
			if diags.HasErrors() {
				err = diags
			}
			stages = xslices.Map(file.Enabled(), func(s outline.Stage) string { return s.Name })
			c.Labels, c.Stages = file.Labels, len(stages)
		}
		if err == nil && !chosen.Matches(labels.All(c.Labels, name)) {
			return Cluster{Status: Absent} // as one that is gone
		}
		if err == nil && slices.Contains(recorded, name) {
			err = c.read(ctx, store, root, stages)
		}
		if err != nil {
			c.Status, c.Problem = Unknown, err.Error()
		}
		return c
	})
	if ctx.Err() != nil {
		return nil, context.Cause(ctx)
	}
	return slices.DeleteFunc(all, Cluster.empty), wrong
}

// empty reports whether the record of a cluster that is not configured has nothing but its runs: it is gone.
func (c Cluster) empty() bool { return !c.Configured && c.Status == Absent }

// read reads the record of the cluster.
func (c *Cluster) read(ctx context.Context, store *cluster.StateStore, root string, stages []string) error {
	dir, held, err := store.Recorded(ctx, root, c.Name())
	if err != nil {
		return err
	}
	newest, change, err := history.Last(dir, held)
	if err != nil {
		return err
	}
	c.LastRun = newest
	names, err := dir.Stages()
	if err != nil {
		return err
	}
	if !c.Configured {
		stages, c.Stages = names, len(names)
	}
	for _, name := range names {
		if err := c.readStage(dir.Stage(name), slices.Contains(stages, name)); err != nil {
			return err
		}
	}
	c.Status = c.status(len(names), held, change)
	return nil
}

// status is what the record says. change is the last run that changed the cluster, or nil.
func (c *Cluster) status(recorded int, held *state.HeldError, change *history.Run) string {
	switch {
	case held != nil:
		return Running
	case recorded == 0:
		return Absent
	case change != nil && change.Result == history.Failed:
		return Failed
	case change != nil && (change.Result == history.Interrupted || change.Result == history.Died):
		return Interrupted
	case c.Ready == c.Stages:
		return Created
	}
	return Partly
}

// readStage adds what the record and the state of a stage say. configured is whether it counts.
func (c *Cluster) readStage(dir *state.Stage, configured bool) error {
	rec, err := dir.Record()
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	if err != nil {
		return err
	}
	if at := cmp.Or(rec.Created, rec.Applied); !at.IsZero() && (c.Created.IsZero() || at.Before(c.Created)) {
		c.Created = at
	}
	print, err := dir.Fingerprint().Read()
	if err != nil {
		return err
	}
	if print != nil && configured {
		c.Ready++
	}
	if rec.Layer != cluster.PlatformLayer {
		return nil
	}
	outputs, err := outputsOf(dir)
	if err != nil {
		return err
	}
	var nodes map[string]string
	if json.Unmarshal(outputs["node_addresses"].Value, &nodes) == nil { // a stage may output something else
		c.Nodes = len(nodes)
	}
	endpoint := ""
	if json.Unmarshal(outputs["cluster_endpoint"].Value, &endpoint) == nil {
		c.Endpoint = endpoint
	}
	return nil
}

// output is one output of a state.
type output struct {
	Value     json.RawMessage `json:"value"`
	Sensitive bool            `json:"sensitive"`
}

// outputsOf reads the outputs of a state that are not sensitive, without its resources: it can be large.
func outputsOf(dir *state.Stage) (map[string]output, error) {
	f, err := ownfile.Open(dir.StatePath())
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	}
	if err != nil {
		return nil, err
	}
	defer f.Close() //nolint:errcheck // it was only read
	found := map[string]output{}
	for d := json.NewDecoder(f); ; {
		key, err := d.Token()
		if err != nil { // the end, or damage, which castle status reports
			return found, nil
		}
		if key != "outputs" {
			continue
		}
		if d.Decode(&found) != nil {
			return nil, nil
		}
		maps.DeleteFunc(found, func(_ string, o output) bool { return o.Sensitive })
		return found, nil
	}
}
