package castle

import (
	"fmt"
	"os"
)

// failed names a stage's error and, where Terraform has said something, the log
// that has all of it.
func (r *run) failed(stage string, err error) error {
	path := r.files.LogPath(stage)
	if info, statErr := os.Stat(path); statErr != nil || info.Size() == 0 {
		return fmt.Errorf("stage %s: %w", stage, err)
	}
	return fmt.Errorf("stage %s: %w\n  log: %s", stage, err, path)
}
