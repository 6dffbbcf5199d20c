package doctor

import (
	"context"
	"errors"
	"fmt"
	"io"
	"maps"
	"net"
	"net/http"
	"net/netip"
	"net/url"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/zclconf/go-cty/cty"
)

// httpError is an answer of a server other than the one that the check needs.
type httpError string

func (e httpError) Error() string { return string(e) }

// response holds the parts of an HTTP response that a check reads.
type response struct {
	header http.Header
	body   string
}

// get sends one GET request, which prepare may change. A status of 400 or above is an httpError.
func get(ctx context.Context, address string, prepare func(*http.Request)) (response, error) {
	request, err := http.NewRequestWithContext(ctx, http.MethodGet, address, nil)
	if err != nil {
		return response{}, err
	}
	if prepare != nil {
		prepare(request)
	}
	answer, err := http.DefaultClient.Do(request)
	if err != nil {
		return response{}, reason(ctx, err)
	}
	defer answer.Body.Close() //nolint:errcheck // it was only read
	body, err := io.ReadAll(io.LimitReader(answer.Body, 32<<20))
	if err != nil {
		return response{}, reason(ctx, err)
	}
	if answer.StatusCode >= http.StatusBadRequest {
		err = httpError(answer.Status)
	}
	return response{answer.Header, string(body)}, err
}

// dateOf returns the Date header of a server's response of any status; zero without one.
func dateOf(ctx context.Context, address string) (time.Time, error) {
	answer, err := get(ctx, address+"/api/status", nil)
	if err != nil && !errors.As(err, new(httpError)) {
		return time.Time{}, err
	}
	at, err := http.ParseTime(answer.header.Get("Date"))
	if err != nil {
		return time.Time{}, nil //nolint:nilerr // a server without a clock is no problem
	}
	return at, nil
}

// Certificates of Talos and Kubernetes are valid from their creation on, and tokens for
// minutes, so clocks must not differ much.
const (
	skewWarning = 30 * time.Second
	skewError   = 5 * time.Minute
)

// clock compares this machine's clock with another one, which is precise to a second.
func clock(name, whose string, read func(context.Context) (time.Time, error)) check {
	return check{name, func(ctx context.Context) []Finding {
		before := time.Now()
		theirs, err := read(ctx)
		after := time.Now()
		if err != nil {
			return grey("%s: %v", whose, reason(ctx, err))
		}
		if theirs.IsZero() {
			return grey("%s sends no Date header", whose)
		}
		// The other clock was read at some moment between before and after.
		var skew time.Duration
		if early := before.Add(-time.Second).Sub(theirs); early > 0 {
			skew = early
		} else if late := theirs.Sub(after); late > 0 {
			skew = late
		}
		direction := "ahead of"
		if theirs.After(after) {
			direction = "behind"
		}
		skew = skew.Round(time.Second)
		const fix = "set both clocks by NTP: timedatectl, chronyc tracking"
		switch {
		case skew > skewError:
			return red(fix, "this machine is %s %s %s: certificates and tokens would not be valid", skew,
				direction, whose)
		case skew > skewWarning:
			return yellow(fix, "this machine is %s %s %s", skew, direction, whose)
		}
		return green("equal to %s", whose)
	}}
}

// repository checks that the Git repository can be read as Flux will read it, and has
// the branch. The token goes into a header.
func (r *checkRun) repository(ctx context.Context, address string) []Finding {
	token := r.text("git_token")
	if token == "" && r.secrets.unread != "" {
		return grey("the token for %s is not known: %s", address, r.secrets.unread)
	}
	refs, err := references(ctx, address, r.text("git_username"), token)
	switch {
	case errors.As(err, new(httpError)):
		return red("check git_url, and that the token (GITHUB_TOKEN) is valid and may read this repository",
			"%s: %v", address, err)
	case err != nil:
		return red("check git_url and the network", "%s: %v", address, err)
	}
	branch := r.text("git_branch")
	if branch != "" && !strings.Contains(refs, " refs/heads/"+branch+"\n") {
		return red("correct git_branch, or push the branch", "%s is readable and has no branch %s", address,
			branch)
	}
	return green("%s is readable, and has the branch %s", address, branch)
}

// references asks a Git server for its branches: https://git-scm.com/docs/http-protocol.
func references(ctx context.Context, address, user, token string) (string, error) {
	address = strings.TrimSuffix(address, "/") + "/info/refs?service=git-upload-pack"
	answer, err := get(ctx, address, func(request *http.Request) {
		if token != "" {
			request.SetBasicAuth(user, token)
		}
		request.Header.Set("User-Agent", "git/castle") // some hosts answer only to Git
	})
	if err != nil {
		return "", err
	}
	if kind := answer.header.Get("Content-Type"); kind != "application/x-git-upload-pack-advertisement" {
		return "", httpError(fmt.Sprintf("not a Git repository: the content type is %q", kind))
	}
	// The first reference carries the server's capabilities after a zero byte.
	return strings.ReplaceAll(answer.body, "\x00", "\n"), nil
}

// ports are those of the APIs of Talos and Kubernetes: a host that answers there at an
// address of the cluster is another cluster.
var ports = []string{"50000", "6443"}

// dialTimeout limits a connection attempt: inside a network an answer takes milliseconds.
const dialTimeout = 2 * time.Second

// addresses checks that no other host uses an address of the cluster.
func (r *checkRun) addresses(ctx context.Context) []Finding {
	wanted := r.wantedAddresses()
	if len(wanted) == 0 {
		return grey("no stage has addresses for the cluster")
	}
	if r.target.Exists {
		return green("used by this cluster, which exists; castle status checks it")
	}
	ctx, stop := context.WithTimeout(ctx, dialTimeout)
	defer stop()
	var mu sync.Mutex
	var all sync.WaitGroup
	taken := map[string][]string{}
	for address := range wanted {
		for _, port := range ports {
			all.Go(func() {
				conn, err := new(net.Dialer).DialContext(ctx, "tcp", net.JoinHostPort(address, port))
				if err != nil {
					return
				}
				mu.Lock()
				defer mu.Unlock()
				taken[address] = append(taken[address], port)
				conn.Close() //nolint:errcheck // nothing was written
			})
		}
	}
	all.Wait()
	var found []Finding
	for _, address := range slices.Sorted(maps.Keys(taken)) {
		slices.Sort(taken[address])
		found = append(found, red("choose another address, or shut the host down; if it is this cluster, "+
			"its state is elsewhere (--state-dir)",
			"a host answers at %s (%s) on %s", address, wanted[address],
			strings.Join(taken[address], " and "))...)
	}
	return orGreen(found, "no host answers at %s on %s", strings.Join(slices.Sorted(maps.Keys(wanted)), ", "),
		strings.Join(ports, " or "))
}

// wantedAddresses returns the addresses of the VIP and the machines with their owners,
// without those of machines that must exist already.
func (r *checkRun) wantedAddresses() map[string]string {
	wanted, existing := map[string]string{}, r.existingAddresses()
	add := func(v cty.Value, owner string) {
		if a, err := netip.ParseAddr(known(v)); err == nil && !existing[a.String()] {
			wanted[a.String()] = owner
		}
	}
	add(r.variable("vip"), "vip")
	nodes := r.variable("nodes")
	if nodes == cty.NilVal || !nodes.CanIterateElements() {
		return wanted
	}
	for it := nodes.ElementIterator(); it.Next(); {
		key, node := it.Element()
		if node.Type().IsObjectType() && node.Type().HasAttribute("address") && key.Type() == cty.String {
			add(node.GetAttr("address"), "node "+key.AsString())
		}
	}
	return wanted
}

// names resolves the host names in the configuration. A name inside a larger value may be
// for other machines than this one.
func (r *checkRun) names(ctx context.Context) []Finding {
	hosts := map[string]bool{} // whether this machine needs it
	for _, s := range r.target.Stages {
		for name, v := range r.inputs(s) {
			// The issuer is only a name in tokens; no client connects to it.
			if host := hostOf(known(v)); host != "" && name != "serviceaccount_issuer" {
				hosts[host] = true
				continue
			}
			walkStrings(v, func(text string) {
				if host := hostOf(text); host != "" {
					hosts[host] = hosts[host] || false
				}
			})
		}
	}
	if registry := r.text("talos_image_factory"); registry != "" && !isAddress(registry) {
		hosts[registry] = hosts[registry] || false // Proxmox and the machines download from it
	}
	if len(hosts) == 0 {
		return green("the configuration has none")
	}
	sorted := slices.Sorted(maps.Keys(hosts))
	failed := make([]error, len(sorted))
	var all sync.WaitGroup
	for i, host := range sorted {
		all.Go(func() { _, failed[i] = r.machine.Resolve(ctx, host) })
	}
	all.Wait()
	var found []Finding
	for i, host := range sorted {
		switch {
		case failed[i] == nil:
		case hosts[host]:
			found = append(found, red("check the name and this machine's DNS (/etc/resolv.conf, a VPN)",
				"%s does not resolve: %v", host, reason(ctx, failed[i]))...)
		default:
			found = append(found, yellow("check the name; if only the cluster's machines use it, they must "+
				"resolve it",
				"%s does not resolve here: %v", host, reason(ctx, failed[i]))...)
		}
	}
	return orGreen(found, "%s", strings.Join(sorted, ", "))
}

// hostOf returns the host name of a URL; empty for an address and for a name that only
// the cluster resolves.
func hostOf(text string) string {
	u, err := url.Parse(text)
	if err != nil || u.Scheme != "https" && u.Scheme != "http" && u.Scheme != "oci" {
		return ""
	}
	host := strings.ToLower(u.Hostname())
	if isAddress(host) || strings.HasSuffix(host, ".svc") || strings.HasSuffix(host, ".cluster.local") {
		return ""
	}
	return host
}

func isAddress(host string) bool {
	_, err := netip.ParseAddr(host)
	return err == nil
}
