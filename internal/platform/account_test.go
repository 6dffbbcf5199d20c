package platform_test

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/ephemeral-castle/castle/internal/platform"
	"github.com/ephemeral-castle/castle/internal/platform/all"
)

const here = "https://proxmox.example:8006"

// Of several places that may hold a token, the first that the datacenter accepts wins.
func TestTheFirstAcceptedTokenWins(t *testing.T) {
	token := func(secret string) string { return "castle@pve!a=" + secret }
	known := func(name, endpoint, token string) platform.Source {
		return platform.Source{Name: name, Account: func(context.Context) (platform.Account, error) {
			return platform.Account{Endpoint: endpoint, Token: token}, nil
		}}
	}
	elsewhere := "https://other.example:8006"
	lost := platform.Source{Name: "store", Account: func(context.Context) (platform.Account, error) {
		return platform.Account{}, errors.New("sealed")
	}}
	down := errors.New("connection refused")
	for name, test := range map[string]struct {
		sources     []platform.Source
		answers     map[string]error // by token; others are refused
		from, tried string
		shown       []string
		err         error
	}{
		"the first": {sources: []platform.Source{known("record", here, token("1")), known("env", "",
			token("2"))},
			answers: map[string]error{token("1"): nil}, from: "record", shown: []string{token("1")}},
		"one without an endpoint is for the wanted datacenter": {
			sources: []platform.Source{known("record", here, token("1")), known("env", "", token("2"))},
			answers: map[string]error{token("2"): nil}, from: "env", shown: []string{token("1"), token("2")},
			tried: "record: 401"},
		"no token is shown to another datacenter": {
			sources: []platform.Source{known("env", elsewhere, token("2"))},
			tried:   "env: for https://other.example:8006, not for " + here},
		"none is shown twice, and a malformed one not at all": {
			sources: []platform.Source{known("record", here, token("1")), known("configuration", here,
				token("1")),
				known("env", here, "hunter2"), known("none", here, ""), lost},
			shown: []string{token("1")},
			tried: `record: 401; configuration: the same token; env: the API token does not look like ` +
				`"user@realm!name=secret"; none: not set; store: sealed`},
		"a datacenter that does not answer ends the search": {
			sources: []platform.Source{known("record", here, token("1")), known("env", "", token("2"))},
			answers: map[string]error{token("1"): down}, from: "record", shown: []string{token("1")},
			err: down},
	} {
		t.Run(name, func(t *testing.T) {
			var shown []string
			accept := func(_ context.Context, a platform.Account) error {
				if a.Endpoint != here {
					t.Errorf("%s was shown to %s", a.Token, a.Endpoint)
				}
				shown = append(shown, a.Token)
				if answer, known := test.answers[a.Token]; known {
					return answer
				}
				return refused{}
			}
			_, from, tried, err := platform.Accepted(t.Context(), all.Platforms()[0], here, test.sources,
				accept)
			if from != test.from || err != test.err || strings.Join(tried, "; ") != test.tried ||
				!slices.Equal(shown, test.shown) {
				t.Errorf("from %q, error %v, tried %q, shown %q", from, err, tried, shown)
			}
		})
	}
}

type refused struct{}

func (refused) Error() string        { return fmt.Sprint(401) }
func (refused) Is(target error) bool { return target == platform.ErrRefused }
