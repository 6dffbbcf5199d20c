package hcloud

import (
	"fmt"
	"net/http"
	"net/http/httptest"
	"testing"

	"github.com/ephemeral-castle/castle/internal/platform"
)

// An answer that is no list proves nothing gone, and pages that repeat end.
func TestNonsenseProvesNothingGone(t *testing.T) {
	for name, body := range map[string]string{
		"null": `{"servers": null}`, "nothing": `{}`, "a text": `{"servers": "x"}`,
		"no id": `{"servers": [{"name": "a"}]}`, "an empty element": `{"servers": [null]}`,
		"a page twice": `{"servers": [{"id": 1}], "meta": {"pagination": {"page": 1, "next_page": 1}}}`,
	} {
		t.Run(name, func(t *testing.T) {
			answers := func(w http.ResponseWriter, _ *http.Request) {
				w.Header().Set("Content-Type", "application/json")
				fmt.Fprint(w, body) //nolint:errcheck // the client sees a cut answer
			}
			s := httptest.NewServer(http.HandlerFunc(answers))
			t.Cleanup(s.Close)
			p, err := open(platform.Account{Endpoint: s.URL, Token: "x"})
			if err != nil {
				t.Fatal(err)
			}
			for _, o := range p.Now(t.Context(), []platform.Object{{Kind: platform.Machine, VM: 7}}) {
				if o.Gone {
					t.Errorf("%s proves %+v", body, o)
				}
			}
		})
	}
}
