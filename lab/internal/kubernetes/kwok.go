package kubernetes

import (
	"context"
	"fmt"
	"strings"

	client "k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"
	"k8s.io/utils/clock"
	nodefast "sigs.k8s.io/kwok/kustomize/stage/node/fast"
	nodeheartbeat "sigs.k8s.io/kwok/kustomize/stage/node/heartbeat-with-lease"
	podfast "sigs.k8s.io/kwok/kustomize/stage/pod/fast"
	"sigs.k8s.io/kwok/pkg/apis/internalversion"
	kwok "sigs.k8s.io/kwok/pkg/client/clientset/versioned"
	kwokconfig "sigs.k8s.io/kwok/pkg/config"
	"sigs.k8s.io/kwok/pkg/kwok/controllers"
	kwokclient "sigs.k8s.io/kwok/pkg/utils/client"
)

// ReadyAfter is the annotation that sets the time until a Pod becomes ready.
const ReadyAfter = "lab.castle/ready-after"

// waits is the annotation of a Pod that gets ready only after an operator has removed it.
const waits = "lab.castle/waits"

// distrusts is a container of metrics-server that gets no usage from kubelets which sign their certificates
// themselves: its readiness probe fails for ever.
const distrusts = `.spec.containers[] | select((.image | contains("metrics-server")) and ` +
	`([.args[]?] | index("--kubelet-insecure-tls") | not)) | .name`

// leaseSeconds is the duration of a node's lease; kwok renews it four times as often.
const leaseSeconds = 8

// readyAgain is a kubelet that is back. The node controller has called its running Pods unready meanwhile, or
// the kubelet itself, when it shut down or booted.
const readyAgain = `
apiVersion: kwok.x-k8s.io/v1alpha1
kind: Stage
metadata: {name: pod-ready-again}
spec:
  resourceRef: {apiGroup: v1, kind: Pod}
  selector:
    matchExpressions:
    - {key: .metadata.deletionTimestamp, operator: DoesNotExist}
    - {key: .status.phase, operator: In, values: [Running]}
    - {key: '.status.conditions.[] | select( .type == "Ready" ) | .status', operator: In, values: ["False"]}
  next:
    statusTemplate: |
      conditions:
      - lastTransitionTime: {{ Now | Quote }}
        status: "True"
        type: Ready
      - lastTransitionTime: {{ Now | Quote }}
        status: "True"
        type: ContainersReady
`

// stages are kwok's own, with a Pod's readiness delayed, and readyAgain.
func stages(c Config) (map[internalversion.StageResourceRef][]*internalversion.Stage, error) {
	delay := fmt.Sprintf(`
  delay:
    durationMilliseconds: %d
    durationFrom:
      expressionFrom: '.metadata.annotations[%q]'
`, c.PodReady.Milliseconds(), ReadyAfter)
	all := map[internalversion.StageResourceRef][]*internalversion.Stage{}
	networked := strings.Replace(nodefast.DefaultNodeInit, "matchExpressions:\n", "matchExpressions:\n"+
		"    - {key: '.metadata.labels[\""+networkLabel+"\"]', operator: Exists}\n", 1)
	conditions := "matchExpressions:\n    - {key: '.metadata.annotations[\"" + waits +
		"\"]', operator: DoesNotExist}\n"
	if !c.SignedKubelets {
		conditions += "    - {key: '" + distrusts + "', operator: DoesNotExist}\n"
	}
	unblocked := strings.Replace(podfast.DefaultPodReady, "matchExpressions:\n", conditions, 1)
	for _, text := range []string{networked, nodeheartbeat.DefaultNodeHeartbeatWithLease, unblocked + delay,
		readyAgain + delay, podfast.DefaultPodComplete, podfast.DefaultPodDelete} {
		s, err := kwokconfig.UnmarshalWithType[*internalversion.Stage](text)
		if err != nil {
			return nil, err
		}
		all[s.Spec.ResourceRef] = append(all[s.Spec.ResourceRef], s)
	}
	return all, nil
}

// runKwok plays the kubelets of all nodes that carry the label of a running one.
func runKwok(ctx context.Context, c Config, kubeconfig string) error {
	local, err := stages(c)
	if err != nil {
		return err
	}
	set, err := kwokclient.NewClientset("", kubeconfig)
	if err != nil {
		return err
	}
	dynamic, err := set.ToDynamicClient()
	if err != nil {
		return err
	}
	mapper, err := set.ToRESTMapper()
	if err != nil {
		return err
	}
	unversioned, err := set.ToRESTConfig()
	if err != nil {
		return err
	}
	openapi, err := rest.RESTClientFor(unversioned)
	if err != nil {
		return err
	}
	config, err := clientcmd.BuildConfigFromFlags("", kubeconfig)
	if err != nil {
		return err
	}
	config.QPS, config.Burst = 500, 1000
	typed, err := client.NewForConfig(config)
	if err != nil {
		return err
	}
	own, err := kwok.NewForConfig(config)
	if err != nil {
		return err
	}
	controller, err := controllers.NewController(controllers.Config{
		Clock: clock.RealClock{}, ID: "castle-lab",
		DynamicClient: dynamic, RESTMapper: mapper, RESTClient: openapi, TypedClient: typed,
		TypedKwokClient:              own,
		ImpersonatingDynamicClient:   set.ToImpersonatingDynamicClient(),
		ImpersonatingTypedClient:     set.ToImpersonatingTypedClient(),
		ManageNodesWithLabelSelector: runningLabel + "=true",
		CIDR:                         strings.Split(c.PodCIDR, ",")[0],
		NodePort:                     kubeletPort,
		LocalStages:                  local,
		PodPlayStageParallelism:      4, NodePlayStageParallelism: 4, PodsOnNodeSyncParallelism: 4,
		NodeLeaseParallelism: 4, NodeLeaseDurationSeconds: leaseSeconds,
	})
	if err != nil {
		return err
	}
	if err := controller.Start(ctx); err != nil {
		return err
	}
	<-ctx.Done()
	return nil
}
