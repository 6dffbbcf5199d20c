// Package okta stands in for the client with which Vault asks Okta for a second
// factor, which nobody in the lab has. The real one is a tenth of what there
// would be to compile.
package okta

import (
	"context"
	"errors"
	"net/http"
)

var errAbsent = errors.New("the lab's Vault is built without Okta")

type (
	// Configuration is not looked at.
	Configuration struct{ Context context.Context }
	// ConfigSetter is not looked at.
	ConfigSetter func(*Configuration)
	// APIClient asks nobody.
	APIClient struct {
		UserAPI       users
		UserFactorAPI factors
	}
	// User is nobody.
	User struct{}
	// UserFactorPush is no factor.
	UserFactorPush struct{ User }
	// Factor is none.
	Factor struct{ UserFactorPush *UserFactorPush }
	// Verified is never said.
	Verified struct{ Links map[string]any }
	// Transaction never ends.
	Transaction struct {
		UserFactorPushTransactionWaiting, UserFactorPushTransaction,
		UserFactorPushTransactionRejected, UserFactorPushTransactionTimeout *struct{}
	}

	users          struct{}
	factors        struct{}
	request[T any] struct{}
)

// WithToken is not looked at.
func WithToken(string) ConfigSetter { return nil }

// WithOrgUrl is not looked at.
func WithOrgUrl(string) ConfigSetter { return nil }

// WithCache is not looked at.
func WithCache(bool) ConfigSetter { return nil }

// NewConfiguration is refused.
func NewConfiguration(...ConfigSetter) (*Configuration, error) { return nil, errAbsent }

// NewAPIClient returns one that asks nobody.
func NewAPIClient(*Configuration) *APIClient { return &APIClient{} }

// GetConfig is empty.
func (*APIClient) GetConfig() *Configuration { return &Configuration{} }

// GetId is empty.
func (User) GetId() string { return "" }

// GetFactorResult is empty.
func (Verified) GetFactorResult() string { return "" }

func (users) ListUsers(context.Context) request[[]User] { return request[[]User]{} }

func (factors) ListFactors(context.Context, string) request[[]Factor] { return request[[]Factor]{} }

func (factors) VerifyFactor(context.Context, string, string) request[*Verified] {
	return request[*Verified]{}
}

func (factors) GetFactorTransactionStatus(context.Context, string, string, string) request[*Transaction] {
	return request[*Transaction]{}
}

// Filter is not looked at.
func (r request[T]) Filter(string) request[T] { return r }

// Execute is refused.
func (request[T]) Execute() (T, *http.Response, error) {
	var none T
	return none, nil, errAbsent
}
