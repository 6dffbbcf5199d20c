package terraform

import (
	"bytes"
	"path/filepath"
	"slices"
	"strings"
	"testing"
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
	for address, want := range map[string]Attributes{
		"vm.a": {
			words("cpu disk grown id labels password secrets tags values"),
			words(`cpu.cores disk[1].size grown id labels.app labels["example.com/tier"] password ` +
				`secrets tags values[0]`),
		},
		"vm.b": {words("disk secrets spec"), words("disk.id secrets spec.template.image")},
		"vm.c": {},
	} {
		got := changed[address]
		if !slices.Equal(got.Names, want.Names) || !slices.Equal(got.Paths, want.Paths) {
			t.Errorf("%s:\ngot  %q\nwant %q", address, got, want)
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

func words(text string) []string { return strings.Fields(text) }
