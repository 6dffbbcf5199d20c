package commits

import (
	"bytes"
	"cmp"
	"errors"
	"fmt"
	"io"
	"slices"
	"strings"
	"sync"

	"filippo.io/age"

	"github.com/ephemeral-castle/castle/internal/state/keys"
)

// Encryption encrypts objects with age, and signs commits. The zero value does not.
type Encryption struct {
	Recipients []string // age1…
	Signers    []string // castle-ed25519:…: only their commits are accepted
	Identities string   // the text of an identity file: AGE-SECRET-KEY-1…; secret
	// Trust are further signers whose commits are accepted, and Unsigned. It is for a rotation of keys, in
	// which those of Identities are accepted, too; nil otherwise.
	Trust []string
}

const ageHeader = "age-encryption.org/v1\n"

// InClear returns a notice for the user if the log's objects are not encrypted, else "".
func InClear(l *Log) string {
	if len(l.cipher.recipients) > 0 {
		return ""
	}
	return fmt.Sprintf("the states of %s hold secrets in clear in %s, and castle believes everybody who can "+
		"write there; to encrypt and sign them, add encryption { recipients = [\"age1…\"] } to the block "+
		"state of castle.hcl", l.cluster, l.URL())
}

// IsSealed reports whether a file was encrypted by Seal.
func IsSealed(content []byte) bool { return bytes.HasPrefix(content, []byte(ageHeader)) }

// Seal encrypts a file outside of a log, such as a saved plan, if there are recipients. name is for messages.
func (e Encryption) Seal(name string, content []byte) ([]byte, error) {
	c, err := newCipher(name, e)
	if err != nil {
		return nil, err
	}
	return c.encrypt(content)
}

// Unseal decrypts a file that Seal has encrypted, and returns any other one as it is.
func (e Encryption) Unseal(name string, content []byte) ([]byte, error) {
	c, err := newCipher(name, e)
	if err != nil {
		return nil, err
	}
	return c.decrypt(content, nil)
}

// IdentityError reports that no identity opens what is encrypted for some recipients.
type IdentityError struct {
	URL        string
	Recipients []string // none if unknown
	Given      []string // the recipients that the given identities belong to
	Writing    bool
}

func (e *IdentityError) Error() string {
	text, given := "the contents are encrypted for %s, and %s", "there is no identity"
	if e.Writing {
		text = "castle would encrypt for %s, and could not read that again: %s"
	}
	if len(e.Given) > 0 {
		given = "the identity belongs to " + strings.Join(e.Given, ", ")
	}
	of := cmp.Or(strings.Join(e.Recipients, ", "), "other recipients")
	return e.URL + ": " + fmt.Sprintf(text, of, given) + "\n  set CASTLE_AGE_IDENTITY to the identity of " +
		"one of these recipients, or CASTLE_AGE_IDENTITY_FILE to the path of its file"
}

// cipher encrypts for recipients, if there are any, and decrypts with identities.
type cipher struct {
	of         Encryption
	url        string
	recipients []age.Recipient
	trusted    []string // signers, and whoever else is accepted in a rotation
	holders    []keys.Holder
	// check refuses recipients that no identity opens, and signers of whom this is none: nobody writes what
	// he could not read again.
	check func() error
}

func newCipher(url string, e Encryption) (*cipher, error) {
	c := &cipher{of: e, url: url, trusted: slices.Concat(e.Signers, e.Trust)}
	c.check = sync.OnceValue(c.probe)
	for _, name := range e.Recipients {
		one, err := keys.Recipient(name)
		if err != nil {
			return nil, err
		}
		c.recipients = append(c.recipients, one)
	}
	var err error
	c.holders, err = keys.Parse(e.Identities)
	for _, h := range c.holders {
		if e.Trust != nil {
			c.trusted = append(c.trusted, h.Signer)
		}
	}
	return c, err
}

func (c *cipher) probe() error {
	data, err := c.encrypt(nil)
	if err == nil && len(c.recipients) > 0 {
		_, err = c.decrypt(data, nil)
	}
	if wrong, is := errors.AsType[*IdentityError](err); is {
		wrong.Recipients, wrong.Writing = c.of.Recipients, true
	}
	if err == nil && len(c.of.Signers) > 0 && c.signer().Signer == "" {
		return fmt.Errorf("castle would sign with %s, which is not among the signers in castle.hcl, and "+
			"nobody would accept that\n  add it there if this identity may change clusters",
			c.holders[0].Signer)
	}
	return err
}

func (c *cipher) encrypt(data []byte) ([]byte, error) {
	if len(c.recipients) == 0 {
		return data, nil
	}
	var b bytes.Buffer
	w, err := age.Encrypt(&b, c.recipients...)
	if err != nil {
		return nil, err
	}
	_, err = w.Write(data)
	err = errors.Join(err, w.Close())
	return b.Bytes(), err
}

// decrypt decrypts an object of a commit, which is for messages. An object that is not encrypted was written
// before there were recipients.
func (c *cipher) decrypt(data []byte, of *Commit) ([]byte, error) {
	if !IsSealed(data) {
		return data, nil
	}
	wrong := &IdentityError{URL: c.url}
	if of != nil {
		wrong.Recipients = of.Recipients
	}
	var identities []age.Identity
	for _, h := range c.holders {
		wrong.Given, identities = append(wrong.Given, h.Recipient), append(identities, h.Identity)
	}
	if len(identities) == 0 {
		return nil, wrong
	}
	r, err := age.Decrypt(bytes.NewReader(data), identities...)
	if errors.As(err, new(*age.NoIdentityMatchError)) {
		return nil, wrong
	}
	if err != nil {
		return nil, err
	}
	return io.ReadAll(r)
}
