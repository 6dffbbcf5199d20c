// Package keys reads the keys of those who share a state. Each holder has one secret, an identity of age. Its
// recipient, which is public, is who can read. An Ed25519 key is derived from the identity, with HKDF under a
// label of its own, so that it reveals nothing about the identity and signs for nothing else. Its public
// half, the signer, is who may write.
package keys

import (
	"crypto/ed25519"
	"crypto/hkdf"
	"crypto/sha256"
	"encoding/base64"
	"fmt"
	"os"
	"strings"

	"filippo.io/age"

	"github.com/ephemeral-castle/castle/internal/process"
	"github.com/ephemeral-castle/castle/internal/secret"
)

// The variables of the environment that hold the identities. None reaches Terraform.
const (
	IdentityVariable     = "CASTLE_AGE_IDENTITY"
	IdentityFileVariable = "CASTLE_AGE_IDENTITY_FILE"
)

const (
	derivation   = "castle state signer 1"
	signerPrefix = "castle-ed25519:"
)

// Holder is one identity with what belongs to it.
type Holder struct {
	Identity  age.Identity `json:"-"`         // secret
	Recipient string       `json:"recipient"` // age1…
	Signer    string       `json:"signer"`    // castle-ed25519:…

	key ed25519.PrivateKey
}

// Parse returns the holders of an identity file: one identity on a line. Its errors quote nothing.
func Parse(identities string) (all []Holder, err error) {
	if strings.TrimSpace(identities) == "" {
		return nil, nil
	}
	found, err := age.ParseIdentities(strings.NewReader(identities))
	if err != nil { // its text may contain a part of the key
		return nil, fmt.Errorf("castle cannot read the identity for age: each line has to be empty, begin "+
			"with # or with AGE-SECRET-KEY-; set %s, or %s to the path of its file", IdentityVariable,
			IdentityFileVariable)
	}
	for _, one := range found {
		h := Holder{Identity: one}
		switch i := one.(type) {
		case *age.X25519Identity:
			h.Recipient = i.Recipient().String()
		case *age.HybridIdentity:
			h.Recipient = i.Recipient().String()
		}
		seed, err := hkdf.Key(sha256.New, fmt.Append(nil, one), nil, derivation, ed25519.SeedSize)
		if err != nil {
			return nil, err
		}
		h.key = ed25519.NewKeyFromSeed(seed)
		h.Signer = signerPrefix + encoding.EncodeToString(h.key.Public().(ed25519.PublicKey))
		all = append(all, h)
	}
	return all, nil
}

var encoding = base64.RawURLEncoding.Strict()

// Sign signs a message.
func (h Holder) Sign(message []byte) []byte { return ed25519.Sign(h.key, message) }

// Verify reports whether a signature of a message is that of a signer.
func Verify(signer string, message, signature []byte) bool {
	key, err := publicKey(signer)
	return err == nil && ed25519.Verify(key, message, signature)
}

// CheckSigner returns why a text is no signer.
func CheckSigner(text string) error {
	_, err := publicKey(text)
	return err
}

func publicKey(signer string) (ed25519.PublicKey, error) {
	if err := refuseIdentity(signer, "signer, as `castle state identity` prints it"); err != nil {
		return nil, err
	}
	text, is := strings.CutPrefix(signer, signerPrefix)
	key, err := encoding.DecodeString(text)
	if !is || err != nil || len(key) != ed25519.PublicKeySize {
		return nil, fmt.Errorf("%q is no signer. Write one that `castle state identity` prints: %s…",
			signer, signerPrefix)
	}
	return key, nil
}

// Recipient reads a recipient of age.
func Recipient(text string) (age.Recipient, error) {
	if err := refuseIdentity(text, "recipient, the public key age1… that age-keygen -y prints"); err != nil {
		return nil, err
	}
	found, err := age.ParseRecipients(strings.NewReader(text))
	if err != nil || len(found) != 1 {
		return nil, fmt.Errorf("%q is no public key of age. Write one that age-keygen prints: age1…", text)
	}
	return found[0], nil
}

func refuseIdentity(text, instead string) error {
	if !strings.HasPrefix(strings.ToUpper(text), "AGE-SECRET-KEY-") {
		return nil
	}
	return &secret.ExposedError{Message: "this is an identity, which is secret. Write its " + instead +
		", and make a new identity: everybody who could read the file has it"}
}

// MissingSigners explains recipients without signers. identities may be empty.
func MissingSigners(identities string) error {
	signer, how := signerPrefix+"…", "`castle state identity` prints the key of each holder"
	if all, err := Parse(identities); err == nil && len(all) > 0 {
		signer = all[0].Signer
		how = "this is the key of your identity; `castle state identity` prints that of each other holder"
	}
	return fmt.Errorf("the recipients say who can read, and nothing says who may write: everybody who can "+
		"write to the store could forge a state. Add beside recipients: signers = [%q] (%s)", signer, how)
}

// FromEnviron returns the text of the identities that an environment holds or names; empty if there are none.
func FromEnviron(environ []string) (string, error) {
	text, path := process.Getenv(environ, IdentityVariable), process.Getenv(environ, IdentityFileVariable)
	switch {
	case text != "" && path != "":
		return "", fmt.Errorf("%s and %s are both set: unset one", IdentityVariable, IdentityFileVariable)
	case path == "":
		return text, nil
	}
	info, err := os.Stat(path)
	if err != nil {
		return "", fmt.Errorf("%s: %w", IdentityFileVariable, err)
	}
	if mode := info.Mode().Perm(); mode&0o077 != 0 {
		return "", fmt.Errorf("%s: %s holds secrets and is readable by others (mode %04o); run chmod 600 %s",
			IdentityFileVariable, path, mode, process.Quote(path))
	}
	data, err := os.ReadFile(path)
	return string(data), err
}
