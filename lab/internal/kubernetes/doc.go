// Package kubernetes runs a real Kubernetes control plane inside one process: etcd, kube-apiserver,
// kube-controller-manager and kube-scheduler, with kwok in the place of kubelets and containers.
//
// The API, admission, webhooks, garbage collection, rollouts and scheduling are real, so they
// behave in the lab as in a real cluster. Pods run no containers: they become ready after a short
// delay, or after the one in their annotation lab.castle/ready-after ("5s"). Logs and commands of a
// container are what the API knows of it, and there is no network between Pods. The API server's own
// calls to Services (webhooks) do work. They follow cluster IP, ready EndpointSlice and Pod to the
// local process that is registered for the Pod in Routes. Without such a process they fail with the
// kernel's error.
//
// A process holds at most one control plane, once: the components keep global registries and end
// only with the process. To stop and start one, run this package in a separate process and kill
// that process.
//
// The linker sets the version that the server reports; without
//
//	V=k8s.io/component-base/version
//	go build -ldflags "-X $V.gitVersion=v1.36.3 -X $V.gitMajor=1 -X $V.gitMinor=36"
//
// it reports v0.0.0-master.
package kubernetes
