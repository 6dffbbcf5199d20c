package diagnose

import (
	"strings"

	"github.com/ephemeral-castle/castle/internal/gate"
	"github.com/ephemeral-castle/castle/internal/kube/gates"
)

// The known causes. castle's own findings are found by their kind, missing objects by theirs, and the texts
// of other programs by a sign in them. Causes that a Pod's status shows are in pods.go, those of the
// connection in client.Unreachable.

// findings are the causes of a check's findings.
var findings = map[gate.Kind]string{
	gates.Terminating:   "its finalizers hold it up",
	gates.WrongType:     "only a Service of type LoadBalancer gets an address",
	gates.NotAccepted:   "another definition uses its names",
	gate.NotEstablished: "the API server has not finished installing it",
	gates.WrongVersion:  "the operator has another version than its objects",
	gates.NodesMissing: "the missing machines do not run, do not reach the API, " +
		"or Talos on them waits for its configuration",
	gates.NodeUnknown: "the node of a machine that was removed or renamed stays until somebody deletes it; " +
		"or a machine that is not this configuration's has joined",
	gate.NeverReported: "its kubelet has registered it and reported nothing since",
	gates.NoNetwork:    "its network is not set up: the network plugin (CNI) has not reported it",
	gate.DriverMissing: "the driver's Pod does not run there, or its registrar has not reached the kubelet",
	gates.NoCABundle:   "its certificate controller does not run, or waits for its certificate",
	gates.CAExpired:    "its certificate controller has not renewed it, or a clock is wrong",
	gates.WebhookHangs: noAnswer,
	gates.NotDenied: "the API server does not call it: its rules or selectors leave the object out, " +
		"or it accepts everything",
	gate.NoObjects:      "none was ever created",
	gates.QuotaBelowUse: "a Pod that ends is not replaced: raise the quota, or delete it",
	gates.TrafficDenied: "where the cluster's network enforces policies, its Pods are cut off: delete it, " +
		"or allow their traffic",
	gates.AddressTaken: "MetalLB may give it to a Service, and then answers ARP for it: take it out of " +
		"the pool, or delete the pool",
	gates.Unannounced: "no CiliumL2AnnouncementPolicy selects the Service and a node with a ready agent, " +
		"or the agents run without l2announcements",
	gates.NoSession: "the router does not expect the node's address or its AS number, does not answer at " +
		"port 179, or the agents run without bgpControlPlane",
	gates.NoAnswer: "no endpoint of the Service is ready, the load balancer's health checks fail, or a " +
		"firewall or a missing route keeps this machine from the address",
	gates.SpecDiffers: "somebody has set it: castle create restores what the stage's chart sets, and " +
		"kubectl edit the rest",
}

// missing are the causes of objects that do not exist, by kind.
var missing = map[string]string{
	"CustomResourceDefinition":       "its operator is not installed, or was installed without its CRDs",
	"StorageClass":                   "it is not installed, or its operator has not created it yet",
	"CSIDriver":                      "its driver is not deployed yet",
	"ValidatingWebhookConfiguration": "it is not installed, or its operator has not created it yet",
}

// signs are parts of texts of one other program with the causes that they show, the most telling first.
type signs []struct{ sign, cause string }

// cause is the first one whose sign is in the text; empty if none is.
func (all signs) cause(text string) string {
	for _, s := range all {
		if strings.Contains(text, s.sign) {
			return s.cause
		}
	}
	return ""
}

const (
	notReplaced = ", so that a Pod that ends is not replaced"

	noAnswer = "its server takes the call and does not answer in time, " +
		"or the network between control plane and Pods drops it"
	unreachablePod = "the API server cannot reach its Pod: " +
		"the network between control plane and Pods does not work"
	noHandler = "its server listens and has no handler at the configuration's path yet"
)

var (
	// network are the kubelet's reasons why a node waits for its network plugin.
	network = signs{
		{"cni plugin not initialized", "its network plugin (CNI) has not written its configuration: " +
			"the plugin's Pod does not run there yet"},
		{"NetworkPluginNotReady", "its network plugin (CNI) is not ready"},
	}
	// kubelet are its other reasons why a node is not ready.
	kubelet = signs{
		{"Kubelet stopped posting node status", "its kubelet has stopped posting its status: " +
			"the machine is off, cut off or out of memory"},
		{"container runtime is down", "its container runtime does not answer"},
		{"PLEG is not healthy", "its container runtime does not answer in time"},
	}
	// podEvents are the reasons of events about a Pod that is pending.
	podEvents = signs{
		{"FailedCreatePodSandBox", "the node's network or container runtime cannot set up"},
		{"FailedAttachVolume", "cannot attach a volume of"},
		{"FailedMapVolume", "cannot map a volume of"},
		{"FailedMount", "cannot mount a volume of"},
	}
	// creation is the API's answer to a controller that cannot create a Pod.
	creation = signs{
		{"violates podsecurity", "the namespace's Pod Security level forbids its Pods"},
		{"exceeded quota", "the namespace's quota is used up"},
		{"serviceaccount", "its ServiceAccount does not exist"},
		{"failed calling webhook", "an admission webhook does not answer"},
		{"denied the request", "an admission webhook denies its Pods"},
		{"no priorityclass", "its PriorityClass does not exist"},
		{"limitrange", "the namespace's LimitRange forbids its Pods"},
		{"", "its Pods cannot be created"},
	}
	// calls is the API server's answer after it called a webhook with a ready endpoint.
	calls = signs{
		{"certificate has expired", "the certificate of its server, or the CA that signed it, has expired"},
		{"certificate signed by unknown authority", "its caBundle is not of the CA that signed its " +
			"server's certificate: one of them was renewed alone"},
		{"certificate is valid for", "its server's certificate is made for another name"},
		{"x509:", "the API server does not accept its server's certificate"},
		{"no endpoints available", "no Pod behind its Service is ready"},
		{"connection refused", "its Pod counts as ready although its webhook does not listen yet; " +
			"it may still wait for its certificate"},
		{"no route to host", unreachablePod},
		{"i/o timeout", unreachablePod},
		{"context deadline exceeded", noAnswer},
		{"the server could not find the requested resource", noHandler},
		{"unexpected response code: 404", noHandler},
		{`service "`, "its Service does not exist"},
		{": EOF", "its server ends the connection without an answer"},
	}
)
