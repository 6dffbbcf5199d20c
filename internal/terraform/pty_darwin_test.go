package terraform

import (
	"os"
	"testing"
)

func openTerminal(t *testing.T) (master, terminal *os.File) {
	t.Helper()
	t.Skip("makes its terminal on Linux")
	return nil, nil
}
