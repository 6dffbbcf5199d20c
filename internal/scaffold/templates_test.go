package scaffold

import (
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
	"testing/fstest"

	"github.com/ephemeral-castle/castle/internal/config"
	"github.com/ephemeral-castle/castle/stages"
	"github.com/ephemeral-castle/castle/templates"
)

func TestTheRepositoryShadowsTemplatesByFile(t *testing.T) {
	dir := t.TempDir()
	if err := os.Mkdir(filepath.Join(dir, "templates"), 0o700); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(filepath.Join(dir, "templates", "a.tmpl"), []byte("mine"), 0o600); err != nil {
		t.Fatal(err)
	}
	all := layered(dir, fstest.MapFS{
		"a.tmpl": {Data: []byte("embedded")}, "b.tmpl": {Data: []byte("embedded")},
	})
	for name, want := range map[string]string{"a.tmpl": "mine", "b.tmpl": "embedded"} {
		if src, err := fs.ReadFile(all, name); err != nil || string(src) != want {
			t.Errorf("%s: %q %v", name, src, err)
		}
	}
	if entries, err := fs.ReadDir(all, "."); err != nil || len(entries) != 2 {
		t.Errorf("templates: %v %v", entries, err)
	}
}

func TestErrorsOfATemplateNameFileAndLine(t *testing.T) {
	const language = "templatefile: ${key} is an answer, $${ and %%{ are ${ and %{ in the file"
	for _, c := range []struct{ text, want, hint string }{
		{"# {{ .team }}", "{{ .team }}: castle no longer reads Go's templates; write ${team}",
			`${"{{"} is {{`},
		{"{{- if eq .secrets \"local\" -}}", "write ${…}, %{ if … } or %{ for … }", `${"{{"} is {{`},
		{"${HOME}", "HOME: the template has no such key", language},
		{"${team:-ops}", "extra characters after interpolation expression: ", language},
		{"a ${team} ${team\n\n", "unclosed template interpolation sequence: ", language},
		{"%{ for x in team ~}", "unexpected end of template: The for directive at ", language},
		{"${uper(team)}", "call to unknown function: There is no function named \"uper\". Did you", language},
		{"%{ for n in nodes }${n.Name}%{ endfor }", "unsupported attribute: This object does not have an " +
			"attribute named \"Name\".", language},
	} {
		all := fstest.MapFS{"own/next.txt": {Data: []byte("Next:\n" + c.text)}}
		parts, err := readTemplate(all, "own")
		if err == nil {
			values, _ := valuesOf(map[string]any{"team": "ops", "nodes": []Node{{}, {}}})
			_, err = parts[0].render(values)
		}
		if err == nil || !strings.HasPrefix(err.Error(), "templates/own/next.txt:2: ") ||
			!strings.Contains(err.Error(), c.want) || !strings.Contains(err.Error(), c.hint) ||
			strings.Count(err.Error(), "\n") != 1 {
			t.Errorf("%s: %v", c.text, err)
		}
	}
}

func TestTemplatesMayContainWhatLooksLikeTheirLanguage(t *testing.T) {
	const text = "$${{ inputs.plan }} 100% $HOME %%{ if ${\"{{\"} .team }} of ${team}\n"
	parts, err := readTemplate(fstest.MapFS{"own/next.txt": {Data: []byte(text)}}, "own")
	if err != nil {
		t.Fatal(err)
	}
	values, err := valuesOf(map[string]any{"team": "ops"})
	if err != nil {
		t.Fatal(err)
	}
	got, err := parts[0].render(values)
	want := "${{ inputs.plan }} 100% $HOME %{ if {{ .team }} of ops\n"
	if err != nil || string(got) != want {
		t.Errorf("got %s, %v", got, err)
	}
}

func TestATemplateAsksForTheKeysOfItsExpressions(t *testing.T) {
	const text = "$${fake} %{ for i, n in nodes }${i} ${n.id} %{ endfor }${upper(team)} " +
		"%{ if vm_ids.first > 1 }${branch}%{ endif }"
	parts, err := readTemplate(fstest.MapFS{"own/next.txt": {Data: []byte(text)}}, "own")
	if err != nil {
		t.Fatal(err)
	}
	var names []string
	for _, k := range keysOf(parts) {
		names = append(names, k.name)
	}
	const want = "network gateway dns control_planes workers vip node_addresses vmid_start team branch"
	if got := strings.Join(names, " "); got != want {
		t.Errorf("got %s", got)
	}
}

// Files for Flux contain the variables of Flux and the actions of operators.
func TestFilesForFluxMentionOnlyKeys(t *testing.T) {
	for text, want := range map[string]string{
		"${cluster} $${host} {{ .password }} {{ .Labels.cluster }}": "",
		"${host}":        "templates/gitops/apps/a.yaml:1: host: the template has no such key\n",
		"${cluster_}":    `: cluster_: the template has no such key; did you mean "cluster"?`,
		"{{ .cluster }}": "templates/gitops/apps/a.yaml:1: {{ .cluster }}: castle no longer reads Go's",
	} {
		dir := t.TempDir()
		if err := os.Mkdir(filepath.Join(dir, "clusters"), 0o700); err != nil {
			t.Fatal(err)
		}
		c, err := Begin(config.Options{Repository: dir, Templates: fstest.MapFS{
			"own/next.txt": {Data: []byte("${git_path}")}, "gitops/apps/a.yaml": {Data: []byte(text)},
		}}, "green", "own")
		if err != nil {
			t.Fatal(err)
		}
		err = c.GitOps(filepath.Join(t.TempDir(), "fleet"))
		if want == "" && err != nil || want != "" && (err == nil || !strings.Contains(err.Error(), want)) {
			t.Errorf("%s: %v", text, err)
		}
	}
}

// TestTemplatesWriteTheVersionsOfTheLibrary covers versions that a newer castle would otherwise change.
func TestTemplatesWriteTheVersionsOfTheLibrary(t *testing.T) {
	for _, name := range []string{"proxmox-talos", "metal-talos", "metal-bare"} {
		values, err := fs.ReadFile(templates.Files, name+"/terraform.tfvars")
		if err != nil {
			t.Fatal(err)
		}
		for _, variable := range []string{"talos_version", "kubernetes_version"} {
			declared, err := fs.ReadFile(stages.Library, "platform/talos/variables.tf")
			if err != nil {
				t.Fatal(err)
			}
			_, after, _ := strings.Cut(string(declared), "variable \""+variable+"\"")
			_, after, _ = strings.Cut(after, "default     = ")
			version, _, found := strings.Cut(after, "\n")
			line := regexp.MustCompile(`(?m)^` + variable + ` += ` + regexp.QuoteMeta(version) + `$`)
			if !found || !line.Match(values) {
				t.Errorf("templates/%s/terraform.tfvars does not set %s = %s", name, variable, version)
			}
		}
	}
}

// renovate is what Renovate's preset customManagers:tfvarsVersions matches in *.tfvars:
// https://docs.renovatebot.com/presets-customManagers/#custommanagerstfvarsversions
var renovate = regexp.MustCompile(`#\s*renovate: datasource=(?<datasource>.*?) depName=(?<depName>.*?)` +
	`( versioning=(?<versioning>.*?))?(?: extractVersion=(?<extractVersion>.*?))?\s.*?_version\s*=\s*` +
	`"(?<currentValue>.*)"`)

func TestRenovateFindsTheVersionsThatArePinned(t *testing.T) {
	repository := os.DirFS("../..")
	files, err := fs.Glob(repository, "templates/*/terraform.tfvars")
	clusters, unread := fs.Glob(repository, "clusters/*/*/terraform.tfvars")
	if err = errors.Join(err, unread); err != nil || len(files) < 2 || len(clusters) < 2 {
		t.Fatal(files, clusters, err)
	}
	for _, file := range append(files, clusters...) {
		text, err := fs.ReadFile(repository, file)
		if err != nil {
			t.Fatal(err)
		}
		if !strings.Contains(string(text), "\nkubernetes_version") && slices.Contains(clusters, file) {
			continue // it has the versions of the stages
		}
		found := map[string]string{}
		for _, m := range renovate.FindAllStringSubmatch(string(text), -1) {
			at := func(name string) string { return m[renovate.SubexpIndex(name)] }
			version := at("currentValue")
			if at("extractVersion") == "^v(?<version>.*)$" {
				version = "v" + version // as the tag of the release is called
			}
			found[at("datasource")+" "+at("depName")] = version
		}
		for name, variable := range map[string]string{"siderolabs/talos": "talos_version",
			"kubernetes/kubernetes": "kubernetes_version"} {
			_, pinned, _ := strings.Cut(string(text), "\n"+variable)
			_, pinned, _ = strings.Cut(pinned, `"`)
			pinned, _, _ = strings.Cut(pinned, `"`)
			want := "v" + strings.TrimPrefix(pinned, "v")
			if got := found["github-releases "+name]; pinned == "" || got != want {
				t.Errorf("%s: %s: Renovate finds %q, want %q", file, name, got, want)
			}
		}
		if len(found) != strings.Count(string(text), "# renovate:") {
			t.Errorf("%s: a marker that Renovate does not read: %v", file, found)
		}
	}
}
