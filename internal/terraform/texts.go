package terraform

import (
	"regexp"
	"slices"
	"strings"
	"sync"
)

// This file and causes.go are the only places that recognise texts of Terraform, of
// providers and of the services behind them.

// lazily compiles an expression at its first use: a command that meets no error needs none of them, and all
// together were a seventh of the time in which castle starts.
func lazily(expression string) func() *regexp.Regexp {
	return sync.OnceValue(func() *regexp.Regexp { return regexp.MustCompile(expression) })
}

// Summaries of Terraform's own diagnostics.
const (
	summaryStateLocked  = "Error acquiring the state lock"
	summaryStalePlan    = "Saved plan is stale"
	summaryNoSuchObject = "Cannot import non-existent remote object"
)

var (
	// An error that only reports that another one has ended the command.
	consequence = lazily(`(?i)^(execution halted|operation cancell?ed)$`)

	wantsUpgrade = lazily(`must use\s+(terraform|tofu)\s+init\s+-upgrade`)

	// A provider without the recorded checksum: its origin, in Terraform's word, its source and version.
	wrongChecksum = lazily(`the (?:provider )?(local|current|cached|cache) ` +
		`(?:package for|at \S+ has a copy of) (\S+) (\S+) (?:\(in \S+\) |that )?` +
		`(?:doesn't|does not) match any of the checksums`)

	notConfigured = lazily(`(?i)does not exist in (the )?configuration|` +
		`import to non-existent resource address|configuration for import target does not exist`)

	alreadyExists = lazily(`(?i)already exist|cannot re-use a name|already (in use|taken)`)

	deprecated = lazily(`(?i)deprecated`)

	notFound = lazily(`(?i)non-existent remote object|\b404\b|\bnot found\b|does not exist|` +
		`could not be found`)
	// The same words about something else: the configuration, a provider, a host that is
	// another service, the user, the parent of the object.
	notFoundElse = lazily(`(?i)in the configuration|provider|plugin|dial tcp|lookup |` +
		`executable|no such file|api client|authenticat|credential|permission|` +
		`(project|workspace|environment|folder)\b.*\bnot (be )?found`)

	// The plugin framework introduces the text of a service by a paragraph like this.
	serviceText = lazily(`^[A-Z][A-Za-z ]* Error: `)
)

// Failure is a kind of transient failure, after which another try may succeed.
type Failure string

// The kinds of failures. An unknown one is permanent.
const (
	Permanent   Failure = ""
	Starting    Failure = "starting"    // an admission webhook that does not serve yet
	Locked      Failure = "locked"      // the platform is working on the same machine or storage
	Throttled   Failure = "throttled"   // a service's rate limit
	Overloaded  Failure = "overloaded"  // a service, or its proxy, that cannot answer now
	Restarting  Failure = "restarting"  // an API server or its etcd that starts or stops
	Unreachable Failure = "unreachable" // a connection that failed or broke off
	Unfinished  Failure = "unfinished"  // bpg/proxmox has added a disk, and stops where the VM had none
)

// failures are the texts of Kubernetes, Proxmox, Hetzner Cloud, whose codes are in parentheses, Infisical,
// Helm and Go's network. The first match counts: a webhook's connection is more than a connection.
var failures = []struct {
	kind Failure
	text func() *regexp.Regexp
}{
	{Starting, lazily(`failed calling webhook .*(connection refused|no endpoints available|` +
		`service \S+ not found|x509: certificate (signed by unknown authority|is valid for )|` +
		`no route to host|connection reset by peer|operation not permitted|: EOF|i/o timeout|` +
		`TLS handshake timeout|context deadline exceeded)`)},
	{Locked, lazily(`can't lock file '[^']*' - got timeout|error: got lock request timeout|` +
		`\((locked|conflict)[,)]`)},
	{Throttled, lazily(`\[status-code=429\]|\b429 Too Many Requests|` +
		`received an HTTP 429 response|storage is \(re\)initializing|` +
		`the server has received too many requests|\(rate_limit_exceeded[,)]`)},
	{Overloaded, lazily(`\((unavailable|timeout|bad_gateway)[,)]|` +
		`\[status-code=5\d\d\]|received an HTTP (50[234]|59\d) response|` +
		`\b(502 Bad Gateway|503 Service Unavailable|504 Gateway Time-?out)\b`)},
	{Restarting, lazily(`etcdserver: (leader changed|request timed out|no leader|` +
		`server stopped)|apiserver is shutting down|the server (is currently unable to handle the request|` +
		`was unable to return a response in the time allotted)`)},
	{Unreachable, lazily(`connect: (connection refused|no route to host)|: i/o timeout|` +
		`connection reset by peer|TLS handshake timeout|Client\.Timeout exceeded|` +
		`"https?://[^"]*": (unexpected )?EOF|http2: (client connection lost|server sent GOAWAY)`)},
	{Unfinished, lazily(`Defined disk interface not supported\. Interface was , but only`)},
}

var (
	// Another try is useless, independent of other text: the request was refused, the provider crashed, a
	// limit lasts for hours, or no cluster is configured.
	permanent = lazily(`(?i)denied the request|is invalid:|forbidden|unauthorized|` +
		`toomanyrequests|plugin did not respond|dial tcp (127\.0\.0\.1|\[::1\]):80:`)
	// The Talos provider tries everything again by itself, for ten minutes.
	retriesItself = lazily(`(^|\.)talos_`)
	// Several errors in one diagnostic, as Helm and others join them.
	bullet = lazily(`(?m)^\s*\* `)
)

// FailureOf returns the kind of transient failure that a text reports. A text of several
// errors is transient only if each of them is.
func FailureOf(text string) Failure {
	if head, list, several := strings.Cut(text, " occurred:"); several && bullet().MatchString(list) {
		kind := Permanent
		for _, one := range bullet().Split(list, -1)[1:] {
			if kind = FailureOf(head + " " + one); kind == Permanent {
				return Permanent
			}
		}
		return kind
	}
	text = strings.Join(strings.Fields(text), " ") // it is wrapped
	if permanent().MatchString(text) {
		return Permanent
	}
	for _, f := range failures {
		if f.text().MatchString(text) {
			return f.kind
		}
	}
	return Permanent
}

// Transient reports whether another try may succeed: every error that err joins is an
// *Error, or another error with such a method, that reports so.
func Transient(err error) bool {
	switch e := err.(type) { //nolint:errorlint // each level in turn
	case interface{ Transient() bool }:
		return e.Transient()
	case interface{ Unwrap() []error }:
		all := e.Unwrap()
		return len(all) > 0 && !slices.ContainsFunc(all, func(one error) bool { return !Transient(one) })
	case interface{ Unwrap() error }:
		return Transient(e.Unwrap())
	}
	return false
}

// Transient reports whether each of the error's causes is a transient failure.
func (e *Error) Transient() bool {
	if e.ErroredState != "" {
		return false // nothing may change before the state is restored
	}
	transient := false
	for _, d := range e.Diagnostics {
		if d.consequence() {
			continue
		}
		if retriesItself().MatchString(d.Address) || FailureOf(d.text()) == Permanent {
			return false
		}
		transient = true
	}
	return transient
}
