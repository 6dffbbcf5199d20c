package terraform

import (
	"os"
	"path/filepath"
	"runtime"
	"testing"
)

func TestOpenTofuReadsItsOwnConfiguration(t *testing.T) {
	home := t.TempDir()
	environ := []string{"HOME=" + home}
	of := func(program string, environ []string) string {
		return cliConfig(filter(Configured(environ, func() string { return program })))
	}
	if got := of("tofu", environ); got != filepath.Join(home, ".terraformrc") {
		t.Errorf("without .tofurc, tofu reads %s", got)
	}
	own := filepath.Join(home, ".tofurc")
	if err := os.WriteFile(own, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	terraforms := filepath.Join(home, ".terraformrc")
	for program, want := range map[string]string{"tofu": own, "terraform": terraforms, "": terraforms} {
		if got := of(program, environ); got != want {
			t.Errorf("%q reads %s, not %s", program, got, want)
		}
	}
	named := filepath.Join(home, "rc")
	if err := os.WriteFile(named, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	if got := of("tofu", append(environ, "TF_CLI_CONFIG_FILE="+named)); got != named {
		t.Errorf("a file that is named: %s", got)
	}
}

func TestOriginsFollowTerraformsConfiguration(t *testing.T) {
	dir := t.TempDir()
	mirror, rc := filepath.Join(dir, "mirror"), filepath.Join(dir, "rc")
	machine := runtime.GOOS + "_" + runtime.GOARCH
	for _, held := range []string{"registry.terraform.io/bpg/proxmox/0.111.1/" + machine,
		"registry.terraform.io/acme/other/1.0.0/plan9_arm"} {
		if err := os.MkdirAll(filepath.Join(mirror, held), 0o700); err != nil {
			t.Fatal(err)
		}
	}
	packed := filepath.Join(mirror, "registry.terraform.io/hashicorp/helm")
	if err := os.MkdirAll(packed, 0o700); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(filepath.Join(packed, "terraform-provider-helm_3.1.0_"+machine+".zip"), nil,
		0o600); err != nil {
		t.Fatal(err)
	}
	text := `provider_installation {
  filesystem_mirror {
    path = "` + mirror + `"
  }
  network_mirror {
    url     = "https://mirror.example/v1/"
    include = ["acme/*"]
  }
  network_mirror {
    url     = "https://second.example/v1/"
    include = ["acme/*"]
  }
  oci_mirror {
    repository_template = "oci.example/${hostname}/mirror/${namespace}-${type}"
    include             = ["siderolabs/*"]
  }
  direct {
    exclude = ["nobody/*", "acme/*"]
  }
}`
	if err := os.WriteFile(rc, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	origins, err := ReadOrigins([]string{"TF_CLI_CONFIG_FILE=" + rc, "HOME=" + dir})
	if err != nil {
		t.Fatal(err)
	}
	for source, want := range map[string]Origin{
		"registry.terraform.io/bpg/proxmox":    {Local: mirror},
		"registry.terraform.io/hashicorp/helm": {Local: mirror},
		"registry.terraform.io/acme/other": {Mirror: "https://mirror.example/v1/",
			URL: "https://mirror.example/v1/registry.terraform.io/acme/other/index.json"},
		"registry.terraform.io/siderolabs/talos": {OCI: "https://oci.example/v2/registry.terraform.io/" +
			"mirror/siderolabs-talos/tags/list?n=10000", URL: "https://oci.example/v2/"},
		"registry.terraform.io/hashicorp/tls": {URL: "https://registry.terraform.io/.well-known/" +
			"terraform.json"},
		"tofu.example/hashicorp/tls":            {URL: "https://tofu.example/.well-known/terraform.json"},
		"registry.terraform.io/nobody/has-this": {},
	} {
		if got := origins.Of(source); got != want {
			t.Errorf("%s: %+v, want %+v", source, got, want)
		}
	}
	if _, err := ReadOrigins([]string{"TF_CLI_CONFIG_FILE=" + dir, "HOME=" + dir}); err == nil {
		t.Error("a folder was read")
	}
	origins, err = ReadOrigins([]string{"HOME=" + t.TempDir()})
	if got := origins.Of("registry.terraform.io/hashicorp/none-such"); err != nil ||
		got.URL != "https://registry.terraform.io/.well-known/terraform.json" {
		t.Errorf("%+v, %v", got, err)
	}
}

func TestOriginsWithDevOverrides(t *testing.T) {
	rc := filepath.Join(t.TempDir(), "rc")
	for text, want := range map[string]bool{
		"provider_installation {\n  dev_overrides {\n    \"acme/a\" = \"/x\"\n" +
			"    \"acme/b\" = \"/y\"\n  }\n  direct {}\n}\n": true,
		"provider_installation {\n  direct {}\n}\n":                   false,
		"credentials \"mirror.example\" {\n  token = \"secret\"\n}\n": false,
	} {
		if err := os.WriteFile(rc, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
		origins, err := ReadOrigins([]string{"TF_CLI_CONFIG_FILE=" + rc})
		if err != nil || origins.Overridden() != want {
			t.Errorf("%s: %v, %v", text, origins.Overridden(), err)
		}
	}
}
