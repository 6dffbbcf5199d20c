package terraform

import (
	"bytes"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/ephemeral-castle/castle/internal/terraform/planned"
)

// altered is a plan with changes and drift, and with a secret in values and in keys.
const altered = `{"format_version":"1.2","terraform_version":"1.11.4","resource_changes":[
 {"address":"vm.a","mode":"managed","type":"vm","change":{"actions":["update"],
  "before":{"cpu":[{"cores":2,"type":"host"}],"disk":[{"size":1},{"size":2}],"tags":["a","b"],"values":["x"],
   "labels":{"app":"a","example.com/tier":"1"},"password":"tr0ub4dor-and-3","id":"1","grown":[1],
   "same":{"a":1},"secrets":{"tr0ub4dor-and-3":"a"},"lost":null},
  "after":{"cpu":[{"cores":4,"type":"host"}],"disk":[{"size":1},{"size":3}],"tags":["b","c"],"values":["y"],
   "labels":{"app":"b","example.com/tier":"2"},"password":"hunter2-is-long","grown":[1,2],"same":{"a":1},
   "secrets":{"tr0ub4dor-and-4":"a"},"lost":null},
  "after_unknown":{"id":true,"cpu":[{}]},
  "before_sensitive":{"password":true},"after_sensitive":{"password":true,"secrets":true}}},
 {"address":"vm.b","mode":"managed","type":"vm","change":{"actions":["delete","create"],
  "before":{"spec":{"template":{"image":"a"}},"disk":[{"id":1}],"secrets":{"tr0ub4dor-and-3":"a"}},
  "after":{"spec":{"template":{"image":"b"}},"disk":[{"id":2}],"secrets":{"tr0ub4dor-and-3":"b"}},
  "after_sensitive":{"secrets":true},
  "replace_paths":[["spec","template","image"],["disk",0,"id"],["secrets","tr0ub4dor-and-3"],[]]}},
 {"address":"secret","mode":"managed","type":"kubernetes_manifest","change":{"actions":["update"],
  "before":{"manifest":{"kind":"Secret","data":{"password":"dHIwdWI0ZG9y"}}},
  "after":{"manifest":{"kind":"Secret","data":{"password":"aHVudGVyMg=="}}}}},
 {"address":"vm.c","mode":"managed","type":"vm","change":{"actions":["create"],"after":{"size":1}}}
],"resource_drift":[
 {"address":"vm.a","mode":"managed","type":"vm","change":{"actions":["update"],
  "before":{"cpu":[{"cores":4}],"kept":1},"after":{"cpu":[{"cores":2}],"kept":2}}},
 {"address":"vm.c","mode":"managed","type":"vm","change":{"actions":["delete"],"before":{"size":1},
  "after":null}},
 {"address":"data.vm.d","mode":"data","type":"vm","change":{"actions":["update"],"before":{},
  "after":{"a":1}}},
 {"address":"vm.moved","previous_address":"vm.e","mode":"managed","type":"vm","change":{"actions":["no-op"],
  "before":{},"after":{}}}
]}`

func TestAPlanNamesTheAttributesThatDifferAndNoValue(t *testing.T) {
	r, home := fake(t)
	var log bytes.Buffer
	r.Log = &log
	writeFile(t, filepath.Join(home, "show.out"), altered)
	changed, drift, err := (&Plan{File: "castle.tfplan", root: r}).Differences(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	for address, want := range map[string]planned.Attributes{
		"vm.a": {
			Names: words("cpu disk grown id labels password secrets tags values"),
			Paths: words(`cpu.cores disk[1].size grown id labels.app labels["example.com/tier"] password ` +
				`secrets tags values[0]`),
		},
		"vm.b": {Names: words("disk secrets spec"), Paths: words("disk.id secrets spec.template.image")},
		"vm.c": {},
	} {
		got := changed[address]
		if !slices.Equal(got.Names, want.Names) || !slices.Equal(got.Paths, want.Paths) {
			t.Errorf("%s:\ngot  %+v\nwant %+v", address, got, want)
		}
	}
	got := drift["vm.a"]
	if len(drift) != 2 || got.Absent || !slices.Equal(got.Paths, words("cpu.cores kept")) {
		t.Errorf("drift: %+v", drift)
	}
	if got := drift["vm.c"]; !got.Absent || len(got.Paths) > 0 {
		t.Errorf("a deleted resource: %+v", got)
	}
	if log.Len() > 0 {
		t.Errorf("the log heard %q", log.String())
	}
}

// Values are shown where Terraform shows them, too, and fit into a line.
func TestADifferenceShowsShortValuesThatAreNotSensitive(t *testing.T) {
	r, home := fake(t)
	writeFile(t, filepath.Join(home, "show.out"), altered)
	changed, _, err := (&Plan{File: "castle.tfplan", root: r}).Differences(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	var got []string
	for _, d := range slices.Concat(changed["vm.a"].Differences, changed["vm.b"].Differences,
		changed["secret"].Differences) {
		got = append(got, d.Text())
	}
	want := []string{"cpu.cores 2 → 4", "disk[1].size 2 → 3", "grown [1] → [1, 2]",
		"id", `labels.app "a" → "b"`, `labels["example.com/tier"] "1" → "2"`,
		"password", "secrets", `tags ["a", "b"] → ["b", "c"]`, `values[0] "x" → "y"`,
		"disk.id 1 → 2", "secrets", `spec.template.image "a" → "b"`, "manifest.data.password"}
	if !slices.Equal(got, want) {
		t.Errorf("got  %q\nwant %q", got, want)
	}
	long := planned.Difference{Path: "values", Was: strings.Repeat("a", 100), Is: "b"}
	lines := planned.Difference{Path: "values", Was: "a\nb", Is: "b"}
	if long.Text() != "values" || lines.Text() != "values" {
		t.Errorf("got %q, %q", long.Text(), lines.Text())
	}
}

func words(text string) []string { return strings.Fields(text) }
