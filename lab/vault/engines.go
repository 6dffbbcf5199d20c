package main

import (
	"slices"

	jwt "github.com/hashicorp/vault-plugin-auth-jwt"
	kv "github.com/hashicorp/vault-plugin-secrets-kv"
	"github.com/hashicorp/vault/builtin/credential/approle"
	"github.com/hashicorp/vault/builtin/logical/database"
	"github.com/hashicorp/vault/plugins/database/postgresql"
	"github.com/hashicorp/vault/sdk/helper/consts"
	"github.com/hashicorp/vault/sdk/logical"
)

// engines are those that castle's stages use. Vault's own list of all of them
// would link a dozen clouds.
func engines() (credentials, logicals map[string]logical.Factory) {
	credentials = map[string]logical.Factory{"jwt": jwt.Factory, "approle": approle.Factory}
	logicals = map[string]logical.Factory{"kv": kv.Factory, "database": database.Factory}
	return credentials, logicals
}

// databasePlugin is the one kind of database that the engine can speak to.
const databasePlugin = "postgresql-database-plugin"

// registry is the catalogue of plugins that need no program of their own.
type registry struct{}

func (registry) Contains(name string, kind consts.PluginType) bool {
	return slices.Contains(registry{}.Keys(kind), name)
}

func (registry) Get(name string, kind consts.PluginType) (func() (any, error), bool) {
	credentials, logicals := engines()
	switch kind {
	case consts.PluginTypeCredential:
		f, known := credentials[name]
		return func() (any, error) { return f, nil }, known
	case consts.PluginTypeSecrets:
		f, known := logicals[name]
		return func() (any, error) { return f, nil }, known
	case consts.PluginTypeDatabase:
		return postgresql.New, name == databasePlugin
	}
	return nil, false
}

func (registry) Keys(kind consts.PluginType) []string {
	switch kind {
	case consts.PluginTypeCredential:
		return []string{"approle", "jwt"}
	case consts.PluginTypeSecrets:
		return []string{"kv"}
	case consts.PluginTypeDatabase:
		return []string{databasePlugin}
	}
	return nil
}

func (r registry) DeprecationStatus(name string, kind consts.PluginType) (consts.DeprecationStatus, bool) {
	return consts.Supported, r.Contains(name, kind)
}

func (r registry) IsBuiltinEntPlugin(string, consts.PluginType) bool { return false }
