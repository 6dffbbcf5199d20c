package terraform

import (
	"errors"
	"fmt"
	"testing"
)

// The texts are answers of the services behind the stages.
func TestFailureOfTellsTransientFromPermanent(t *testing.T) {
	const call = `Internal error occurred: failed calling webhook ` +
		`"ipaddresspoolvalidationwebhook.metallb.io": failed to call webhook: ` +
		`Post "https://metallb-webhook-service.metallb-system.svc:443/` +
		`validate-metallb-io-v1beta1-ipaddresspool?timeout=10s": `
	const api = `Kubernetes cluster unreachable: Get "https://192.168.1.210:6443/version": `
	for words, want := range map[string]Failure{
		// Kubernetes: webhooks
		call + `dial tcp 10.104.113.141:443: connect: connection refused`:                         Starting,
		call + `no endpoints available for service "metallb-webhook-service"`:                     Starting,
		call + `service "metallb-webhook-service" not found`:                                      Starting,
		call + `tls: failed to verify certificate: x509: certificate signed by unknown authority`: Starting,
		call + `tls: failed to verify certificate: x509: certificate is valid for localhost, not ` +
			`metallb.svc`: Starting,
		call + `context deadline exceeded`: Starting,
		call + `EOF`:                       Starting,
		call + `proxy error from 127.0.0.1:6443 while dialing 10.244.1.7:9443, code 502: ` +
			`502 Bad Gateway`: Overloaded,
		`admission webhook "ipaddresspoolvalidationwebhook.metallb.io" denied the request: resource must ` +
			`be created in metallb-system namespace`: Permanent,
		`admission webhook "v.longhorn.io" denied the request: cannot reach the target: dial tcp ` +
			`10.0.0.9:2049: connect: connection refused`: Permanent,

		// bpg/proxmox: a disk in the place of one that was detached
		`Defined disk interface not supported. Interface was , but only [ide sata scsi virtio] are ` +
			`supported`: Unfinished,
		`Defined disk interface not supported. Interface was nvme0, but only [ide sata scsi virtio] are ` +
			`supported`: Permanent,

		// Kubernetes: the API server and its etcd
		`etcdserver: leader changed`:                                             Restarting,
		`etcdserver: request timed out`:                                          Restarting,
		`rpc error: code = Unavailable desc = etcdserver: leader changed`:        Restarting,
		`the server is currently unable to handle the request (post namespaces)`: Restarting,
		`the server was unable to return a response in the time allotted, but may still be processing ` +
			`the request`: Restarting,
		`the server has received too many requests and has asked us to try again later (get namespaces ` +
			`metallb-system)`: Throttled,
		api + `dial tcp 192.168.1.210:6443: connect: connection refused`:                    Unreachable,
		api + `dial tcp 192.168.1.210:6443: i/o timeout`:                                    Unreachable,
		api + `net/http: TLS handshake timeout`:                                             Unreachable,
		api + `EOF`:                                                                         Unreachable,
		api + `http2: client connection lost`:                                               Unreachable,
		api + `read tcp 10.0.0.2:50122->192.168.1.210:6443: read: connection reset by peer`: Unreachable,
		api + `net/http: request canceled while waiting for connection (Client.Timeout exceeded while ` +
			`awaiting headers)`: Unreachable,
		api + `tls: failed to verify certificate: x509: certificate signed by ` +
			`unknown authority`: Permanent,
		api + `tls: failed to verify certificate: x509: certificate has expired or ` +
			`is not yet valid`: Permanent,
		`Get "http://localhost/api/v1/namespaces/a": dial tcp [::1]:80: connect: ` +
			`connection refused`: Permanent,
		`the server has asked for the client to provide credentials`: Permanent,
		`Unauthorized`: Permanent,
		`namespaces is forbidden: User "a" cannot create resource "namespaces"`: Permanent,
		`unable to build kubernetes objects from release manifest: ` +
			`no matches for kind "IPAddressPool"`: Permanent,
		`IPAddressPool.metallb.io "a" is invalid: spec.addresses: Required value`: Permanent,
		`context deadline exceeded`: Permanent, // Helm has waited for as long as it was told to

		// Helm
		`installation failed: cannot re-use a name that is still in use`: Permanent,
		`could not download chart: failed to fetch https://metallb.github.io/metallb/index.yaml : 503 ` +
			`Service Unavailable`: Overloaded,
		`could not download chart: failed to fetch https://metallb.github.io/metallb/index.yaml : 404 ` +
			`Not Found`: Permanent,
		`unexpected status from HEAD request: 429 Too Many Requests; toomanyrequests: You have reached ` +
			`your pull rate limit`: Permanent,
		"2 errors occurred:\n\t* " + call +
			"EOF\n\t* etcdserver: leader changed\n\n": Restarting,
		"2 errors occurred:\n\t* " + call +
			"EOF\n\t* roles.rbac.authorization.k8s.io \"a\" already exists\n\n": Permanent,

		// Proxmox
		`error cloning VM: task "UPID:pve:0001" failed to complete with exit code: can't lock file ` +
			`'/var/lock/qemu-server/lock-133.conf' - got timeout`: Locked,
		`error updating VM: received an HTTP 500 response - Reason: can't lock file ` +
			`'/var/lock/qemu-server/lock-101.conf' - got timeout`: Locked,
		`clone failed: can't lock file '/var/lock/pve-manager/pve-storage-local-lvm' - got timeout`: Locked,
		`unable to create VM 421 - cfs-lock 'storage-ceph' error: got lock request timeout`:         Locked,
		`error retrieving files from datastore cephfs: received an HTTP 596 response - Reason: ` +
			`Connection timed out`: Overloaded,
		`error retrieving VM 421: received an HTTP 595 response - Reason: No route to host`: Overloaded,
		`received an HTTP 500 response - Reason: unable to create VM 421 - VM 421 already exists on node ` +
			`'proxmox'`: Permanent,
		`received an HTTP 500 response - Reason: can't remove VM 421 - protection mode enabled`:   Permanent,
		`task "UPID:pve:0001" failed to complete with exit code: VM is locked (backup)`:           Permanent,
		`received an HTTP 401 response - Reason: Authentication failed!`:                          Permanent,
		`received an HTTP 403 response - Reason: Permission check failed (/vms/421, VM.Allocate)`: Permanent,

		// Hetzner Cloud
		"load_balancer is locked (locked, 4f5a)":                        Locked,
		"network has changed during the request (conflict)":             Locked,
		"limit of 3600 requests per hour reached (rate_limit_exceeded)": Throttled,
		"server deletion is protected (protected)":                      Permanent,
		"error during placement (placement_error, 4f5a)":                Permanent,

		// Infisical
		`Infisical Client Error: CallUniversalAuthLogin: Unable to complete api request [err=Post ` +
			`"https://eu.infisical.com/api/v1/auth/universal-auth/login": EOF]`: Unreachable,
		`CallGetSecretsRawV3: Unsuccessful response [GET https://eu.infisical.com/api/v3/secrets/raw] ` +
			`[status-code=503] [request-id=req-1]`: Overloaded,
		`CallGetSecretsRawV3: Unsuccessful response [GET https://eu.infisical.com/api/v3/secrets/raw] ` +
			`[status-code=500] [request-id=req-1] [message="Something went wrong"]`: Overloaded,
		`CallGetSecretsRawV3: Unsuccessful response [GET https://eu.infisical.com/api/v3/secrets/raw] ` +
			`[status-code=429] [request-id=req-1] [message="Rate limit exceeded"]`: Throttled,
		`CallCreateSecretsRawV3: Unsuccessful response [POST ` +
			`https://eu.infisical.com/api/v3/secrets/raw/A] [status-code=400] [request-id=req-1] ` +
			`[message="Secret already exist"]`: Permanent,
		`CallUniversalAuthLogin: Unsuccessful response [POST ` +
			`https://eu.infisical.com/api/v1/auth/universal-auth/login] [status-code=401] ` +
			`[request-id=req-1] [message="Invalid credentials"]`: Permanent,

		// The network, and Terraform
		`Get "https://proxmox.example:8006/api2/json/version": dial tcp: lookup proxmox.example on ` +
			`10.0.0.1:53: read udp 10.0.0.2:41->10.0.0.1:53: i/o timeout`: Unreachable,
		`Get "https://proxmox.example:8006/api2/json/version": dial tcp: lookup proxmox.example: no such ` +
			`host`: Permanent,
		"Get \"https://proxmox.example:8006/api2/json/version\": dial tcp\n10.0.0.9:8006: connect: " +
			"connection\nrefused": Unreachable,
		`Plugin did not respond: The plugin encountered an error, and failed to respond: rpc error: code ` +
			`= Unavailable desc = error reading from server: EOF`: Permanent,
		`Error acquiring the state lock: resource temporarily unavailable`: Permanent,
		`Could not retrieve the list of available versions for provider hashicorp/helm: the request ` +
			`failed after 2 attempts, please try again later: 502 Bad Gateway returned from ` +
			`registry.terraform.io`: Overloaded,
		`Could not retrieve the list of available versions for provider hashicorp/helm: no available ` +
			`releases match the given constraints ~> 9.0`: Permanent,
		`Saved plan is stale`:                           Permanent,
		`error converting YAML to JSON: unexpected EOF`: Permanent,
		`the rack is on fire`:                           Permanent,
	} {
		if got := FailureOf(words); got != want {
			t.Errorf("%s\n  got %q, want %q", words, got, want)
		}
	}
}

func TestAnErrorIsTransientIfAllItsCausesAre(t *testing.T) {
	passing := Diagnostic{Summary: "creating VM",
		Detail: "can't lock file '/var/lock/qemu-server/lock-421.conf' - got timeout"}
	lasting := Diagnostic{Summary: "quota exceeded"}
	follows := Diagnostic{Summary: "execution halted"}
	talos := Diagnostic{
		Summary: "Error bootstrapping node", Address: "module.a.talos_machine_bootstrap.this",
		Detail: `rpc error: code = Unavailable desc = connection error: desc = "transport: Error while ` +
			`dialing: dial tcp 192.168.1.211:50000: connect: connection refused"`,
	}
	of := func(all ...Diagnostic) error { return &Error{Command: "apply", Diagnostics: all} }
	for name, c := range map[string]struct {
		err  error
		want bool
	}{
		"nothing":                    {nil, false},
		"one that passes":            {of(passing), true},
		"two that pass":              {of(passing, follows, passing), true},
		"wrapped":                    {fmt.Errorf("adopt a: %w", of(passing)), true},
		"one of two lasts":           {of(passing, lasting), false},
		"no diagnostics":             {of(), false},
		"only what follows":          {of(follows), false},
		"joined with one that lasts": {errors.Join(of(passing), of(lasting)), false},
		"joined with something else": {errors.Join(of(passing), errors.New("no space left on device")),
			false},
		"joined with nothing":          {errors.Join(of(passing), nil), true},
		"something else in such words": {errors.New(passing.Detail), false},
		"a state that was not written": {&Error{Diagnostics: []Diagnostic{passing},
			ErroredState: "/errored.tfstate"}, false},
		"Talos, tried for ten minutes": {of(talos), false},
	} {
		if got := Transient(c.err); got != c.want {
			t.Errorf("%s: %v, want %v", name, got, c.want)
		}
	}
}
