package operators

import (
	"context"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	typedfake "k8s.io/client-go/kubernetes/fake"

	"github.com/ephemeral-castle/castle/lab/internal/operators/cluster"
	"github.com/ephemeral-castle/castle/lab/internal/operators/clustertest"
)

// routes records the registered routes.
type routes map[string]string

func (r routes) Register(workload, address string) { r[workload] = address }
func (r routes) Unregister(workload string)        { delete(r, workload) }

func newStage(speed float64, objects ...runtime.Object) *clustertest.Stage {
	kinds := map[schema.GroupVersionResource]string{
		pools(): "IPAddressPoolList", stores(): "ClusterSecretStoreList", externals(): "ExternalSecretList",
		longhornKind("nodes"): "NodeList", longhornKind("volumes"): "VolumeList",
		longhornKind("replicas"): "ReplicaList", longhornKind("engines"): "EngineList",
		longhornKind("volumeattachments"): "VolumeAttachmentList",
		longhornKind("instancemanagers"):  "InstanceManagerList",
		longhornKind("backuptargets"):     "BackupTargetList",
		longhornKind("backupvolumes"):     "BackupVolumeList",
		longhornKind("backups"):           "BackupList",
		longhornKind("snapshots"):         "SnapshotList",
		generators():                      "VaultDynamicSecretList",
		secretStores():                    "SecretStoreList",
	}
	return clustertest.New(kinds, speed, objects...)
}

func configuration(name string) *admissionregistrationv1.ValidatingWebhookConfiguration {
	return &admissionregistrationv1.ValidatingWebhookConfiguration{ObjectMeta: metav1.ObjectMeta{Name: name},
		Webhooks: []admissionregistrationv1.ValidatingWebhook{{Name: "one"}, {Name: "two"}}}
}

func bundle(t *testing.T, s *clustertest.Stage, name string) []byte {
	t.Helper()
	c, err := s.World.Typed.AdmissionregistrationV1().ValidatingWebhookConfigurations().Get(t.Context(), name,
		metav1.GetOptions{})
	if err != nil {
		t.Fatal(err)
	}
	if string(c.Webhooks[0].ClientConfig.CABundle) != string(c.Webhooks[1].ClientConfig.CABundle) {
		t.Error("one webhook of the configuration has the authority, the other has not")
	}
	return c.Webhooks[0].ClientConfig.CABundle
}

func TestAFailingOperatorIsReportedOnce(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		ctx, cancel := context.WithCancel(t.Context())
		looks, reports := 0, []string{}
		o := failing{func() {
			if looks++; looks == 3 {
				cancel()
			}
		}}
		pause := func() time.Duration { return interval }
		play(ctx, o, pause, func(err error) { reports = append(reports, err.Error()) })
		if len(reports) != 1 || !strings.Contains(reports[0], "panic: odd object") {
			t.Errorf("after %d looks: %q", looks, reports)
		}
	})
}

func TestOperatorsShareAListThatIsFresh(t *testing.T) {
	s := newStage(0)
	client := s.World.Typed.(*typedfake.Clientset)
	lists := func(fresh time.Duration) int {
		s.World.Fresh = fresh
		client.ClearActions()
		for range 3 {
			if _, err := s.World.Deployment(t.Context(), "controller"); err != nil {
				t.Fatal(err)
			}
		}
		return len(client.Actions())
	}
	if own, shared := lists(0), lists(time.Hour); own != 6 || shared != 0 {
		t.Errorf("%d requests without sharing, want 6; %d with the fresh list, want none", own, shared)
	}
}

func TestTheLabIsQuietOnceNobodyAsksFromOutside(t *testing.T) {
	var none *cluster.Asks
	asks, now := &cluster.Asks{}, time.Now()
	asks.Outside(now)
	if none.Quiet(now, idle) || asks.Quiet(now.Add(idle), idle) || !asks.Quiet(now.Add(idle+1), idle) {
		t.Error("the lab is quiet before the time without a request is over, or not after it")
	}
}

type failing struct{ looked func() }

func (f failing) Look(context.Context) error {
	f.looked()
	panic("odd object")
}
func (f failing) Close() {}
