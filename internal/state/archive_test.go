package state

import (
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/zclconf/go-cty/cty"
)

const anArchive = "20260102T030405.678-destroy-0a1b2c"

// stateOf is a state with one resource of these attributes, in JSON, and a sensitive output.
func stateOf(mode, attributes, more string) []byte {
	return fmt.Appendf(nil, `{"version": 4, "terraform_version": "1.14.0", "serial": 3, "lineage": "l",
		"outputs": {"o": {"value": ["secret-output"], "type": ["list", "string"], "sensitive": true},
			"p": {"value": "plain-output", "type": "string"}},
		"resources": [{"module": "module.m", "mode": %q, "type": "x_y", "name": "n",
			"provider": "provider[\"registry.terraform.io/a/x\"]",
			"instances": [{"index_key": "k", "schema_version": 2, "attributes": %s %s}]}],
		"check_results": [{"problem": "secret-check"}]}`, mode, attributes, more)
}

func TestAnArchivedStateHasNoValues(t *testing.T) {
	for name, tt := range map[string]struct {
		mode, attributes, more string
		want                   string
	}{
		"only what names the object": {"managed",
			`{"id": "a", "name": "b", "namespace": "c", "vm_id": 421, "node_name": "d", "plain": "secret-2",
				"data": {"x": "secret-1"}}`,
			`, "private": "c2VjcmV0LTM=", "dependencies": ["secret-4"]`,
			`{"id": "a", "name": "b", "namespace": "c", "node_name": "d", "vm_id": 421}`},
		"no attribute that is marked": {"managed", `{"id": "secret-1", "name": "of secret-1"}`,
			`, "sensitive_attributes": [[{"type": "get_attr", "value": "id"}]]`, `{}`},
		"an attribute that is marked in part": {"managed", `{"id": "a", "name": ["secret-1"]}`,
			`, "sensitive_attributes": [[{"type": "get_attr", "value": "name"}, {"type": "index"}]]`,
			`{"id": "a"}`},
		"marks of an unknown form": {"managed", `{"id": "secret-1"}`,
			`, "sensitive_attributes": {"id": true}`, `{}`},
		"an empty mark": {"managed", `{"id": "a"}`, `, "sensitive_attributes": [[]]`, `{"id": "a"}`},
		"no output in a name": {"managed", `{"id": "a", "name": "x-secret-output"}`, "",
			`{"id": "a"}`},
		"no result as an id": {"managed", `{"id": "secret-1", "result": "secret-1"}`, "", `{}`},
		"the id of a release": {"managed", `{"id": "a", "name": "a", "chart": "a"}`, "",
			`{"id": "a", "name": "a"}`},
		"no object in the place of it": {"managed", `{"id": {"password": "secret-1"}, "name": null}`, "",
			`{}`},
		"nothing that was only read": {"data", `{"id": "secret-1", "name": "secret-2"}`, "", `{}`},
	} {
		t.Run(name, func(t *testing.T) {
			got, err := withoutValues(stateOf(tt.mode, tt.attributes, tt.more))
			if err != nil {
				t.Fatal(err)
			}
			if text := string(got); strings.Contains(text, "secret") || strings.Contains(text, "c2Vjc") {
				t.Errorf("a secret is left: %s", text)
			}
			st, err := parse(got)
			if err != nil || st.Serial != 3 || st.Lineage != "l" || len(st.Outputs) > 0 ||
				len(st.Resources) != 1 {
				t.Fatalf("%v: %s", err, got)
			}
			want := map[string]any{}
			if err := json.Unmarshal([]byte(tt.want), &want); err != nil {
				t.Fatal(err)
			}
			address := `module.m.x_y.n["k"]`
			if tt.mode == "data" {
				address = `module.m.data.x_y.n["k"]`
			}
			if r := st.Resources[0]; r.Address != address || !sameJSON(t, r.Attributes, want) {
				t.Errorf("%s: %v, want %v", r.Address, r.Attributes, want)
			}
			if again, err := withoutValues(got); err != nil || string(again) != string(got) {
				t.Errorf("once more: %v: %s", err, again)
			}
		})
	}
}

// archivedFiles are the contents of a stage's folder in the archive, by path.
func archivedFiles(t *testing.T, a Archived) map[string]string {
	t.Helper()
	all := map[string]string{}
	files, err := filepath.Glob(filepath.Join(a.Path, "*"))
	if err != nil {
		t.Fatal(err)
	}
	for _, path := range files {
		all[filepath.Base(path)] = content(t, path)
	}
	return all
}

// secretive is a stage with a secret in each of its files.
func secretive(t *testing.T, d *Dir) *Stage {
	t.Helper()
	s := made(t, d, "sync")
	check, err := NewRecordedCheck("vm_ids", "free",
		map[string]cty.Value{"api_token": cty.StringVal("secret-token")})
	if err != nil {
		t.Fatal(err)
	}
	rec := Record{Name: "sync", Layer: "gitops", Source: "gitops/sync", Preflights: []RecordedCheck{check},
		Adopts: []RecordedAdopt{{Address: "a.b", Exists: check}}}
	if err := s.SetRecord(rec); err != nil {
		t.Fatal(err)
	}
	for _, name := range []string{"snapshots/1.tfstate", "module/recorded.auto.tfvars.json",
		"work/errored.tfstate", "work/castle.auto.tfvars.json", "terraform.tfstate.unreadable-1",
		"terraform.tfstate.backup", "owned.json"} {
		if err := os.MkdirAll(filepath.Dir(filepath.Join(s.Dir(), name)), 0o700); err != nil {
			t.Fatal(err)
		}
		write(t, filepath.Join(s.Dir(), name), []byte("secret-file"))
	}
	write(t, s.StatePath(), stateOf("managed", `{"id": "a", "token": "secret-value"}`, ""))
	return s
}

func TestAnArchivedStageHoldsNoSecret(t *testing.T) {
	d := open(t)
	s := secretive(t, d)
	if err := Archive(s, anArchive); err != nil {
		t.Fatal(err)
	}
	if names, err := d.Stages(); err != nil || len(names) > 0 {
		t.Errorf("stages left: %q, %v", names, err)
	}
	all, err := Archives(d)
	if err != nil || len(all) != 1 || all[0].Run != anArchive || all[0].Stage != "sync" {
		t.Fatalf("%+v, %v", all, err)
	}
	stripped := archivedFiles(t, all[0])
	if strings.Contains(fmt.Sprint(stripped), "secret") || len(stripped) != 3 {
		t.Errorf("archived: %q", stripped)
	}
	for file, has := range map[string]string{"record.json": `"source": "gitops/sync"`,
		stateName: `"id": "a"`} {
		if !strings.Contains(stripped[file], has) {
			t.Errorf("%s has no %s: %s", file, has, stripped[file])
		}
	}
	if whole, err := all[0].Whole(); whole || err != nil {
		t.Errorf("it counts as whole: %v", err)
	}
}

// What cannot be read may hold a secret.
func TestAnArchiveKeepsNothingDamaged(t *testing.T) {
	for _, damage := range []string{"terraform.tfstate", "record.json"} {
		d := open(t)
		s := secretive(t, d)
		write(t, filepath.Join(s.Dir(), damage), []byte("secret-damage"))
		write(t, filepath.Join(s.Dir(), damage+".copy"), []byte("secret-damage"))
		if err := Archive(s, anArchive); err != nil {
			t.Fatal(err)
		}
		all, err := Archives(d)
		if err != nil || len(all) != 1 || strings.Contains(fmt.Sprint(archivedFiles(t, all[0])), "secret") {
			t.Errorf("%s: %v, %v", damage, all, err)
		}
	}
}

func TestAWholeArchiveCountsAsWhole(t *testing.T) {
	d := open(t)
	if err := ArchiveWhole(secretive(t, d), anArchive); err != nil {
		t.Fatal(err)
	}
	all, err := Archives(d)
	if err != nil || len(all) != 1 {
		t.Fatalf("%v, %v", all, err)
	}
	if whole, err := all[0].Whole(); !whole || err != nil {
		t.Errorf("it does not count as whole: %v", err)
	}
}

func TestOnDiskNamesWhatHoldsSecrets(t *testing.T) {
	d := open(t)
	if err := ArchiveWhole(secretive(t, d), anArchive); err != nil {
		t.Fatal(err)
	}
	secretive(t, d)
	write(t, d.Kubeconfig(), []byte("secret-key"))
	write(t, filepath.Join(d.Path(), "kubeconfig.mine"), []byte("secret-key"))
	all, err := OnDisk(d, 7)
	if err != nil {
		t.Fatal(err)
	}
	var plain, secrets []string
	for _, k := range all {
		if path, err := filepath.Rel(d.Path(), k.Path); err != nil {
			t.Error(err)
		} else if k.Secrets {
			secrets = append(secrets, path)
		} else {
			plain = append(plain, path+" until "+k.Until)
		}
	}
	slices.Sort(secrets)
	if want := []string{"archive/" + anArchive + "-sync", "kubeconfig", "kubeconfig.mine",
		"stages/sync"}; !slices.Equal(secrets, want) {
		t.Errorf("with secrets %q, want %q", secrets, want)
	}
	if want := []string{"archive until there are 7 newer runs", "layout until you delete it",
		"runs until there are 7 newer runs"}; !slices.Equal(plain, want) {
		t.Errorf("without secrets %q, want %q", plain, want)
	}
}
