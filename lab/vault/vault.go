package main

import (
	"context"
	"fmt"
	"io"

	"github.com/hashicorp/go-hclog"
	"github.com/hashicorp/vault/sdk/physical/inmem"
	"github.com/hashicorp/vault/vault"
)

// version is the version that sys/health returns, too.
const version = "1.21.4"

// operator holds the keys that the initialisation of a Vault returns.
type operator struct {
	RootToken string `json:"root_token"`
	UnsealKey string `json:"unseal_key"` // hexadecimal
}

// start makes a Vault with one key share and unseals it.
func start(ctx context.Context, log io.Writer) (*vault.Core, operator, error) {
	logger := hclog.New(&hclog.LoggerOptions{Name: "vault", Level: hclog.Warn, Output: log})
	storage, err := inmem.NewInmem(nil, logger)
	if err != nil {
		return nil, operator{}, err
	}
	credentials, logicals := engines()
	core, err := vault.NewCore(&vault.CoreConfig{
		Physical: storage, DisableMlock: true, Logger: logger,
		BuiltinRegistry: registry{}, CredentialBackends: credentials, LogicalBackends: logicals,
	})
	if err != nil {
		return nil, operator{}, err
	}
	shares := &vault.SealConfig{SecretShares: 1, SecretThreshold: 1}
	result, err := core.Initialize(ctx,
		&vault.InitParams{BarrierConfig: shares, RecoveryConfig: &vault.SealConfig{}})
	if err != nil {
		return nil, operator{}, fmt.Errorf("initialise: %w", err)
	}
	key := result.SecretShares[0]
	kept := operator{RootToken: result.RootToken, UnsealKey: fmt.Sprintf("%x", key)}
	if _, err := core.Unseal(key); err != nil {
		return nil, operator{}, fmt.Errorf("unseal: %w", err)
	}
	return core, kept, nil
}
