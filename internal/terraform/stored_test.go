package terraform

import (
	"archive/zip"
	"bytes"
	"encoding/json"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"testing/fstest"

	tfjson "github.com/hashicorp/terraform-json"
)

// planOf makes an archive of files, given by turns as name and content, as Terraform's file of a plan is.
func planOf(t *testing.T, entries ...string) []byte {
	t.Helper()
	var archive bytes.Buffer
	w := zip.NewWriter(&archive)
	for i := 0; i < len(entries); i += 2 {
		f, err := w.Create(entries[i])
		if err == nil {
			_, err = f.Write([]byte(entries[i+1]))
		}
		if err != nil {
			t.Fatal(err)
		}
	}
	if err := w.Close(); err != nil {
		t.Fatal(err)
	}
	return archive.Bytes()
}

func TestAPlanOfAnotherModuleIsNoticed(t *testing.T) {
	r, _ := fake(t)
	module := fstest.MapFS{"main.tf": file("m"), "json.tf.json": file("{}"), ".hidden.tf": file("h"),
		"chart/values.yaml": file("v"), "sub/a.tf": file("a"), "other/a.tf": file("b")}
	materialise(t, r, module, Override{})
	override := get(t, filepath.Join(r.Dir, overrideFile))
	root := []string{"tfconfig/m-/main.tf", "m", "tfconfig/m-/json.tf.json", "{}",
		"tfconfig/m-/castle_override.tf", override}
	const one, two = `[{"Key":"","Dir":"."}]`, `[{"Key":"","Dir":"."},{"Key":"sub","Dir":"sub"}]`
	moved := strings.ReplaceAll(two, `"Dir":"sub"`, `"Dir":"other"`)
	writeFile(t, filepath.Join(r.Dir, ".terraform/modules/modules.json"), `{"Modules":`+two+`}`)
	with := func(list string, more ...string) []string {
		return slices.Concat([]string{"tfconfig/modules.json", list}, root, more)
	}
	for name, test := range map[string]struct {
		entries []string
		want    string
	}{
		"the root":           {with(one), ""},
		"a called module":    {with(two, "tfconfig/m-sub/a.tf", "a"), ""},
		"another content":    {with(two, "tfconfig/m-sub/a.tf", "b"), "module/sub/a.tf"},
		"one more":           {with(one, "tfconfig/m-/evil.tf", ""), "module/evil.tf"},
		"one less":           {with(one)[:6], "module/castle_override.tf"},
		"another folder":     {with(moved, "tfconfig/m-sub/a.tf", "b"), "module sub"},
		"an unknown one":     {with(strings.ReplaceAll(two, "sub", "other")), "module other"},
		"no list at all":     {root, "error"},
		"one is there twice": {with(one, "tfconfig/m-/main.tf", "m"), "error"},
	} {
		got, err := r.workdir().differing(planOf(t, test.entries...))
		if text := strings.Join(got, ","); test.want == "error" && err == nil ||
			test.want != "error" && (err != nil || text != test.want) {
			t.Errorf("%s: got %q, %v; want %q", name, text, err, test.want)
		}
	}
	if _, err := r.workdir().differing([]byte("no archive")); err == nil {
		t.Error("a file that is no archive is read")
	}
}

func TestChangesOfAShownPlanAreThoseOfTheStream(t *testing.T) {
	shown := &tfjson.Plan{}
	err := json.Unmarshal([]byte(`{"format_version":"1.2","resource_changes":[
		{"address":"a.new","mode":"managed","change":{"actions":["create"]}},
		{"address":"a.set","mode":"managed","change":{"actions":["update"]}},
		{"address":"a.same","mode":"managed","change":{"actions":["no-op"]}},
		{"address":"a.to","previous_address":"a.from","mode":"managed","change":{"actions":["no-op"]}},
		{"address":"a.there","mode":"managed","change":{"actions":["no-op"],"importing":{"id":"1"}}},
		{"address":"a.forced","mode":"managed","change":{"actions":["create","delete"]}},
		{"address":"a.again","mode":"managed","change":{"actions":["delete","create"]}},
		{"address":"a.old","mode":"managed","change":{"actions":["delete"]}},
		{"address":"a.left","mode":"managed","change":{"actions":["forget"]}},
		{"address":"data.a.b","mode":"data","change":{"actions":["read"]}},
		{"address":"data.a.c","mode":"data","change":{"actions":["delete"]}}]}`), shown)
	if err != nil {
		t.Fatal(err)
	}
	var got []string
	for _, c := range changesOf(shown) {
		got = append(got, c.Action+" "+c.Address)
	}
	want := []string{"create a.new", "update a.set", "move a.to", "import a.there", "replace a.forced",
		"replace a.again", "delete a.old", "forget a.left", "read data.a.b"}
	if !slices.Equal(got, want) {
		t.Errorf("got  %q\nwant %q", got, want)
	}
}

func TestValuesOfAPlanAreTheInputsOrTheDefaults(t *testing.T) {
	r, _ := fake(t)
	writeFile(t, filepath.Join(r.Dir, inputsFile), `{"size":"3","list":[1,null],"none":null}`)
	values := func() map[string]any {
		return map[string]any{"size": "3", "list": []any{1.0, nil}, "none": nil, "region": "eu"}
	}
	for name, test := range map[string]struct {
		change func(map[string]any)
		want   []string
	}{
		"the same":              {func(map[string]any) {}, nil},
		"an input":              {func(v map[string]any) { v["size"] = 3.0 }, []string{"variable size"}},
		"a default":             {func(v map[string]any) { v["region"] = "us" }, []string{"variable region"}},
		"an input is not there": {func(v map[string]any) { delete(v, "list") }, []string{"variable list"}},
	} {
		s := &Stored{values: values(), defaults: map[string]any{"size": nil, "region": "eu"}}
		test.change(s.values)
		if got, err := s.DifferingInputs(r); err != nil || !slices.Equal(got, test.want) {
			t.Errorf("%s: got %q, %v", name, got, err)
		}
	}
}
