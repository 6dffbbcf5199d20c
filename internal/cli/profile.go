package cli

import (
	"errors"
	"os"
	"path/filepath"
	"runtime"
	"runtime/pprof"
	"runtime/trace"
	"sync"
)

// startProfile profiles castle itself: CPU and memory for `go tool pprof`, an execution trace for `go tool
// trace`. The returned function ends it and completes the files in the folder.
func startProfile(folder string) (end func() error, err error) {
	if err := os.MkdirAll(folder, 0o700); err != nil {
		return nil, err
	}
	var files [3]*os.File
	for i, name := range []string{"cpu.pprof", "heap.pprof", "trace.out"} {
		if files[i], err = os.Create(filepath.Join(folder, name)); err != nil {
			return nil, err
		}
	}
	cpu, heap, execution := files[0], files[1], files[2]
	if err := errors.Join(pprof.StartCPUProfile(cpu), trace.Start(execution)); err != nil {
		return nil, err
	}
	return sync.OnceValue(func() error {
		trace.Stop()
		pprof.StopCPUProfile()
		runtime.GC() // or the heap would be that of the last collection
		return errors.Join(pprof.WriteHeapProfile(heap), cpu.Close(), heap.Close(), execution.Close())
	}), nil
}
