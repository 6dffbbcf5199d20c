package controlplane

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strings"

	"github.com/ephemeral-castle/castle/lab/internal/kubernetes"
)

// Restore describes the snapshot from which a process makes etcd's data.
type Restore struct {
	Path          string
	SkipHashCheck bool
}

// Recover makes the data of a new etcd from a snapshot, for the control plane that Start runs next in the
// directory. With an error, written says whether etcd would have found something there; it is removed. A
// process of its own does the work, because bbolt dies of a file that is cut.
func Recover(ctx context.Context, dir string, snapshot []byte, skipHashCheck bool) (written bool, err error) {
	path := filepath.Join(dir, "etcd.snapshot")
	if err := errors.Join(os.MkdirAll(dir, 0o700), kubernetes.RemoveEtcd(dir),
		os.WriteFile(path, snapshot, 0o600)); err != nil {
		return false, err
	}
	defer os.Remove(path) //nolint:errcheck // the next one replaces it
	order, err := json.Marshal(Order{Kubernetes: kubernetes.Config{Dir: dir},
		Restore: &Restore{Path: path, SkipHashCheck: skipHashCheck}})
	if err != nil {
		return false, err
	}
	c := exec.CommandContext(ctx, "/proc/self/exe", Arg)
	c.Stdin = bytes.NewReader(order)
	output, err := c.Output()
	line, _, _ := strings.Cut(string(output), "\n")
	written = kubernetes.HasEtcd(dir)
	switch {
	case line == ready:
		return false, nil
	case line != "":
		err = errors.New(line)
	case written:
		err = fmt.Errorf("error recovering from the snapshot: %w", err)
	default:
		err = fmt.Errorf("error verifying snapshot: %w", err)
	}
	return written, errors.Join(err, kubernetes.RemoveEtcd(dir))
}

// run is the process's side.
func (r *Restore) run(dir string, stdout io.Writer) error {
	if err := kubernetes.Restore(dir, r.Path, r.SkipHashCheck); err != nil {
		return err
	}
	_, err := fmt.Fprintln(stdout, ready)
	return err
}
