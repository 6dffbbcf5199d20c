// Package kubernetes runs a real Kubernetes control plane inside one process:
// etcd, kube-apiserver, kube-controller-manager and kube-scheduler, with kwok
// in the place of kubelets and containers.
//
// The API, admission, webhooks, garbage collection, rollouts and scheduling
// are the real ones, so what a user sees of them in the lab is what he sees at
// home. Pods are pretended: they become ready after a short delay, or after the
// one that their annotation lab.castle/ready-after names ("5s"). There is no
// kubelet, so logs and exec fail, and no network between Pods. The API server's
// own calls to Services (webhooks) do work: they follow cluster IP, ready
// EndpointSlice and Pod to the local process that is registered for the Pod in
// Routes, and are refused in the kernel's words where there is none.
//
// A process holds at most one control plane, once: the components keep global
// registries and end only with the process. Whoever needs to stop and start
// one runs this package in a process of its own and kills that.
//
// The version that the server reports comes from the linker; without
//
//	V=k8s.io/component-base/version
//	go build -ldflags "-X $V.gitVersion=v1.36.3 -X $V.gitMajor=1 -X $V.gitMinor=36"
//
// it calls itself v0.0.0-master.
package kubernetes
