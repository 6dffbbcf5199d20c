package commits

import (
	"bytes"
	"cmp"
	"context"
	"crypto/sha256"
	"encoding/base64"
	"encoding/json"
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

// SealSigned is Seal for a text of one line, which it also signs if there are signers. purpose tells what the
// signature is for: nobody can pass a signed text off as one for another purpose.
func (e Encryption) SealSigned(name, purpose string, text []byte) ([]byte, error) {
	c, err := newCipher(name, e)
	if err == nil {
		err = c.check()
	}
	if err != nil {
		return nil, err
	}
	if signer := c.signer(); signer.Signer != "" {
		signature := signer.Sign(append([]byte(purpose+"\n"), text...))
		text = fmt.Appendf(slices.Clone(text), "\n%s %s", signer.Signer,
			base64.StdEncoding.EncodeToString(signature))
	}
	return c.encrypt(text)
}

// UnsealSigned returns the text that SealSigned has written. One that no signer has signed is an error.
func (e Encryption) UnsealSigned(name, purpose string, data []byte) ([]byte, error) {
	data, err := e.Unseal(name, data)
	if err != nil {
		return nil, err
	}
	text, last, _ := bytes.Cut(data, []byte("\n"))
	signer, encoded, _ := strings.Cut(string(last), " ")
	signature, err := base64.StdEncoding.DecodeString(encoded)
	signed := err == nil && keys.Verify(signer, append([]byte(purpose+"\n"), text...), signature)
	if len(e.Signers) > 0 && !(signed && slices.Contains(e.Signers, signer)) {
		return nil, &UntrustedError{name + ": no signer in castle.hcl has signed it: castle uses nothing " +
			"of it"}
	}
	return text, nil
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

// A stored commit is one line of JSON, and in a log with signers a second line, which signs the whole first
// one. So no field is unsigned, and a later castle can add some. The commit names its cluster, its number and
// the digest of its predecessor, and each object by the hash of its content. So a signature holds for one
// place in one log, and for all contents.

// Unsigned stands among Encryption.Trust for commits without a signature, and for contents in clear.
const Unsigned = "unsigned"

const signingContext = "castle: a commit of a state\n"

// UntrustedError reports a commit that no signer vouches for: who can write to the store may have made it.
type UntrustedError struct{ text string }

func (e *UntrustedError) Error() string { return e.text }

// untrusted returns the error for a commit: remove key in the store, or accept it by trust.
func untrusted(l *Log, c *Commit, key, trust, reason string) error {
	text := fmt.Sprintf("%s: commit %d of %s, which names %q on %q as its writer, %s: castle uses nothing "+
		"of it", l.URL(), c.Sequence, l.cluster, c.User, c.Host, reason)
	if trust != "" {
		text += fmt.Sprintf("\n  if you know that the writer was entitled, `castle state rekey %s --trust "+
			"%s` encrypts and signs the state anew", l.cluster, trust)
	}
	return &UntrustedError{text + "\n  else somebody without a key has written to the store: change the " +
		"credentials for it, and remove or restore " + key + " there"}
}

// encode returns what the store holds of a commit, and sets its digest.
func (l *Log) encode(c *Commit) ([]byte, error) {
	signer := l.cipher.signer()
	c.Digest, c.Signer = "", signer.Signer
	text, err := json.Marshal(c)
	if err != nil {
		return nil, err
	}
	if c.Digest = digestOf(text); signer.Signer != "" {
		signature := signer.Sign(append([]byte(signingContext), text...))
		text = base64.StdEncoding.AppendEncode(append(text, '\n'), signature)
	}
	return compress(text)
}

func digestOf(text []byte) string { return fmt.Sprintf("%x", sha256.Sum256(text)) }

// verify returns why nobody whom castle.hcl names vouches for a commit, which was read from text.
func (l *Log) verify(c *Commit, text, signature []byte) error {
	decoded, err := base64.StdEncoding.DecodeString(string(signature))
	switch key, trusted := l.key(c.Sequence), l.cipher.trusted; {
	case len(l.cipher.of.Signers) == 0, len(signature) == 0 && slices.Contains(trusted, Unsigned):
		return nil
	case len(signature) == 0:
		return untrusted(l, c, key, Unsigned, "is not signed, though castle.hcl names signers")
	case err != nil, !keys.Verify(c.Signer, append([]byte(signingContext), text...), decoded):
		return untrusted(l, c, key, "", fmt.Sprintf("does not have the content that %q has signed", c.Signer))
	case !slices.Contains(trusted, c.Signer):
		return untrusted(l, c, key, c.Signer, "is signed by "+c.Signer+", who is not among the signers in "+
			"castle.hcl")
	}
	return nil
}

// checkLinks checks that the head follows the newest commit that this machine has seen before, and its own
// predecessor, as far as the store still has those commits. So a store that has shown different logs to two
// machines cannot join them again. all are the numbers of the commits that the store has.
func checkLinks(ctx context.Context, l *Log, seen, head *Commit, all []int64) error {
	if len(l.cipher.of.Signers) == 0 {
		return nil
	}
	if seen == nil || seen.Digest == "" || seen.Sequence >= head.Sequence {
		seen = head
	}
	wanted := slices.DeleteFunc(slices.Clone(all), func(n int64) bool {
		return n >= head.Sequence || n < head.Sequence-1 && n != seen.Sequence && n != seen.Sequence+1
	})
	// Their own signers may have left since: the digests show that they are what the head's signer has seen.
	read, err := l.readAll(ctx, wanted, l.read)
	if err != nil {
		return err
	}
	chain := slices.Concat(read, []*Commit{head, seen})
	slices.SortFunc(chain, func(a, b *Commit) int { return cmp.Compare(a.Sequence, b.Sequence) })
	for i, c := range chain[1:] {
		before := chain[i]
		if before.Sequence == c.Sequence && before.Digest != c.Digest ||
			before.Sequence == c.Sequence-1 && before.Digest != c.Previous {
			return untrusted(l, c, l.key(c.Sequence), "", fmt.Sprintf("does not fit the commit %d that the "+
				"store has, or that this machine has seen", before.Sequence))
		}
	}
	return nil
}

// Expect has Head refuse a log whose newest commit has a lower number.
func (l *Log) Expect(least int64) { l.least = least }

// checkLength returns the error for a log that ends too early.
func (l *Log) checkLength(newest int64) error {
	if newest >= l.least {
		return nil
	}
	return fmt.Errorf("%s: the newest commit of %s is %d, and CASTLE_STATE_AT_LEAST expects %d or a newer "+
		"one: somebody has emptied the store, or put an older copy there\n  restore the store from a "+
		"backup; if the log is right, as that of a new cluster or after a migration, unset the variable",
		l.URL(), l.cluster, newest, l.least)
}

// signer returns the holder whose key signs what this process writes, the zero one if nobody signs.
func (c *cipher) signer() keys.Holder {
	for _, h := range c.holders {
		if slices.Contains(c.of.Signers, h.Signer) {
			return h
		}
	}
	return keys.Holder{}
}
