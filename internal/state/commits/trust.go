package commits

import (
	"bytes"
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

// UntrustedError reports a commit that no signer vouches for. Everything in it may be a lie of whoever can
// write to the store.
type UntrustedError struct {
	URL, Cluster string
	Commit       int64
	Key          string // in the store
	User, Host   string // as the commit says
	Reason       string
	Trust        string // by which castle state rekey would accept it; empty: it does not
}

func (e *UntrustedError) Error() string {
	text := fmt.Sprintf("%s: commit %d of %s, which names %q on %q as its writer, %s: castle uses nothing "+
		"of it", e.URL, e.Commit, e.Cluster, e.User, e.Host, e.Reason)
	if e.Trust != "" {
		text += fmt.Sprintf("\n  if you know that the writer was entitled, `castle state rekey %s --trust "+
			"%s` encrypts and signs the state anew", e.Cluster, e.Trust)
	}
	return text + fmt.Sprintf("\n  else somebody without a key has written to the store: change the "+
		"credentials for it, and remove or restore %s there", e.Key)
}

// SignerError reports that no key of the given identities is among the signers.
type SignerError struct{ Given []string }

func (e *SignerError) Error() string {
	return fmt.Sprintf("castle would sign with %q, which is not among the signers in castle.hcl, and nobody "+
		"would accept that\n  add it there if this identity may change clusters: signers = [%q, …]",
		e.Given, cmp.Or(e.Given...))
}

// encode returns what the store holds of a commit, and sets its digest.
func (l *Log) encode(c *Commit) ([]byte, error) {
	c.Digest, c.Signer = "", ""
	signer := l.cipher.signer()
	if signer != nil {
		c.Signer = signer.Signer
	}
	text, err := json.Marshal(c)
	if err != nil {
		return nil, err
	}
	c.Digest = digestOf(text)
	if signer != nil {
		signature := signer.Sign(append([]byte(signingContext), text...))
		text = base64.StdEncoding.AppendEncode(append(text, '\n'), signature)
	}
	return compress(text)
}

func digestOf(text []byte) string { return fmt.Sprintf("%x", sha256.Sum256(text)) }

// verify returns why nobody whom castle.hcl names vouches for a commit, which was read from text.
func (l *Log) verify(c *Commit, text, signature []byte) error {
	if len(l.cipher.signers) == 0 {
		return nil
	}
	wrong := untrusted(l, c, "")
	decoded, err := base64.StdEncoding.DecodeString(string(signature))
	switch {
	case len(signature) == 0 && l.cipher.trusts(Unsigned):
		return nil
	case len(signature) == 0:
		wrong.Reason, wrong.Trust = "is not signed, though castle.hcl names signers", Unsigned
	case err != nil, !keys.Verify(c.Signer, append([]byte(signingContext), text...), decoded):
		wrong.Reason = fmt.Sprintf("does not have the content that %q has signed", c.Signer)
	case !l.cipher.trusts(c.Signer):
		wrong.Reason = "is signed by " + c.Signer + ", who is not among the signers in castle.hcl"
		wrong.Trust = c.Signer
	default:
		return nil
	}
	return wrong
}

func untrusted(l *Log, c *Commit, reason string) *UntrustedError {
	return &UntrustedError{URL: l.URL(), Cluster: l.cluster, Commit: c.Sequence, Key: l.key(c.Sequence),
		User: c.User, Host: c.Host, Reason: reason}
}

// checkLinks checks that the head follows the newest commit that this machine has seen before, and its own
// predecessor, as far as the store still has those commits. So a store that has shown different logs to two
// machines cannot join them again. all are the numbers of the commits that the store has.
func checkLinks(ctx context.Context, l *Log, seen, head *Commit, all []int64) error {
	if len(l.cipher.signers) == 0 {
		return nil
	}
	wanted, chain := []int64{head.Sequence - 1}, []*Commit{head}
	if seen != nil && seen.Digest != "" && seen.Sequence < head.Sequence {
		wanted, chain = append(wanted, seen.Sequence, seen.Sequence+1), append(chain, seen)
	}
	slices.Sort(wanted)
	wanted = slices.DeleteFunc(slices.Compact(wanted), func(n int64) bool {
		return n == head.Sequence || !slices.Contains(all, n)
	})
	// Their own signers may have left since: the digests show that they are what the head's signer has seen.
	read, err := l.readAll(ctx, wanted, l.read)
	if err != nil {
		return err
	}
	chain = append(chain, read...)
	slices.SortFunc(chain, func(a, b *Commit) int { return int(a.Sequence - b.Sequence) })
	for i, c := range chain[1:] {
		before := chain[i]
		if before.Sequence == c.Sequence && before.Digest != c.Digest ||
			before.Sequence == c.Sequence-1 && before.Digest != c.Previous {
			return untrusted(l, c, fmt.Sprintf("does not fit the commit %d that the store has, or that this "+
				"machine has seen", before.Sequence))
		}
	}
	return nil
}

// ShortError reports that a log ends before a commit that CASTLE_STATE_AT_LEAST names.
type ShortError struct {
	URL, Cluster string

	Least, Head int64 // numbers; Head is 0 if the log is empty
}

func (e *ShortError) Error() string {
	return fmt.Sprintf("%s: the newest commit of %s is %d, and CASTLE_STATE_AT_LEAST expects %d or a newer "+
		"one: somebody has emptied the store, or put an older copy there\n  restore the store from a "+
		"backup; if the log is right, as that of a new cluster or after a migration, unset the variable",
		e.URL, e.Cluster, e.Head, e.Least)
}

// Expect has Head refuse a log whose newest commit has a lower number.
func (l *Log) Expect(least int64) { l.least = least }

// trusts reports whether commits of a signer are accepted.
func (c *cipher) trusts(signer string) bool { return slices.Contains(c.trusted, signer) }

// signer returns the holder whose key signs what this process writes; nil: nobody signs.
func (c *cipher) signer() *keys.Holder {
	for i, h := range c.holders {
		if slices.Contains(c.signers, h.Signer) {
			return &c.holders[i]
		}
	}
	return nil
}

// sealed reports whether an object may be used as it is stored.
func (c *cipher) sealed(data []byte) bool {
	return len(c.recipients) == 0 || c.trusts(Unsigned) || bytes.HasPrefix(data, []byte(ageHeader))
}
