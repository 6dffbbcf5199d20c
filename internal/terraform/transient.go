package terraform

import (
	"regexp"
	"slices"
	"strings"
)

// Passing is a kind of failure that passes by itself, so that another try may succeed.
type Passing string

// The kinds of failures. What is not known to pass is taken to last.
const (
	Lasting     Passing = ""
	Starting    Passing = "starting"    // an admission webhook that does not serve yet
	Locked      Passing = "locked"      // Proxmox is at something else with the same machine or storage
	Throttled   Passing = "throttled"   // a service that was asked too often
	Overloaded  Passing = "overloaded"  // a service, or what stands before it, that cannot answer now
	Restarting  Passing = "restarting"  // an API server that starts or stops, or its etcd
	Unreachable Passing = "unreachable" // a connection that was not made, or broke off
)

// passingSign is how a kind is recognised.
type passingSign struct {
	kind  Passing
	words *regexp.Regexp
}

// passingSigns are how Kubernetes, Proxmox, Infisical, Helm and Go's network say it.
// The first one that fits counts: a webhook's connection is more than a connection.
func passingSigns() []passingSign {
	return []passingSign{
		{Starting, regexp.MustCompile(`failed calling webhook .*(connection refused|no endpoints available|service \S+ not found|` +
			`x509: certificate signed by unknown authority|x509: certificate is valid for |` +
			`no route to host|connection reset by peer|operation not permitted|: EOF|i/o timeout|TLS handshake timeout|context deadline exceeded)`)},
		{Locked, regexp.MustCompile(`can't lock file '[^']*' - got timeout|error: got lock request timeout`)},
		{Throttled, regexp.MustCompile(`\[status-code=429\]|\b429 Too Many Requests|received an HTTP 429 response|` +
			`the server has received too many requests|storage is \(re\)initializing`)},
		{Overloaded, regexp.MustCompile(`\[status-code=5\d\d\]|received an HTTP (50[234]|59\d) response|` +
			`\b(502 Bad Gateway|503 Service Unavailable|504 Gateway Time-?out)\b`)},
		{Restarting, regexp.MustCompile(`etcdserver: (leader changed|request timed out|no leader|server stopped)|` +
			`the server is currently unable to handle the request|apiserver is shutting down|` +
			`the server was unable to return a response in the time allotted`)},
		{Unreachable, regexp.MustCompile(`connect: connection refused|connect: no route to host|connection reset by peer|: i/o timeout|` +
			`TLS handshake timeout|Client\.Timeout exceeded|"https?://[^"]*": (unexpected )?EOF|http2: (client connection lost|server sent GOAWAY)`)},
	}
}

var (
	// What makes another try useless, whatever else is said: somebody has judged,
	// the provider itself has crashed, a limit lasts for hours, or nobody has said
	// where the cluster is.
	final = regexp.MustCompile(`(?i)denied the request|is invalid:|forbidden|unauthorized|toomanyrequests|plugin did not respond|` +
		`dial tcp (127\.0\.0\.1|\[::1\]):80:`)
	// The Talos provider tries everything again by itself, for ten minutes.
	persistent = regexp.MustCompile(`(^|\.)talos_`)
	// Several errors in one diagnostic, as Helm and others join them.
	bullet = regexp.MustCompile(`(?m)^\s*\* `)
)

// Passes says by the words of an error whether and how it passes by itself. Where
// they tell of several errors, each of them has to.
func Passes(words string) Passing {
	if head, rest, several := strings.Cut(words, " occurred:"); several && bullet.MatchString(rest) {
		kind := Lasting
		for _, one := range bullet.Split(rest, -1)[1:] {
			if kind = Passes(head + " " + one); kind == Lasting {
				return Lasting
			}
		}
		return kind
	}
	words = strings.Join(strings.Fields(words), " ") // text is wrapped
	if final.MatchString(words) {
		return Lasting
	}
	for _, sign := range passingSigns() {
		if sign.words.MatchString(words) {
			return sign.kind
		}
	}
	return Lasting
}

// Transient says whether another try may succeed: everything that err joins is an
// *Error, or whatever else can tell, and each says so of itself.
func Transient(err error) bool {
	switch e := err.(type) { //nolint:errorlint // each level is looked at in turn
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

// Transient says whether each of its diagnostics passes by itself.
func (e *Error) Transient() bool {
	if e.Rescued != "" {
		return false // the state could not be written: nothing may be changed before that is mended
	}
	passes := false
	for _, d := range e.Diagnostics {
		if d.follows() {
			continue
		}
		if persistent.MatchString(d.Address) || Passes(d.Summary+"\n"+d.Detail) == Lasting {
			return false
		}
		passes = true
	}
	return passes
}
