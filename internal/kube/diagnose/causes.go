package diagnose

import (
	"strings"

	"github.com/ephemeral-castle/castle/internal/gate"
	"github.com/ephemeral-castle/castle/internal/kube/gates"
)

// topic is the subject of a cause's sign.
type topic string

const (
	finding topic = "finding" // the kind of a check's finding
	missing topic = "missing" // the kind of an object that does not exist
	node    topic = "node"    // why a node is not ready
	// nodeNetwork is why a node waits for its network plugin.
	nodeNetwork topic = "node network"
	podEvent    topic = "event"    // the reason of an event about a Pod that is pending
	creation    topic = "creation" // the API's answer to a controller that cannot create a Pod
	call        topic = "call"     // the API server's answer after it called a webhook
)

// cause is a known cause: the sign that identifies it, and its meaning.
type cause struct {
	topic topic
	sign  string
	text  string
	look  string // the command that shows more; mostly empty
}

func kind(k gate.Kind) string { return string(k) }

// causes are all known causes, within a topic the most telling first. Causes that a Pod's status shows are
// in pods.go, those of the connection in client.Unreachable.
var causes = []cause{
	{finding, kind(gates.Terminating), "its finalizers hold it up", ""},
	{finding, kind(gates.WrongType), "only a Service of type LoadBalancer gets an address", ""},
	{finding, kind(gates.NotAccepted), "another definition uses its names", ""},
	{finding, kind(gates.NotEstablished), "the API server has not finished installing it", ""},
	{finding, kind(gates.WrongVersion), "the operator has another version than its objects", ""},
	{finding, kind(gates.NodesMissing), "the missing machines do not run, do not reach the API, " +
		"or Talos on them waits for its configuration", ""},
	{finding, kind(gates.DriverMissing), "the driver's Pod does not run there, " +
		"or its registrar has not reached the kubelet", "kubectl get csinodes -o yaml"},
	{finding, kind(gates.NoCABundle), "its certificate controller does not run, or waits for its certificate",
		""},
	{finding, kind(gates.CAExpired), "its certificate controller has not renewed it, or a clock is wrong",
		""},
	{finding, kind(gates.NoObjects), "none was ever created", ""},

	{missing, "CustomResourceDefinition", "its operator is not installed, or was installed without its CRDs",
		""},
	{missing, "StorageClass", "it is not installed, or its operator has not created it yet", ""},
	{missing, "CSIDriver", "its driver is not deployed yet", ""},
	{missing, "ValidatingWebhookConfiguration", "it is not installed, or its operator has not created it yet",
		""},

	{nodeNetwork, "cni plugin not initialized",
		"its network plugin (CNI) has not written its configuration: " +
			"the plugin's Pod does not run there yet", ""},
	{nodeNetwork, "NetworkPluginNotReady", "its network plugin (CNI) is not ready", ""},
	{nodeNetwork, "network unavailable",
		"its network is not set up: the network plugin (CNI) has not reported it",
		""},
	{node, "Kubelet stopped posting node status", "its kubelet has stopped posting its status: " +
		"the machine is off, cut off or out of memory", ""},
	{node, "container runtime is down", "its container runtime does not answer", ""},
	{node, "PLEG is not healthy", "its container runtime does not answer in time", ""},
	{node, "has no condition Ready", "its kubelet has registered it and reported nothing since", ""},

	{podEvent, "FailedCreatePodSandBox", "the node's network or container runtime cannot set up", ""},
	{podEvent, "FailedAttachVolume", "cannot attach a volume of", ""},
	{podEvent, "FailedMapVolume", "cannot map a volume of", ""},
	{podEvent, "FailedMount", "cannot mount a volume of", ""},

	{creation, "violates podsecurity", "the namespace's Pod Security level forbids its Pods", ""},
	{creation, "exceeded quota", "the namespace's quota is used up", ""},
	{creation, "serviceaccount", "its ServiceAccount does not exist", ""},
	{creation, "failed calling webhook", "an admission webhook does not answer", ""},
	{creation, "denied the request", "an admission webhook denies its Pods", ""},
	{creation, "no priorityclass", "its PriorityClass does not exist", ""},
	{creation, "limitrange", "the namespace's LimitRange forbids its Pods", ""},
	{creation, "", "its Pods cannot be created", ""},

	{call, "certificate has expired", "the certificate of its server, or the CA that signed it, has expired",
		""},
	{call, "certificate signed by unknown authority",
		"its caBundle is not of the CA that signed its server's " +
			"certificate: one of them was renewed alone", ""},
	{call, "certificate is valid for", "its server's certificate is made for another name", ""},
	{call, "x509:", "the API server does not accept its server's certificate", ""},
	{call, "no endpoints available", "no Pod behind its Service is ready", ""},
	{call, "connection refused", "its server does not listen, and no endpoint is ready", ""},
	{call, "no route to host", unreachablePod, ""},
	{call, "i/o timeout", unreachablePod, ""},
	{call, "context deadline exceeded", "its server takes the call and does not answer in time, " +
		"or the network between control plane and Pods drops it", ""},
	{call, "the server could not find the requested resource", noHandler, ""},
	{call, "unexpected response code: 404", noHandler, ""},
	{call, "service \"", "its Service does not exist", ""},
	{call, "which the gate rejects: accepted", "the API server does not call it: its rules or selectors " +
		"leave the probe's object out, or it accepts everything", ""},
	{call, ": EOF", "its server ends the connection without an answer", ""},
}

const (
	unreachablePod = "the API server cannot reach its Pod: the network between control plane and Pods " +
		"does not work"
	noHandler = "its server listens and has no handler at the configuration's path yet"
)

// known is the first cause of a topic whose sign is in the text; none is empty.
func known(of topic, text string) cause {
	if text == "" {
		return cause{}
	}
	for _, c := range causes {
		if c.topic == of && strings.Contains(text, c.sign) {
			return c
		}
	}
	return cause{}
}
