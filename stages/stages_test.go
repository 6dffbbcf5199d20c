package stages_test

import (
	"io/fs"
	"path"
	"regexp"
	"strings"
	"testing"

	"github.com/hashicorp/terraform-config-inspect/tfconfig"

	"github.com/ephemeral-castle/castle/stages"
)

var (
	secret = regexp.MustCompile(`(token|password|passwords|private_key|private_key_pem|client_secret|` +
		`secret_access_key|machine_secrets|client_configuration|kubeconfig|talosconfig)$`)
	precondition = regexp.MustCompile(`(?s)\n\n  #[^\n]*\n.*?\n  }\n`)
)

// all lists the library's stages: "networking/metallb".
func all(t *testing.T) []string {
	t.Helper()
	files, err := fs.Glob(stages.Library, "*/*/stage.hcl")
	if err != nil {
		t.Fatal(err)
	}
	var found []string
	for _, file := range files {
		found = append(found, path.Dir(file))
	}
	if len(found) < 10 {
		t.Fatalf("the library holds only %v", found)
	}
	return found
}

func module(t *testing.T, stage string) *tfconfig.Module {
	t.Helper()
	m, problems := tfconfig.LoadModule(stage)
	if problems.HasErrors() {
		t.Fatalf("%s: %v", stage, problems)
	}
	return m
}

func TestEveryStageHasItsFilesAndNoLeftovers(t *testing.T) {
	for _, stage := range all(t) {
		for _, file := range []string{"variables.tf", "outputs.tf", "versions.tf"} {
			if _, err := fs.Stat(stages.Library, stage+"/"+file); err != nil {
				t.Error(err)
			}
		}
		err := fs.WalkDir(stages.Library, stage, func(name string, _ fs.DirEntry, err error) error {
			if strings.Contains(name, ".terraform") || strings.Contains(name, "tfstate") {
				t.Errorf("%s is embedded", name)
			}
			return err
		})
		if err != nil {
			t.Error(err)
		}
	}
}

func TestEveryVariableAndOutputSaysWhatItIs(t *testing.T) {
	for _, stage := range all(t) {
		m := module(t, stage)
		for _, v := range m.Variables {
			if v.Description == "" || v.Type == "" {
				t.Errorf("%s: variable %s has no description or no type", stage, v.Name)
			}
		}
		for _, o := range m.Outputs {
			if o.Description == "" {
				t.Errorf("%s: output %s has no description", stage, o.Name)
			}
		}
	}
}

func TestWhatIsSecretIsMarkedSensitive(t *testing.T) {
	for _, stage := range all(t) {
		m := module(t, stage)
		for _, o := range m.Outputs {
			if secret.MatchString(o.Name) && !o.Sensitive {
				t.Errorf("%s: output %s is not sensitive", stage, o.Name)
			}
		}
		for _, v := range m.Variables {
			if secret.MatchString(v.Name) && !v.Sensitive {
				t.Errorf("%s: variable %s is not sensitive", stage, v.Name)
			}
		}
	}
}

func TestEveryProviderIsPinned(t *testing.T) {
	for _, stage := range all(t) {
		for name, p := range module(t, stage).RequiredProviders {
			if name == "terraform" { // part of Terraform itself
				continue
			}
			if p.Source == "" || len(p.VersionConstraints) != 1 ||
				!strings.HasPrefix(p.VersionConstraints[0], "~> ") {
				t.Errorf("%s: provider %s: %+v", stage, name, p)
			}
		}
	}
}

func TestKubernetesResourcesAreTheVersionedOnes(t *testing.T) {
	for _, stage := range all(t) {
		for _, r := range module(t, stage).ManagedResources {
			if strings.HasPrefix(r.Type, "kubernetes_") && !strings.HasSuffix(r.Type, "_v1") {
				t.Errorf("%s: %s", stage, r.Type)
			}
		}
	}
}

// Terraform sees of a local chart its path alone: the version and the digest of
// its files are what makes a changed chart a change.
func TestAChangedLocalChartIsAChange(t *testing.T) {
	charts, err := fs.Glob(stages.Library, "*/*/chart/Chart.yaml")
	if err != nil || len(charts) == 0 {
		t.Fatalf("%v, %v", charts, err)
	}
	for _, chart := range charts {
		main := path.Dir(path.Dir(chart)) + "/main.tf"
		text, err := fs.ReadFile(stages.Library, main)
		if err != nil {
			t.Fatal(err)
		}
		for _, want := range []string{
			`version = yamldecode(file("${path.module}/chart/Chart.yaml")).version`,
			`chartDigest = sha256(join("", [for f in fileset("${path.module}/chart", "**") : "${f} ` +
				`${filesha256("${path.module}/chart/${f}")}"]))`,
		} {
			if !strings.Contains(strings.Join(strings.Fields(string(text)), " "), want) {
				t.Errorf("%s lacks %s", main, want)
			}
		}
	}
}

// Whoever moves from one place for the secrets to the other finds the same ones there:
// what a rehearsal has proved with one holds with the other.
func TestThePlacesForTheSecretsSayTheSame(t *testing.T) {
	outputs := func(stage string) string {
		text, err := fs.ReadFile(stages.Library, stage+"/outputs.tf")
		if err != nil {
			t.Fatal(err)
		}
		// the precondition
		return precondition.ReplaceAllString(string(text), "\n")
	}
	if infisical, local := outputs("secrets/infisical"), outputs("secrets/local"); infisical != local {
		t.Errorf("secrets/infisical:\n%s\nsecrets/local:\n%s", infisical, local)
	}
}
