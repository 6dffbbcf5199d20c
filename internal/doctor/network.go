package doctor

import (
	"cmp"
	"context"
	"crypto/tls"
	"crypto/x509"
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
	"time"

	"github.com/zclconf/go-cty/cty"

	"github.com/ephemeral-castle/castle/internal/doctor/finding"
	"github.com/ephemeral-castle/castle/internal/talos"
	"github.com/ephemeral-castle/castle/internal/tfeval"
)

// httpError is an answer of a server other than the one that the check needs.
type httpError string

func (e httpError) Error() string { return string(e) }

// get sends one GET request, which prepare may change. A status of 400 or above is an httpError.
func get(ctx context.Context, address string, prepare func(*http.Request)) (http.Header, string, error) {
	return getFrom(ctx, http.DefaultClient, address, prepare)
}

func getFrom(ctx context.Context, client *http.Client, address string,
	prepare func(*http.Request)) (http.Header, string, error) {
	request, err := http.NewRequestWithContext(ctx, http.MethodGet, address, nil)
	if err != nil {
		return nil, "", err
	}
	prepare(request)
	answer, err := client.Do(request)
	if err != nil {
		return nil, "", finding.Reason(ctx, err)
	}
	defer answer.Body.Close() //nolint:errcheck // it was only read
	body, err := io.ReadAll(io.LimitReader(answer.Body, 32<<20))
	if err == nil && answer.StatusCode >= http.StatusBadRequest {
		err = httpError(answer.Status)
	}
	return answer.Header, string(body), finding.Reason(ctx, err)
}

// trusting is a client that trusts one more authority, given in PEM.
func trusting(certificate string) *http.Client {
	transport, is := http.DefaultTransport.(*http.Transport)
	roots, err := x509.SystemCertPool()
	if certificate == "" || !is || err != nil {
		return http.DefaultClient
	}
	roots.AppendCertsFromPEM([]byte(certificate))
	transport = transport.Clone()
	transport.TLSClientConfig = &tls.Config{RootCAs: roots, MinVersion: tls.VersionTLS12}
	return &http.Client{Transport: transport}
}

func unchanged(*http.Request) {}

// dateOf returns the Date header of a server's response of any status; zero without one.
func dateOf(ctx context.Context, address string) (time.Time, error) {
	header, _, err := get(ctx, address+"/api/status", unchanged)
	if err != nil && !errors.As(err, new(httpError)) {
		return time.Time{}, err
	}
	at, _ := http.ParseTime(header.Get("Date")) //nolint:errcheck // then it is zero
	return at, nil
}

// repository checks that the Git repository can be read as Flux will read it, and has
// the branch. The token goes into a header.
func (r *checkRun) repository(ctx context.Context, address string) []finding.Finding {
	switch parsed, err := url.Parse(address); {
	case err == nil && parsed.Scheme == "ssh":
		return r.repositoryBySSH(ctx, parsed)
	case err == nil && parsed.Scheme == "oci":
		return finding.Unchecked(address + " is an artifact, which Flux alone reads")
	}
	token := r.text("git_token")
	if token == "" && r.secrets.unread != "" {
		return finding.Unchecked(fmt.Sprintf("the token for %s is not known: %s", address, r.secrets.unread))
	}
	refs, err := references(ctx, trusting(r.text("sync_ca_certificate")), address,
		r.text("git_username"), token)
	switch {
	case errors.As(err, new(httpError)):
		return finding.Obstacle(
			"check git_url, and that the token (GITHUB_TOKEN) is valid and may read this repository",
			"%s: %v", address, err)
	case err != nil:
		return finding.Obstacle("check git_url and the network", "%s: %v", address, err)
	}
	return r.hasBranch(address, refs)
}

// hasBranch looks for the branch among the references of a repository that can be read.
func (r *checkRun) hasBranch(address, refs string) []finding.Finding {
	branch := r.text("git_branch")
	if branch != "" && !strings.Contains(refs, " refs/heads/"+branch+"\n") {
		return finding.Obstacle("correct git_branch, or push the branch",
			"%s is readable and has no branch %s", address, branch)
	}
	return finding.Good("%s is readable, and has the branch %s", address, branch)
}

// references asks a Git server for its branches: https://git-scm.com/docs/http-protocol.
func references(ctx context.Context, client *http.Client, address, user, token string) (string, error) {
	address = strings.TrimSuffix(address, "/") + "/info/refs?service=git-upload-pack"
	header, body, err := getFrom(ctx, client, address, func(request *http.Request) {
		if token != "" {
			request.SetBasicAuth(user, token)
		}
		request.Header.Set("User-Agent", "git/castle") // some hosts answer only to Git
	})
	if err != nil {
		return "", err
	}
	if kind := header.Get("Content-Type"); kind != "application/x-git-upload-pack-advertisement" {
		return "", httpError(fmt.Sprintf("not a Git repository: the content type is %q", kind))
	}
	// The first reference carries the server's capabilities after a zero byte.
	return strings.ReplaceAll(body, "\x00", "\n"), nil
}

// dialTimeout limits a connection attempt: inside a network an answer takes milliseconds.
const dialTimeout = 2 * time.Second

func dial(ctx context.Context, host, port string) error {
	ctx, stop := context.WithTimeout(ctx, dialTimeout)
	defer stop()
	conn, err := new(net.Dialer).DialContext(ctx, "tcp", net.JoinHostPort(host, port))
	if err != nil {
		return err
	}
	return conn.Close()
}

// addresses checks that no other host uses an address of the cluster. One that answers on a port of the APIs
// of Talos or Kubernetes is another cluster.
func (r *checkRun) addresses(ctx context.Context) []finding.Finding {
	wanted := r.wantedAddresses()
	if len(wanted) == 0 {
		return finding.Unchecked("no stage has addresses for the cluster")
	}
	if r.target.Exists {
		return finding.Good("used by this cluster, which exists; castle status checks it")
	}
	sorted, ports := slices.Sorted(maps.Keys(wanted)), []string{"50000", "6443"}
	taken := make([][]string, len(sorted))
	each(sorted, func(i int, address string) {
		failed := make([]error, len(ports))
		each(ports, func(j int, port string) { failed[j] = dial(ctx, address, port) })
		for j, port := range ports {
			if failed[j] == nil {
				taken[i] = append(taken[i], port)
			}
		}
	})
	var found []finding.Finding
	for i, address := range sorted {
		if len(taken[i]) > 0 {
			found = append(found, finding.Obstacle(
				"choose another address, or shut the host down; if it is this "+
					"cluster, its state is elsewhere (--state-dir)", "a host answers at %s (%s) on %s",
				address,
				wanted[address], strings.Join(taken[i], " and "))...)
		}
	}
	return finding.OrGood(found, "no host answers at %s on %s", strings.Join(sorted, ", "),
		strings.Join(ports, " or "))
}

// wantedAddresses returns the addresses of the VIP and the machines with their owners,
// without those of machines that must exist already.
func (r *checkRun) wantedAddresses() map[string]string {
	wanted := map[string]string{}
	add := func(v cty.Value, owner string) {
		if a, err := netip.ParseAddr(tfeval.Text(v)); err == nil {
			wanted[a.String()] = owner
		}
	}
	add(r.variable("vip"), "vip")
	for name, node := range tfeval.Map(r.variable("nodes")) {
		add(tfeval.Attribute(node, "address"), "node "+name)
		add(tfeval.Attribute(node, "secondary_address"), "node "+name)
	}
	for _, p := range r.preflights(talos.PreflightMaintenance) {
		endpoints := map[string]string{}
		_ = p.Values.Decode("endpoints", &endpoints) // the configuration's validation reports an error
		for _, endpoint := range endpoints {
			if a, err := netip.ParseAddr(endpoint); err == nil {
				delete(wanted, a.String())
			}
		}
	}
	return wanted
}

// names resolves the host names in the configuration. A name inside a larger value may be for other machines.
func (r *checkRun) names(ctx context.Context) []finding.Finding {
	hosts := map[string]bool{} // whether this machine needs it
	add := func(host string, needed bool) {
		if _, err := netip.ParseAddr(host); err != nil && host != "" {
			hosts[host] = hosts[host] || needed
		}
	}
	for _, s := range r.target.Stages {
		for name, v := range r.inputs(s) {
			// The issuer is only a name in tokens; no client connects to it.
			needed := v.Type() == cty.String && name != "serviceaccount_issuer"
			for _, text := range tfeval.Strings(v) {
				add(hostOf(text), needed)
			}
		}
	}
	// Proxmox and the machines download from it; Terraform posts a schematic to it.
	add(r.text("talos_image_factory"), len(tfeval.Elements(r.variable("talos_extensions"))) > 0)
	sorted := slices.Sorted(maps.Keys(hosts))
	failed := make([]error, len(sorted))
	each(sorted, func(i int, host string) { _, failed[i] = r.machine.Resolve(ctx, host) })
	var found []finding.Finding
	for i, host := range sorted {
		switch {
		case failed[i] == nil:
		case hosts[host]:
			found = append(found, finding.Obstacle(
				"check the name and this machine's DNS (/etc/resolv.conf, a VPN)",
				"%s does not resolve: %v", host, finding.Reason(ctx, failed[i]))...)
		default:
			found = append(found,
				finding.Warning("check the name; if only the cluster's machines use it, they must resolve it",
					"%s does not resolve here: %v", host, finding.Reason(ctx, failed[i]))...)
		}
	}
	return finding.OrGood(found, "%s", cmp.Or(strings.Join(sorted, ", "), "the configuration has none"))
}

// hostOf returns the host name of a URL; empty for a name that only the cluster resolves.
func hostOf(text string) string {
	u, err := url.Parse(text)
	if err != nil || u.Scheme != "https" && u.Scheme != "http" && u.Scheme != "oci" {
		return ""
	}
	host := strings.ToLower(u.Hostname())
	if strings.HasSuffix(host, ".svc") || strings.HasSuffix(host, ".cluster.local") {
		return ""
	}
	return host
}
