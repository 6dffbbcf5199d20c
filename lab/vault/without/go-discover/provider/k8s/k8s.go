// Package k8s stands in for what finds Vaults among Pods.
package k8s

import (
	"errors"
	"log"
)

// Provider finds nobody.
type Provider struct{}

// Addrs is refused.
func (*Provider) Addrs(map[string]string, *log.Logger) ([]string, error) {
	return nil, errors.New("the lab's Vault is built without go-discover")
}

// Help is empty.
func (*Provider) Help() string { return "" }
