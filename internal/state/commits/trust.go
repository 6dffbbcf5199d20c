package commits

import (
	"cmp"
	"context"
	"crypto/sha256"
	"encoding/base64"
	"encoding/json"
	"fmt"
	"slices"

	"github.com/ephemeral-castle/castle/internal/state/keys"
)

// A stored commit is one line of JSON, and in a log with signers a second line, which signs the whole first
// one. So no field is unsigned, and a later castle can add some. The commit names its cluster, its number and
// the digest of its predecessor, and each object by the hash of its content. So a signature holds for one
// place in one log, and for all contents.

// Unsigned stands among Encryption.Trust for commits without a signature, and for contents in clear.
const Unsigned = "unsigned"

const signingContext = "castle: a commit of a state\n"

// UntrustedError reports a commit that no signer vouches for. All of it may be a lie of whoever can write to
// the store.
type UntrustedError struct{ text string }

func (e *UntrustedError) Error() string { return e.text }

// untrusted returns the error for a commit. key is what to remove in the store; by trust, castle state rekey
// would accept it.
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
