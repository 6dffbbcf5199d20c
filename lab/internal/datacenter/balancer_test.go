package datacenter

import (
	"crypto/tls"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"testing"

	"k8s.io/apimachinery/pkg/version"

	"github.com/ephemeral-castle/castle/internal/emulator/talos"
)

// A load balancer passes connections to the control planes whose API server answers, and to no other.
func TestALoadBalancerKnowsWhoAnswers(t *testing.T) {
	d, log := start(t, Config{})
	port, endpoint := freePort(t), "127.0.7.110"
	machine := func(i int) talos.MachineSpec {
		return talos.MachineSpec{Address: fmt.Sprintf("127.0.7.11%d", i), Hostname: fmt.Sprintf("cp-0%d", i),
			ControlPlane: true, TalosVersion: "v1.13.0", KubernetesVersion: "v1.36.3",
			APIServerVersion: fmt.Sprintf("v1.36.%d", i)}
	}
	d.kube.configured(machine(1))
	d.kube.configured(machine(2))
	behind := spec(t, endpoint, port)
	behind.VIPs = nil
	d.kube.bootstrapped(behind)
	log.await(t, "load balancer: listens at "+endpoint, 1)
	log.await(t, "kubernetes: answers at", 2)
	each := http.Client{Transport: &http.Transport{DisableKeepAlives: true,
		TLSClientConfig: &tls.Config{InsecureSkipVerify: true}}}
	answers := func() map[string]bool {
		found := map[string]bool{}
		for range 4 {
			r, err := each.Get("https://" + net.JoinHostPort(endpoint, port) + "/version")
			if err != nil {
				t.Fatal(err)
			}
			var info version.Info
			if err := errors.Join(json.NewDecoder(r.Body).Decode(&info), r.Body.Close()); err != nil {
				t.Fatal(err)
			}
			found[info.GitVersion] = true
		}
		return found
	}
	if found := answers(); !found["v1.36.1"] || !found["v1.36.2"] {
		t.Errorf("behind the load balancer: %v", found)
	}
	d.kube.down(machine(1).Address)
	if found := answers(); len(found) != 1 || !found["v1.36.2"] {
		t.Errorf("without cp-01: %v", found)
	}
	d.kube.down(machine(2).Address)
	c, err := net.Dial("tcp", net.JoinHostPort(endpoint, port))
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	if n, err := io.Copy(io.Discard, c); n != 0 || err != nil {
		t.Errorf("without control planes: %d bytes, %v", n, err)
	}
}
