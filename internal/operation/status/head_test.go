package status

import (
	"strings"
	"testing"
)

func TestAnUnfinishedRotationIsPending(t *testing.T) {
	s := Status{Cluster: "tazlab", Rotating: true,
		Stages: []StageStatus{{Name: "keys", State: UpToDate}}}
	s.sumUp()
	if p := s.Head.Pending; p.Status != True || !strings.Contains(p.Reason, "castle rotate tazlab") {
		t.Errorf("a rotation that was killed: changes pending %v, %s", p.Status, p.Reason)
	}
}
