package gates_test

import (
	"context"
	"fmt"
	"sync"

	"github.com/fluxcd/cli-utils/pkg/kstatus/polling/aggregator"
	"github.com/fluxcd/cli-utils/pkg/kstatus/polling/collector"
	"github.com/fluxcd/cli-utils/pkg/kstatus/polling/event"
	"github.com/fluxcd/cli-utils/pkg/kstatus/status"
	"github.com/fluxcd/cli-utils/pkg/kstatus/watcher"
	"github.com/fluxcd/cli-utils/pkg/object"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/client-go/dynamic"
)

// awaiting waits for an object as Helm 4 does: a status watcher for each wait,
// a collector of what it sees, and an observer that ends both.
type awaiting struct {
	client dynamic.Interface
	mapper *mapper
}

// await returns when the object is current. watching is closed once it has been seen.
func (a awaiting) await(ctx context.Context, o *unstructured.Unstructured, watching chan<- struct{}) error {
	ctx, stop := context.WithCancel(ctx)
	defer stop()
	objects := object.ObjMetadataSet{{
		GroupKind: o.GroupVersionKind().GroupKind(), Namespace: o.GetNamespace(), Name: o.GetName(),
	}}
	seen := collector.NewResourceStatusCollector(objects)
	var once sync.Once
	events := watcher.NewDefaultStatusWatcher(a.client, a.mapper).Watch(ctx, objects,
		watcher.Options{RESTScopeStrategy: watcher.RESTScopeNamespace})
	<-seen.ListenWithObserver(events,
		collector.ObserverFunc(func(seen *collector.ResourceStatusCollector, _ event.Event) {
			var all []*event.ResourceStatus
			for _, one := range seen.ResourceStatuses {
				if one.Status == status.InProgressStatus {
					once.Do(func() { close(watching) })
				}
				all = append(all, one)
			}
			if aggregator.AggregateStatus(all, status.CurrentStatus) == status.CurrentStatus {
				stop()
			}
		}))
	if seen.Error != nil {
		return seen.Error
	}
	if got := seen.ResourceStatuses[objects[0]].Status; got != status.CurrentStatus {
		return fmt.Errorf("%s: %s", objects[0], got)
	}
	return nil
}
