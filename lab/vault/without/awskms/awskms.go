// Package awskms stands in for the seal whose key Amazon keeps. The lab's Vault
// is unsealed with a key of its own.
package awskms

import (
	"context"
	"errors"

	"github.com/hashicorp/go-hclog"
	wrapping "github.com/hashicorp/go-kms-wrapping/v2"
)

// The names by which Vault knows the key.
const (
	EnvAwsKmsWrapperKeyId   = "AWSKMS_WRAPPER_KEY_ID"
	EnvVaultAwsKmsSealKeyId = "VAULT_AWSKMS_SEAL_KEY_ID"
)

var errAbsent = errors.New("the lab's Vault is built without awskms")

// Wrapper wraps nothing.
type Wrapper struct{}

// NewWrapper returns one that wraps nothing.
func NewWrapper() *Wrapper { return &Wrapper{} }

// Type is Amazon's.
func (*Wrapper) Type(context.Context) (wrapping.WrapperType, error) {
	return wrapping.WrapperTypeAwsKms, nil
}

// KeyId is refused.
func (*Wrapper) KeyId(context.Context) (string, error) { return "", errAbsent }

// SetConfig is refused.
func (*Wrapper) SetConfig(context.Context, ...wrapping.Option) (*wrapping.WrapperConfig, error) {
	return nil, errAbsent
}

// Encrypt is refused.
func (*Wrapper) Encrypt(context.Context, []byte, ...wrapping.Option) (*wrapping.BlobInfo, error) {
	return nil, errAbsent
}

// Decrypt is refused.
func (*Wrapper) Decrypt(context.Context, *wrapping.BlobInfo, ...wrapping.Option) ([]byte, error) {
	return nil, errAbsent
}

// WithDisallowEnvVars is not looked at.
func WithDisallowEnvVars(bool) wrapping.Option { return ignored }

// WithLogger is not looked at.
func WithLogger(hclog.Logger) wrapping.Option { return ignored }

func ignored() any { return nil }
