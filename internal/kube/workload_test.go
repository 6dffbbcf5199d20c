package kube

import (
	"testing"

	"github.com/zclconf/go-cty/cty"

	"github.com/ephemeral-castle/castle/internal/gate"
)

const (
	apps = "/apis/apps/v1/namespaces/metallb-system/"
	jobs = "/apis/batch/v1/namespaces/metallb-system/jobs/"

	rolledOut = `
kind: Deployment
metadata: {generation: 2}
spec: {replicas: 1, progressDeadlineSeconds: 600}
status:
  {observedGeneration: 2, replicas: 1, updatedReplicas: 1, readyReplicas: 1, availableReplicas: 1,
   conditions: [{type: Available, status: "True"}, {type: Progressing, status: "True",
     reason: NewReplicaSetAvailable}]}`
	daemonSet = `
kind: DaemonSet
metadata: {generation: 1}
status: {observedGeneration: 1, desiredNumberScheduled: 3, currentNumberScheduled: 3,
  updatedNumberScheduled: 3, numberAvailable: 3, numberReady: 3}`
)

func is(kind, name string, more ...int64) map[string]cty.Value {
	arguments := map[string]cty.Value{"kind": str(kind), "namespace": str("metallb-system"),
		"name": str(name)}
	for _, desired := range more {
		arguments["desired"] = num(desired)
	}
	return arguments
}

func TestWorkload(t *testing.T) {
	runTrials(t, "workload", []trial{
		{name: "deployment rolled out", arguments: is("Deployment", "controller"),
			objects: []fixture{{apps + "deployments/controller", rolledOut}}},
		{
			name: "missing", arguments: is("Deployment", "controller"),
			want: "deployment metallb-system/controller does not exist yet",
		},
		{
			name: "not available", arguments: is("Deployment", "controller"),
			objects: []fixture{{apps + "deployments/controller",
				`{kind: Deployment, metadata: {generation: 1}, spec: {replicas: 1},
				status: {observedGeneration: 1, replicas: 1, updatedReplicas: 1}}`}},
			want: "deployment metallb-system/controller: 0 of 1 available",
		},
		{
			name: "not seen by its controller", arguments: is("Deployment", "controller"),
			objects: []fixture{{apps + "deployments/controller",
				`{kind: Deployment, metadata: {generation: 1}, spec: {replicas: 1}}`}},
			want: "deployment metallb-system/controller: its controller has not seen it yet",
		},
		{
			name: "an older generation is rolled out", arguments: is("Deployment", "controller"),
			objects: []fixture{{apps + "deployments/controller",
				`{kind: Deployment, metadata: {generation: 3}, spec: {replicas: 1},
				status: {observedGeneration: 2, replicas: 1, updatedReplicas: 1, readyReplicas: 1,
				  availableReplicas: 1}}`}},
			want: "deployment metallb-system/controller: Deployment generation is 3, but latest observed " +
				"generation is 2",
		},
		{
			name: "past its deadline may still recover", arguments: is("Deployment", "controller"),
			objects: []fixture{{apps + "deployments/controller",
				`{kind: Deployment, metadata: {generation: 1}, spec: {replicas: 1,
					progressDeadlineSeconds: 600},
				status: {observedGeneration: 1, replicas: 1, updatedReplicas: 1,
				  conditions: [{type: Progressing, status: "False", reason: ProgressDeadlineExceeded}]}}`}},
			want: "deployment metallb-system/controller: Progress deadline exceeded",
		},
		{
			name: "scaled to nothing", arguments: is("Deployment", "controller"),
			objects: []fixture{{apps + "deployments/controller",
				`{kind: Deployment, metadata: {generation: 1}, spec: {replicas: 0},
				status: {observedGeneration: 1, conditions: [{type: Available, status: "True"}]}}`}},
			want: "deployment metallb-system/controller: 0 of 1 pods requested",
		},
		{name: "daemon set on every node", arguments: is("DaemonSet", "speaker", 3),
			objects: []fixture{{apps + "daemonsets/speaker", daemonSet}}},
		{
			name: "daemon set on fewer nodes than desired", arguments: is("DaemonSet", "speaker", 4),
			objects: []fixture{{apps + "daemonsets/speaker", daemonSet}},
			want:    "daemonset metallb-system/speaker: 3 of 4 pods requested",
		},
		{
			name: "daemon set for no node", arguments: is("DaemonSet", "speaker"),
			objects: []fixture{{apps + "daemonsets/speaker", `{kind: DaemonSet, metadata: {generation: 1},
				status: {observedGeneration: 1, desiredNumberScheduled: 0}}`}},
			want: "daemonset metallb-system/speaker: 0 of 1 pods requested",
		},
		{
			name: "stateful set updated by hand", arguments: is("StatefulSet", "vault"),
			objects: []fixture{{apps + "statefulsets/vault", `{kind: StatefulSet, metadata: {generation: 1},
				spec: {replicas: 3, updateStrategy: {type: OnDelete}}, status: {observedGeneration: 1,
				  replicas: 3, readyReplicas: 1}}`}},
			want: "statefulset metallb-system/vault: 1 of 3 ready",
		},
		{
			name: "job complete", arguments: is("Job", "migrate"),
			objects: []fixture{{jobs + "migrate",
				`{kind: Job, status: {startTime: "2026-01-01T00:00:00Z", succeeded: 1,
				conditions: [{type: Complete, status: "True"}]}}`}},
		},
		{
			name: "job running", arguments: is("Job", "migrate"),
			objects: []fixture{{jobs + "migrate",
				`{kind: Job, status: {startTime: "2026-01-01T00:00:00Z", active: 1}}`}},
			want: "job metallb-system/migrate: not complete: 1 running, 0 succeeded, 0 failed",
		},
		{
			name: "job failed", arguments: is("Job", "migrate"),
			objects: []fixture{{jobs + "migrate",
				`{kind: Job, status: {startTime: "2026-01-01T00:00:00Z", failed: 7,
				conditions: [{type: Failed, status: "True", reason: BackoffLimitExceeded,
				  message: Job has reached the specified backoff limit}]}}`}},
			want: "job metallb-system/migrate failed: BackoffLimitExceeded: Job has reached the " +
				"specified backoff limit",
			permanent: true,
		},
		{
			name: "being deleted", arguments: is("Deployment", "controller"),
			objects: []fixture{{apps + "deployments/controller", `{kind: Deployment,
				metadata: {generation: 1,
				  deletionTimestamp: "2026-01-01T00:00:00Z"}, status: {observedGeneration: 1}}`}},
			want: "deployment metallb-system/controller: Resource scheduled for deletion",
		},
	})
}

func TestWorkloadRefusesOtherKinds(t *testing.T) {
	kind := gateType(t, "workload")
	if err := kind.Attributes["kind"].Valid(str("Pod")); err == nil {
		t.Error("a Pod is taken for a workload")
	}
	if err := kind.Check(gate.Values{"kind": str("Job"), "desired": num(2)}); err == nil {
		t.Error("a Job with a desired number is accepted")
	}
	if _, err := kind.New("x", gate.Target{}, gate.Values{"kind": str("Pod")}); err == nil {
		t.Error("a gate for a Pod was made")
	}
}
