package doctor

import (
	"net/http"
	"slices"
	"strings"
	"sync"
	"testing"

	"github.com/ephemeral-castle/castle/internal/config"
	"github.com/ephemeral-castle/castle/internal/doctor/finding"
	"github.com/ephemeral-castle/castle/internal/emulator/proxmox"
)

// A store that does not answer must not take the time of the next one: two stages log in at the same time
// here.
func TestStagesOfSecretsAreReadSideBySide(t *testing.T) {
	w := newWorld(t, proxmox.Config{})
	both := make(chan struct{})
	var mu sync.Mutex
	logins := 0
	w.vars["infisical_host"] = secure(t, http.HandlerFunc(func(rw http.ResponseWriter, r *http.Request) {
		if strings.HasSuffix(r.URL.Path, "/login") {
			mu.Lock()
			if logins++; logins == 2 {
				close(both)
			}
			mu.Unlock()
			select {
			case <-both:
			case <-t.Context().Done():
			}
		}
		w.vault.Handler().ServeHTTP(rw, r)
	}))
	w.load(t)
	i := slices.IndexFunc(w.target.Stages, func(s *config.Stage) bool { return s.Layer == secretsLayer })
	w.target.Stages = slices.Insert(w.target.Stages, i, w.target.Stages[i])
	other := func(f finding.Finding) bool { return f.Name != "infisical" }
	found := slices.DeleteFunc(w.ask(t).Findings, other)
	if len(found) != 2 || found[0].Colour != finding.Green || found[1].Colour != finding.Green {
		t.Errorf("%+v", found)
	}
}
