package terraform

import (
	"slices"
	"strings"
)

// cause is a known failure: the parts of the text that identify it (all of them, in lower case), its
// meaning, and the command that shows more.
type cause struct {
	signs      []string
	text, look string
}

const (
	lookAtReleases = "kubectl get secrets -A -l owner=helm -L name,status,version"
	unknownKind    = "the API does not serve this kind yet: the operator whose CRDs define it has to be " +
		"ready first, so the stage needs the operator's"
	refusedByInfisical = "Infisical refuses the credentials; an organisation in the EU needs " +
		"INFISICAL_HOST=https://eu.infisical.com"
)

// causes are the known causes of failed steps, the most telling first.
var causes = []cause{
	{[]string{"cannot re-use a name"}, "a Helm release of this name is in the cluster and not in " +
		"Terraform's state: an earlier install failed half-way, or somebody else installed it; uninstall " +
		"it there, or import it", lookAtReleases},
	{[]string{"another operation", "in progress"}, "another Helm works on this release, or was killed " +
		"while it did; the next create removes what a killed one of castle's left", lookAtReleases},
	{[]string{"failed calling webhook"}, "an admission webhook does not answer: its server is not ready, " +
		"although objects that it checks are already created",
		"kubectl get validatingwebhookconfigurations,mutatingwebhookconfigurations"},
	{[]string{"denied the request"},
		"an admission webhook refuses the object: its message says what is wrong with it", ""},
	{[]string{"no matches for kind"}, unknownKind, "kubectl get crds"},
	{[]string{"isn't valid for cluster"}, unknownKind, "kubectl get crds"},
	{[]string{"violates podsecurity"}, "the namespace's Pod Security level forbids these Pods: the " +
		"namespace needs the label pod-security.kubernetes.io/enforce=privileged",
		"kubectl get namespaces --show-labels"},
	{[]string{"exceeded quota"}, "the namespace's quota is used up", "kubectl get resourcequotas -A"},
	{[]string{"output array was not large enough"}, "the key that encrypts the cluster's secrets at rest " +
		"(secretbox) is not the one that they were written with: it can only be set when the cluster is " +
		"first created", ""},
	{[]string{"secret", "already exist"}, "the secret is in Infisical and not in Terraform's state: " +
		"import it, or delete it there", ""},
	{[]string{"(placement_error"}, "no host of the location has room for one more server of the placement " +
		"group: try again later, or choose another location", ""},
	{[]string{"(resource_unavailable"}, "the location has no server of this type now: choose another " +
		"server_type or location", ""},
	{[]string{"(action_failed"}, "an action of Hetzner Cloud has failed: the same command makes anew what " +
		"is not complete; if it fails again, https://status.hetzner.com may say why", ""},
	{[]string{"(resource_limit_exceeded"}, "the project's limit is reached: Hetzner Cloud raises it on " +
		"request (Limits)", ""},
	{[]string{"(uniqueness_error"}, "the project has a resource of this name, and the state does not: the " +
		"preflight of the stage's machines tells whose it is", ""},
	{[]string{"resource id 'vm:", "already defined"}, "high availability still manages the id of a machine " +
		"whose state was lost; if no guest has the id, as root on a node: ha-manager remove vm:ID", ""},
	{[]string{"ha rule '", "already defined"}, "the rule stayed when the state was lost; as root on a " +
		"node: ha-manager rules remove RULE", ""},
	{[]string{"infisical", "401"}, refusedByInfisical, ""},
	{[]string{"infisical", "unauthorized"}, refusedByInfisical, ""},
	{[]string{"toomanyrequests"}, "the registry limits anonymous pulls: wait, or give a pull secret", ""},
	{[]string{"the server has asked for the client to provide credentials"}, "the cluster refuses the " +
		"kubeconfig: the cluster was created anew since, or the kubeconfig's certificates have expired",
		"kubectl version"},
	{[]string{"no such host"}, "a name cannot be resolved from here: DNS, or a misspelt host", ""},
	{[]string{"no space left on device"},
		"a disk is full: Terraform's, here, or the one that is written to", ""},
	{[]string{"x509", "certificate has expired"}, "a certificate has expired, or a clock is wrong", ""},
	{[]string{"x509", "unknown authority"}, "a server shows a certificate of a CA that is not trusted " +
		"here: another server answers, or its CA has to be configured", ""},
}

// transientCauses explain a transient failure that lasted through all tries.
var transientCauses = map[Failure]string{
	Locked: "another task of this machine or its storage is still running; " +
		"run the same command again when that has ended",
	Throttled: "the service limits the rate of requests; run the same command again later",
	Overloaded: "the service is down or overloaded, or its proxy does not reach it; " +
		"run the same command again when it answers",
}

// CauseOf returns the likely cause of a failed step by its text, and the command that
// shows more; both empty if no known cause fits.
func CauseOf(text string) (likely, look string) {
	lower := strings.ToLower(text)
	missing := func(sign string) bool { return !strings.Contains(lower, sign) }
	for _, c := range causes {
		if !slices.ContainsFunc(c.signs, missing) {
			return c.text, c.look
		}
	}
	return transientCauses[FailureOf(text)], ""
}

// gaveUp matches the texts of a step that waited in vain, rather than being refused.
var gaveUp = lazily(`(?i)deadline exceeded|timed out|timeout|would exceed context deadline|` +
	`not ready|did not finish`)

// GaveUpWaiting reports whether a step's text describes a wait that timed out.
func GaveUpWaiting(text string) bool { return gaveUp().MatchString(text) }
