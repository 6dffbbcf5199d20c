package keys

import (
	"strings"
	"testing"

	"filippo.io/age"

	"github.com/ephemeral-castle/castle/internal/secret"
)

// known is an identity of the tests, whose signer must never change: castle.hcl files hold it.
const (
	known  = "AGE-SECRET-KEY-1K47PTNZV4V5K5RUU9KLMFK6PN9HACHM2LNQRERX039XGL2Z4X0HQN79A09"
	signer = "castle-ed25519:RxSS3jgw7-q2ppvLCXPKnvD83_9Dyx65PkoIUo5rboE"
)

func TestTheSignerOfAnIdentityNeverChanges(t *testing.T) {
	all, err := Parse("# a comment\n\n" + known + "\n")
	if err != nil || len(all) != 1 {
		t.Fatal(all, err)
	}
	if all[0].Signer != signer || !strings.HasPrefix(all[0].Recipient, "age1j6uma6v3") {
		t.Errorf("got %s, %s", all[0].Signer, all[0].Recipient)
	}
}

func TestEveryKindOfIdentitySigns(t *testing.T) {
	x25519, err := age.GenerateX25519Identity()
	if err != nil {
		t.Fatal(err)
	}
	hybrid, err := age.GenerateHybridIdentity()
	if err != nil {
		t.Fatal(err)
	}
	all, err := Parse(x25519.String() + "\n" + hybrid.String())
	if err != nil || len(all) != 2 {
		t.Fatal(all, err)
	}
	message := []byte("a message")
	for i, h := range all {
		signature := h.Sign(message)
		if err := CheckSigner(h.Signer); err != nil {
			t.Error(err)
		}
		if _, err := Recipient(h.Recipient); err != nil {
			t.Error(err)
		}
		if !Verify(h.Signer, message, signature) || Verify(h.Signer, []byte("another one"), signature) ||
			Verify(all[1-i].Signer, message, signature) || Verify("nobody", message, signature) {
			t.Errorf("%T: wrong signatures", h.Identity)
		}
	}
}

func TestKeysThatAreNoneAreRefused(t *testing.T) {
	for text, want := range map[string]string{
		"":                                  "is no signer",
		"age1j6uma6v3":                      "is no signer. Write one that `castle state identity` prints",
		signer[:len(signer)-2]:              "is no signer",
		signer + "A":                        "is no signer",
		"castle-ed25519:" + known:           "is no signer",
		strings.Replace(signer, ":", "", 1): "is no signer",
	} {
		if err := CheckSigner(text); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%q: %v", text, err)
		}
	}
	for _, check := range []func(string) error{CheckSigner, func(text string) error {
		_, err := Recipient(text)
		return err
	}} {
		err := check(strings.ToLower(known))
		if _, is := err.(*secret.ExposedError); !is || strings.Contains(err.Error(), "k47ptnzv4") {
			t.Errorf("an identity: %v", err)
		}
	}
	if _, err := Parse("AGE-SECRET-KEY-1NONSENSE"); err == nil || strings.Contains(err.Error(), "NONSENSE") {
		t.Errorf("an identity that is none: %v", err)
	}
}

func TestMissingSignersNamesTheLineToAdd(t *testing.T) {
	for identities, want := range map[string]string{
		known: `signers = ["` + signer + `"]`,
		"":    `signers = ["castle-ed25519:…"]`, "nonsense": `signers = ["castle-ed25519:…"]`,
	} {
		if err := MissingSigners(identities); !strings.Contains(err.Error(), want) {
			t.Errorf("got %v, want %q in it", err, want)
		}
	}
}
