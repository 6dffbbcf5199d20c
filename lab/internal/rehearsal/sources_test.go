package rehearsal

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/ephemeral-castle/castle/lab/internal/sources"
)

func TestDoublesReadWhatRealControllersCannotDecrypt(t *testing.T) {
	fleet := t.TempDir()
	for name, text := range map[string]string{
		"cluster/apps.yaml": "apiVersion: kustomize.toolkit.fluxcd.io/v1\nkind: Kustomization\nmetadata: " +
			"{ name: apps, namespace: flux-system }\nspec: { interval: 1h, prune: true, path: ./apps, " +
			"decryption: { provider: sops, secretRef: { name: sops-age } }, sourceRef: { " +
			"kind: GitRepository, name: flux-system } }\n",
		"apps/secret.yaml": "apiVersion: v1\nkind: Secret\nmetadata: { name: x, namespace: default }\n" +
			"stringData: { a: \"ENC[AES256_GCM,data:AA==]\" }\nsops: { mac: x }\n",
	} {
		check(t, os.MkdirAll(filepath.Dir(filepath.Join(fleet, name)), 0o700))
		check(t, os.WriteFile(filepath.Join(fleet, name), []byte(text), 0o600))
	}
	for flag, want := range map[string]string{"": "", "real": "bin/controllers"} {
		p := &plan{Controllers: "bin/controllers", Options: Options{Controllers: flag},
			Survey: survey{Repository: fleet, Path: "./cluster", SourceKind: "GitRepository"}}
		told := ""
		check(t, p.elsewhere(nil, func(text string) { told += text }))
		named := strings.Contains(told, "SOPS has encrypted apps/secret.yaml:1")
		if p.Controllers != want || named != (want == "") {
			t.Errorf("--controllers %q: %q, %q", flag, p.Controllers, told)
		}
	}
}

func TestADigestThatTheLabLacksIsNamedBeforeTheRehearsal(t *testing.T) {
	fleet := t.TempDir()
	check(t, os.WriteFile(filepath.Join(fleet, "apps.yaml"), []byte("# nothing\n"), 0o600))
	has, err := sources.Digest(fleet)
	check(t, err)
	other := "sha256:" + strings.Repeat("0a", 32)
	for digest, want := range map[string]bool{"": false, has: false, other: true} {
		told := ""
		p := &plan{Survey: survey{Repository: fleet, Path: "./", SourceKind: "OCIRepository", Digest: digest}}
		check(t, p.elsewhere(nil, func(text string) { told += text }))
		named := strings.Contains(told, "oci_digest pins "+digest) && strings.Contains(told, has)
		if named != want {
			t.Errorf("%q: %q", digest, told)
		}
	}
}

func TestWhatIsNotAtHandIsNamedBeforeTheRehearsal(t *testing.T) {
	fleet, charts := t.TempDir(), t.TempDir()
	check(t, os.WriteFile(filepath.Join(charts, "index.yaml"), nil, 0o600))
	source := func(kind, name, url string) string {
		return "---\napiVersion: source.toolkit.fluxcd.io/v1\nkind: " + kind + "\nmetadata: { name: " + name +
			", namespace: flux-system }\nspec: { interval: 1h, url: \"" + url + "\" }\n"
	}
	check(t, os.MkdirAll(filepath.Join(fleet, "cluster"), 0o700))
	check(t, os.WriteFile(filepath.Join(fleet, "cluster", "sources.yaml"), []byte(
		source("GitRepository", "own", "https://git.example.org/me/fleet")+
			source("HelmRepository", "known", "https://charts.longhorn.io")+
			source("HelmRepository", "brought", "https://charts.example.org/stable/")+
			source("GitRepository", "apps", "https://git.example.org/me/apps.git")+
			source("GitRepository", "other", "https://git.example.org/me/other")+
			source("OCIRepository", "image", "oci://ghcr.io/me/image")), 0o600))
	brought, err := parseSources([]string{"https://charts.example.org/stable=" + charts,
		"https://git.example.org/me/apps=" + charts})
	check(t, err)
	p := &plan{Survey: survey{Repository: fleet, Path: "./cluster", SourceKind: "GitRepository",
		GitURL: "https://git.example.org/me/fleet", Sources: brought}}
	var told []string
	check(t, p.elsewhere([]string{"charts.longhorn.io"}, func(text string) { told = append(told, text) }))
	want := `GitRepository flux-system/apps (cluster/sources.yaml:17): https://git.example.org/me/apps ` +
		`is served from ` + charts + ` as a Helm repository: index.yaml, which a Helm repository has, decides
GitRepository flux-system/other (cluster/sources.yaml:22): https://git.example.org/me/other ` +
		`is not at hand; bring it with --source https://git.example.org/me/other=DIR
OCIRepository flux-system/image (cluster/sources.yaml:27): oci://ghcr.io/me/image is not at hand; ` +
		`bring it with --source oci://ghcr.io/me/image=DIR`
	if got := strings.Join(told, "\n"); got != want {
		t.Errorf("got\n%s\nwant\n%s", got, want)
	}
	if got := strings.Join(p.Survey.Missing, " "); got != "https://git.example.org/me/other "+
		"oci://ghcr.io/me/image" {
		t.Errorf("missing: %s", got)
	}
	for _, text := range []string{"ssh://ghcr.io/x=" + charts, "https://example.org",
		"https://example.org=/none"} {
		if _, err := parseSources([]string{text}); err == nil {
			t.Errorf("--source %s is accepted", text)
		}
	}
}

func TestChartsThatAreNotAtHandAreCommands(t *testing.T) {
	fleet, folder := t.TempDir(), t.TempDir()
	check(t, os.WriteFile(filepath.Join(folder, "web-1.0.0.tgz"), nil, 0o600))
	source := func(kind, name, spec string) string {
		return "---\napiVersion: source.toolkit.fluxcd.io/v1\nkind: " + kind + "\nmetadata: { name: " + name +
			", namespace: apps }\nspec: { interval: 1h, " + spec + " }\n"
	}
	helm := "layerSelector: { mediaType: application/vnd.cncf.helm.chart.content.v1.tar+gzip }"
	release := func(name, chart, version, repository string) string {
		return "---\napiVersion: helm.toolkit.fluxcd.io/v2\nkind: HelmRelease\nmetadata: { name: " + name +
			", namespace: apps }\nspec: { interval: 1h, chart: { spec: { chart: " + chart + ", version: \"" +
			version + "\", sourceRef: { kind: HelmRepository, name: " + repository + " } } } }\n"
	}
	check(t, os.MkdirAll(filepath.Join(fleet, "cluster"), 0o700))
	check(t, os.WriteFile(filepath.Join(fleet, "cluster", "all.yaml"), []byte(
		source("OCIRepository", "one", "url: oci://ghcr.io/me/app, ref: { tag: 2.0.0 }, "+helm)+
			source("OCIRepository", "two", "url: oci://ghcr.io/me/app, ref: { tag: 2.0.0 }, "+helm)+
			source("OCIRepository", "three", "url: oci://ghcr.io/me/web, ref: { tag: 1.0.0 }, "+helm)+
			source("HelmRepository", "stable", "url: https://charts.example.org/stable")+
			release("x", "things", ">=1.0 <2'", "stable")+release("web", "web", "1.x", "stable")), 0o600))
	p := &plan{Options: Options{Charts: folder}, Survey: survey{Repository: fleet, Path: "./cluster",
		SourceKind: "GitRepository", GitURL: "https://git.example.org/me/fleet"}}
	var told []string
	check(t, p.elsewhere(nil, func(text string) { told = append(told, text) }))
	want := "2 charts are not at hand, and their releases will fail. --charts DIR serves what these " +
		`commands bring:
  helm pull -d DIR oci://ghcr.io/me/app --version 2.0.0  # cluster/all.yaml:2 and 1 more
  helm pull -d DIR things --repo https://charts.example.org/stable --version '>=1.0 <2'` +
		"  # cluster/all.yaml:22"
	if got := strings.Join(told, "\n"); got != want {
		t.Errorf("got\n%s\nwant\n%s", got, want)
	}
	if hosts := strings.Join(p.Survey.Network.Hosts, " "); hosts != "charts.example.org ghcr.io" {
		t.Errorf("names that resolve: %s", hosts)
	}
	p.Options.Charts = fleet
	if err := p.elsewhere(nil, func(string) {}); err == nil {
		t.Error("--charts accepts a folder without charts")
	}
}

func TestTheRepositoryOfARemoteBase(t *testing.T) {
	for name, want := range map[string]string{
		"https://git.example.org/me/base//deploy?ref=main":      "https://git.example.org/me/base",
		"git::https://git.example.org/me/base.git//deploy":      "https://git.example.org/me/base",
		"https://git.example.org/me/base?ref=v1":                "https://git.example.org/me/base",
		"github.com/me/base/deploy?ref=v1":                      "https://github.com/me/base",
		"https://github.com/me/base//deploy":                    "https://github.com/me/base",
		"https://raw.githubusercontent.com/me/base/main/a.yaml": "",
		"ssh://git@git.example.org/me/base":                     "",
		"git@github.com:me/base":                                "",
	} {
		if got := baseOf(name); got != want {
			t.Errorf("%s: %q, want %q", name, got, want)
		}
	}
}
