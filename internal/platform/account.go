package platform

import (
	"cmp"
	"context"
	"errors"
	"fmt"
)

// Account is how a datacenter is reached.
type Account struct {
	Endpoint string // https://host:8006; a path is ignored
	Token    string // a secret: user@realm!name=secret
	CA       string // a PEM certificate, or the path of one, that is trusted besides the system's
	Insecure bool   // accept any certificate
}

// ErrRefused is the error of a datacenter that does not know the token.
var ErrRefused = errors.New("the datacenter refuses the token")

// Source is a place that may hold the token of a datacenter.
type Source struct {
	Name string // in messages: the configuration's
	// Account reads it. An empty endpoint is the wanted one; an empty token is not set.
	Account func(ctx context.Context) (Account, error)
}

// Accepted returns the first account that a datacenter accepts, and the name of its source. It shows a token
// to the datacenter at endpoint alone, and each token once. accept makes a request with the account; any
// error but ErrRefused ends the search. If no token is accepted, the name is empty and tried says why, by
// source.
func Accepted(ctx context.Context, p Platform, endpoint string, sources []Source,
	accept func(context.Context, Account) error) (a Account, name string, tried []string, err error) {
	shown := map[string]bool{}
	for _, s := range sources {
		a, err := s.Account(ctx)
		switch {
		case ctx.Err() != nil:
			return a, "", tried, context.Cause(ctx)
		case err != nil:
		case a.Token == "":
			err = errors.New("not set")
		case shown[a.Token]:
			err = errors.New("the same token")
		case a.Endpoint != "" && endpoint != "" && !p.SameEndpoint(a.Endpoint, endpoint):
			err = fmt.Errorf("for %s, not for %s", a.Endpoint, endpoint)
		default:
			if err = p.CheckToken(a.Token); err != nil {
				break
			}
			shown[a.Token] = true
			a.Endpoint = cmp.Or(a.Endpoint, endpoint)
			if err = accept(ctx, a); !errors.Is(err, ErrRefused) {
				return a, s.Name, tried, err
			}
		}
		tried = append(tried, fmt.Sprintf("%s: %v", s.Name, err))
	}
	return a, "", tried, nil
}
