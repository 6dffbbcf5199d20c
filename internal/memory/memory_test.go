package memory

import (
	"runtime"
	"runtime/debug"
	"runtime/metrics"
	"testing"
	"time"
)

// percent returns GOGC as the runtime has it.
func percent() uint64 {
	sample := []metrics.Sample{{Name: "/gc/gogc:percent"}}
	metrics.Read(sample)
	return sample[0].Value.Uint64()
}

func TestOnlyTheFirstCollectionIsLate(t *testing.T) {
	debug.SetGCPercent(usual)
	if postpone("50"); percent() != usual {
		t.Fatalf("GOGC=50: %d", percent())
	}
	if postpone(""); percent() != first {
		t.Fatalf("before a collection: %d", percent())
	}
	for end := time.Now().Add(10 * time.Second); percent() != usual; runtime.GC() {
		if time.Now().After(end) {
			t.Fatalf("after a collection: %d", percent())
		}
	}
}
