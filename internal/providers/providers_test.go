package providers_test

import (
	"archive/zip"
	"os"
	"path/filepath"
	"reflect"
	"slices"
	"strings"
	"testing"

	"github.com/ephemeral-castle/castle/internal/providers"
)

const helm = "registry.terraform.io/hashicorp/helm"

func TestAFileReadsBackAsItWasWritten(t *testing.T) {
	lock := providers.Lock{
		helm: providers.Entry{Version: "3.1.2", Constraints: "~> 3.1"}.With("zh:c", "zh:a").
			WithPlatform("linux_amd64", "h1:b=").WithPlatform("darwin_arm64", "h1:a="),
		"example.com/acme/none": {Version: "1.0.0", Platforms: map[string]string{}},
	}
	got, err := providers.Parse("providers.lock.hcl", lock.File())
	if err != nil || !reflect.DeepEqual(got, lock) {
		t.Errorf("%v\n%#v\n%s", err, got, lock.File())
	}
	if !strings.Contains(string(lock.File()), `    "h1:b=", # linux_amd64`) {
		t.Errorf("no platform:\n%s", lock.File())
	}
}

func TestADamagedFileIsAnErrorWithItsPlace(t *testing.T) {
	for _, text := range []string{
		"provider \"a/b/c\" {\n  version =\n", "provider \"a/b/c\" {}",
		"provider \"a/b/c\" { version = \"new\" }",
		"provider \"a/b/c\" {\n version = \"1.0\"\n}\nprovider \"a/b/c\" {\n version = \"1.0\"\n}",
	} {
		if _, err := providers.Parse("/x/providers.lock.hcl", []byte(text)); err == nil ||
			!strings.HasPrefix(err.Error(), "/x/providers.lock.hcl:") {
			t.Errorf("%q: %v", text, err)
		}
	}
	none := filepath.Join(t.TempDir(), "none.hcl")
	if lock, err := providers.ReadFile(none, os.ReadFile); err != nil || len(lock) != 0 {
		t.Errorf("a missing file: %v, %v", lock, err)
	}
}

func TestChecksumsOfAPlatform(t *testing.T) {
	known := providers.Entry{Version: "1.0.0"}.WithPlatform("darwin_arm64", "h1:d")
	if !known.Lacks("linux_amd64") || known.Lacks("darwin_arm64") {
		t.Error("one platform's checksum is that platform's only")
	}
	for _, more := range []string{"zh:a", "h1:unknown"} {
		if e := known.With(more); e.Lacks("linux_amd64") || !slices.Contains(e.Of("linux_amd64"), more) {
			t.Errorf("%s may be any platform's", more)
		}
	}
	if e := known.WithPlatform("linux_amd64", "h1:l"); !slices.Equal(e.Of("linux_amd64"), []string{"h1:l"}) {
		t.Errorf("got %q", e.Of("linux_amd64"))
	}
}

func TestConstraintsThatNoVersionSatisfies(t *testing.T) {
	for _, test := range []struct {
		a, b string
		want bool
	}{
		{"~> 3.1", "~> 3.1", true}, {"~> 3.1", "~> 2.0", false}, {"~> 3.1", ">= 3.1.5", true},
		{"", "~> 2.0", true},
		{"~> 3.1.0", "~> 3.2", false}, {"< 3.0", ">= 3.0", false}, {"<= 3.0", ">= 3.0", true},
		{"< 3.0", "> 2.9", true}, {"= 1.2.3", "!= 1.2.3", false}, {"!= 1.2.3", ">= 1.2.3", true},
		{"> 1.0, < 2.0", "~> 1.9", true}, {"~> 0.111.1", "0.111.1", true}, {"< 1.0", ">= 0.9", true},
	} {
		for _, both := range [][]string{{test.a, test.b}, {test.b, test.a}} {
			got, err := providers.Compatible(both...)
			if err != nil || got != test.want {
				t.Errorf("%q: %v, %v", both, got, err)
			}
		}
	}
	if _, err := providers.Compatible("newest"); err == nil {
		t.Error("an invalid constraint is no error")
	}
	if ok, err := providers.Allows("~> 3.1", "3.2.0"); !ok || err != nil {
		t.Errorf("%v, %v", ok, err)
	}
	if ok, err := providers.Allows("~> 3.1", "4.0.0"); ok || err != nil {
		t.Errorf("%v, %v", ok, err)
	}
}

// The checksum of the same files is the same in a folder and in an archive; this one is Terraform's own.
func TestAPackageHasTerraformsChecksum(t *testing.T) {
	mirror := t.TempDir()
	unpacked := providers.Package{Source: "example.com/acme/null", Version: "3.2.1", Platform: "linux_amd64"}
	packed := providers.Package{Source: "example.com/acme/null", Version: "3.2.1", Platform: "darwin_arm64"}
	const content, want = "null linux_amd64\n", "h1:QJtJRrCZltdpcmCa9PLa4KnNUgKRQjJ+KSagAuXXYxg="
	const program = "terraform-provider-null_v3.2.1"
	dir := filepath.Join(mirror, unpacked.Unpacked())
	if err := os.MkdirAll(dir, 0o700); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(filepath.Join(dir, program), []byte(content), 0o700); err != nil {
		t.Fatal(err)
	}
	f, err := os.Create(filepath.Join(mirror, "example.com/acme/null", packed.Archive()))
	if err != nil {
		t.Fatal(err)
	}
	z := zip.NewWriter(f)
	w, err := z.Create(program)
	if err == nil {
		_, err = w.Write([]byte(content))
	}
	if err != nil || z.Close() != nil || f.Close() != nil {
		t.Fatal(err)
	}
	e := providers.Entry{Version: "3.2.1"}
	e, err = e.Complete(mirror, "example.com/acme/null", []string{"linux_amd64", "linux_arm64"})
	if err != nil || !slices.Equal(e.Hashes, []string{want}) || e.Platforms[want] != "linux_amd64" {
		t.Errorf("%v, %+v", err, e)
	}
	if got, _, err := packed.HashIn(mirror); err != nil || got != want {
		t.Errorf("the archive: %s, %v", got, err)
	}
}
