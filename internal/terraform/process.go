package terraform

import (
	"context"
	"time"

	"github.com/ephemeral-castle/castle/internal/process"
)

const (
	settleGrace = 5 * time.Second       // for a Terraform that was interrupted while it started
	processPoll = 20 * time.Millisecond // between two looks at the process table
)

// Kill ends at once whatever runs for this root: Terraform, its providers and
// their children. It is the last resort: what they are doing is lost.
func (r *Root) Kill(ctx context.Context) error {
	_, err := process.EndRun(ctx, r.Run, "TF_DATA_DIR="+r.dataDir())
	return err
}

// processes finds what runs for this root: terraform-exec does not report a child's pid.
func (r *Root) processes() ([]process.Process, error) {
	return process.OfRun(r.Run, "TF_DATA_DIR="+r.dataDir())
}

// settle returns when nothing runs for this root any more. After a cancelled
// command that is so at once, unless it was cancelled in the instant in which it
// started: terraform-exec then does not wait for its end. It has been interrupted
// before it could begin anything, so a short grace is enough.
func (r *Root) settle() error {
	for end := time.Now().Add(settleGrace); time.Now().Before(end); time.Sleep(processPoll) {
		running, err := r.processes()
		if err != nil || len(running) == 0 {
			return err
		}
	}
	return r.Kill(context.Background())
}
