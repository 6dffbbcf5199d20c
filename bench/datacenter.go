package main

import (
	"encoding/pem"
	"errors"
	"fmt"
	"net/http/httptest"
	"os"
	"path/filepath"
	"runtime"

	corev1 "k8s.io/api/core/v1"

	"github.com/ephemeral-castle/castle/internal/emulator/infisical"
	"github.com/ephemeral-castle/castle/internal/emulator/proxmox"
)

// The credentials of the emulators, which listen on loopback only.
const (
	proxmoxToken = "castle@pve!bench=0a1b2c3d-4e5f-6071-8293-a4b5c6d7e8f9"
	clientID     = "bench"
	clientSecret = "open sesame"
)

// standIns is the program that is every provider below, by the name under which it runs; proxmoxProvider is
// the real one.
const (
	standIns        = "lab-providers"
	proxmoxVersion  = "0.111.1"
	proxmoxProvider = "terraform-provider-proxmox_v" + proxmoxVersion
)

// providers are the stand-ins that the modules use, as lab/internal/providers has them.
var providers = []struct{ source, kind, version string }{
	{"hashicorp/kubernetes", "kubernetes", "3.2.1"},
	{"hashicorp/random", "random", "3.9.0"},
	{"hashicorp/tls", "tls", "4.2.1"},
	{"infisical/infisical", "infisical", "0.19.24"},
	{"siderolabs/talos", "talos", "0.10.1"},
}

// mirror makes a filesystem mirror of the providers in bin, and returns a Terraform configuration that
// installs from nowhere else.
func mirror(dir, bin string) (config string, err error) {
	link := func(source, version, program, name string) error {
		folder := filepath.Join(dir, "registry.terraform.io", filepath.FromSlash(source), version,
			runtime.GOOS+"_"+runtime.GOARCH)
		target := filepath.Join(bin, program)
		_, err := os.Stat(target)
		return errors.Join(err, os.MkdirAll(folder, 0o700), os.Symlink(target, filepath.Join(folder, name)))
	}
	err = link("bpg/proxmox", proxmoxVersion, proxmoxProvider, proxmoxProvider)
	for _, p := range providers {
		name := "terraform-provider-" + p.kind + "_v" + p.version
		err = errors.Join(err, link(p.source, p.version, standIns, name))
	}
	return fmt.Sprintf("provider_installation {\n  filesystem_mirror {\n"+
		"    path = %q\n  }\n}\n", dir), err
}

// datacenter is what the modules of all tools reach: a Proxmox, an Infisical and a Kubernetes API.
type datacenter struct {
	proxmox *proxmox.Server
	cluster *kubernetes
	servers []*httptest.Server
	env     []string
	ca      string // a file
}

// start starts the servers. Their certificate is in a file in dir.
func start(dir string) (*datacenter, error) {
	d := &datacenter{proxmox: proxmox.New(proxmox.Config{Token: proxmoxToken}),
		cluster: &kubernetes{objects: map[string]*corev1.ConfigMap{}}}
	secrets := infisical.New(infisical.Config{ClientID: clientID, ClientSecret: clientSecret})
	secrets.SetSecret(infisical.Folder{Workspace: "bench", Environment: "prod", Path: "/bench"}, "BENCH", "1")
	nodes := httptest.NewUnstartedServer(nil)
	nodes.Config = d.proxmox.HTTPServer()
	nodes.StartTLS()
	vault := httptest.NewTLSServer(secrets.Handler())
	api := httptest.NewTLSServer(d.cluster.handler())
	d.servers = []*httptest.Server{nodes, vault, api}
	d.ca = filepath.Join(dir, "ca.pem") // httptest has the same certificate for all
	access := filepath.Join(dir, "kubeconfig")
	block := pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: nodes.Certificate().Raw})
	d.env = []string{"SSL_CERT_FILE=" + d.ca, "TF_VAR_proxmox_endpoint=" + nodes.URL,
		"TF_VAR_proxmox_api_token=" + proxmoxToken, "TF_VAR_infisical_host=" + vault.URL,
		"INFISICAL_UNIVERSAL_AUTH_CLIENT_ID=" + clientID,
		"INFISICAL_UNIVERSAL_AUTH_CLIENT_SECRET=" + clientSecret,
		"TF_VAR_cluster_access=" + kubeconfig(api),
		"KUBE_CONFIG_PATH=" + access} // castle writes a provider block instead, and ignores this
	return d, errors.Join(os.MkdirAll(dir, 0o700), os.WriteFile(d.ca, block, 0o600),
		os.WriteFile(access, []byte(kubeconfig(api)), 0o600))
}

func (d *datacenter) stop() {
	for _, s := range d.servers {
		s.Close()
	}
	d.proxmox.Close()
}
