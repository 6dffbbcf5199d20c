package kubernetes

import (
	"context"
	"fmt"

	kcm "k8s.io/kubernetes/cmd/kube-controller-manager/app"
	kcmoptions "k8s.io/kubernetes/cmd/kube-controller-manager/app/options"
	scheduler "k8s.io/kubernetes/cmd/kube-scheduler/app"
	scheduleroptions "k8s.io/kubernetes/cmd/kube-scheduler/app/options"
)

// enabledControllers are those of kube-controller-manager that a lab has work for: none for clouds,
// autoscaling, certificates or the attachment of volumes.
func enabledControllers() []string {
	return []string{
		"namespace-controller", "serviceaccount-controller", "serviceaccount-token-controller",
		"root-ca-certificate-publisher-controller",
		"deployment-controller", "replicaset-controller", "daemonset-controller", "statefulset-controller",
		"job-controller", "cronjob-controller",
		"endpointslice-controller", "endpoints-controller", "garbage-collector-controller",
		"disruption-controller", "resourcequota-controller",
		"persistentvolume-binder-controller", "persistentvolume-protection-controller",
		"persistentvolumeclaim-protection-controller",
		"node-ipam-controller",
		"node-lifecycle-controller", "taint-eviction-controller", "pod-garbage-collector-controller",
		"clusterrole-aggregation-controller",
		"validatingadmissionpolicy-status-controller",
	}
}

// networkFlags let kube-controller-manager give each node its range of the Pods' network.
func networkFlags(c Config) []string {
	flags := []string{"--allocate-node-cidrs", "--cluster-cidr=" + c.PodCIDR,
		"--service-cluster-ip-range=" + c.ServiceCIDR}
	for _, mask := range c.NodeMasks {
		flags = append(flags, "--"+mask)
	}
	return flags
}

func runControllerManager(ctx context.Context, args []string) error {
	o, err := kcmoptions.NewKubeControllerManagerOptions()
	if err != nil {
		return err
	}
	all, off, aliases := kcm.KnownControllers(), kcm.ControllersDisabledByDefault(), kcm.ControllerAliases()
	if err := parse("kube-controller-manager", o.Flags(all, off, aliases), args); err != nil {
		return err
	}
	if err := o.ComponentGlobalsRegistry.Set(); err != nil {
		return err
	}
	c, err := o.Config(ctx, all, off, aliases)
	if err != nil {
		return err
	}
	return kcm.Run(ctx, c.Complete())
}

func runScheduler(ctx context.Context, args []string) error {
	o := scheduleroptions.NewOptions()
	if err := parse("kube-scheduler", *o.Flags, args); err != nil {
		return err
	}
	if err := o.ComponentGlobalsRegistry.Set(); err != nil {
		return err
	}
	c, s, err := scheduler.Setup(ctx, o)
	if err != nil {
		return fmt.Errorf("set-up: %w", err)
	}
	return scheduler.Run(ctx, c, s)
}
