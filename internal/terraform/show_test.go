package terraform

import (
	"bytes"
	"path/filepath"
	"slices"
	"strings"
	"testing"
)

// shown is a plan as Terraform shows it, with a secret among its values.
const shown = `{"format_version":"1.2","terraform_version":"1.11.4","variables":{"token":{"value":"tr0ub4dor-and-3"}},"resource_changes":[
 {"address":"helm_release.new","mode":"managed","type":"helm_release","change":{"actions":["create"],"after":{"name":"new","namespace":"a","values":["tr0ub4dor-and-3"]}}},
 {"address":"module.m.helm_release.changed","mode":"managed","type":"helm_release","change":{"actions":["update"],"before":{"name":"old","namespace":"b"},"after":{"name":"changed","namespace":"b"}}},
 {"address":"helm_release.replaced","mode":"managed","type":"helm_release","change":{"actions":["delete","create"],"before":{"name":"before","namespace":"c"},"after":{"name":"after","namespace":"c"}}},
 {"address":"helm_release.same","mode":"managed","type":"helm_release","change":{"actions":["no-op"],"after":{"name":"same","namespace":"d"}}},
 {"address":"helm_release.gone","mode":"managed","type":"helm_release","change":{"actions":["delete"],"before":{"name":"gone","namespace":"d"},"after":null}},
 {"address":"helm_release.unknown","mode":"managed","type":"helm_release","change":{"actions":["create"],"after":{"name":"unknown"},"after_unknown":{"namespace":true}}},
 {"address":"data.helm_release.read","mode":"data","type":"helm_release","change":{"actions":["update"],"after":{"name":"read","namespace":"d"}}},
 {"address":"kubernetes_secret_v1.other","mode":"managed","type":"kubernetes_secret_v1","change":{"actions":["create"],"after":{"name":"other","namespace":"d"}}}
]}`

func TestAPlanTellsWhatItWouldWriteAndNothingElseIsHeard(t *testing.T) {
	r, home := fake(t)
	var log bytes.Buffer
	r.Log = &log
	put(t, filepath.Join(home, "show.out"), shown)
	got, err := r.Objects(t.Context(), &Plan{File: "castle.tfplan"}, "helm_release")
	if err != nil {
		t.Fatal(err)
	}
	if want := []Object{{"a", "new"}, {"b", "changed"}, {"c", "after"}}; !slices.Equal(got, want) {
		t.Errorf("got %v, want %v", got, want)
	}
	if log.Len() > 0 {
		t.Errorf("the log heard %q", log.String())
	}
}

func TestAPlanThatCannotBeShownIsAnErrorWithoutItsValues(t *testing.T) {
	r, home := fake(t)
	var log bytes.Buffer
	r.Log = &log
	for _, out := range []string{shown[:400], strings.Replace(shown, `"name":"new"`, `name`, 1), strings.Replace(shown, `"1.2"`, `"9.0"`, 1)} {
		put(t, filepath.Join(home, "show.out"), out)
		got, err := r.Objects(t.Context(), &Plan{File: "castle.tfplan"}, "helm_release")
		if err == nil || len(got) > 0 || strings.Contains(err.Error()+log.String(), "tr0ub4dor") {
			t.Errorf("got %v, %v, log %q", got, err, log.String())
		}
	}
}
