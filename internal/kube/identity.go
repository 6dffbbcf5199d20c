package kube

import (
	"crypto/sha256"
	"encoding/hex"
	"encoding/pem"
	"errors"
)

// ClusterIdentity names the cluster that a kubeconfig leads to: the SHA-256 of
// its certificate authority. It contacts nobody. A cluster that was raised anew
// has another one, even at the same address.
func ClusterIdentity(kubeconfig []byte) (string, error) {
	config, err := restConfig(kubeconfig)
	if err != nil {
		return "", err
	}
	// The certificates are hashed, not the text round them: the same authority
	// may be written with other line ends.
	digest, rest := sha256.New(), config.CAData
	found := false
	for {
		var block *pem.Block
		if block, rest = pem.Decode(rest); block == nil {
			break
		}
		found = true
		digest.Write(block.Bytes)
	}
	if !found {
		return "", errors.New("kubeconfig: carries no certificate authority")
	}
	return hex.EncodeToString(digest.Sum(nil)), nil
}
