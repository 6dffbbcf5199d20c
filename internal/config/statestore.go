package config

import (
	"errors"
	"fmt"
	"os"

	"github.com/hashicorp/hcl/v2"
	"github.com/hashicorp/hcl/v2/gohcl"
	"github.com/zclconf/go-cty/cty"

	"github.com/ephemeral-castle/castle/internal/process"
	"github.com/ephemeral-castle/castle/internal/secret"
	"github.com/ephemeral-castle/castle/internal/state/keys"
	"github.com/ephemeral-castle/castle/internal/store/location"
	"github.com/ephemeral-castle/castle/internal/syntax"
)

// StateStore is where castle.hcl keeps the states of all clusters.
type StateStore struct {
	URL        string   // empty: in the state directory alone
	Recipients []string // age1…; none: nothing is encrypted
	Signers    []string // castle-ed25519:…; none without recipients
	// Memory is the place in castle.hcl that keeps working copies in memory, "castle.hcl:3"; empty: on disk.
	Memory string
}

// stateSyntax is the block state of castle.hcl.
type stateSyntax struct {
	Snapshots   *hcl.Attribute `hcl:"snapshots,optional" type:"number"`
	Store       *hcl.Attribute `hcl:"store,optional" type:"string"`
	WorkingCopy *hcl.Attribute `hcl:"working_copy,optional" type:"string"`
	Encryption  *struct {
		Recipients *hcl.Attribute `hcl:"recipients" type:"list of strings"`
		Signers    *hcl.Attribute `hcl:"signers,optional" type:"list of strings, required"`
	} `hcl:"encryption,block"`
}

// ReadStateStore reads castle.hcl as far as it says where the states are, which commands that need no valid
// cluster need, too. Repository and Environ of o are enough. files has the sources for its diagnostics.
func ReadStateStore(o Options) (s StateStore, files map[string]*hcl.File, _ hcl.Diagnostics) {
	files = make(map[string]*hcl.File)
	l := &loader{options: o, library: newLibrary(Options{Repository: o.Repository}, files)}
	f, diags := l.library.read(os.DirFS(o.Repository), "castle.hcl", "castle.hcl", true)
	if f == nil || diags.HasErrors() { // it may name a store
		return s, files, diags
	}
	// Load reports all the rest.
	blocks, _, _ := f.Body.PartialContent(&hcl.BodySchema{Blocks: []hcl.BlockHeaderSchema{{Type: "state"}}})
	for _, b := range blocks.Blocks {
		var state stateSyntax
		l.diags.report(syntax.Plain(gohcl.DecodeBody(b.Body, nil, &state))...)
		s = l.readStateStore(&state)
	}
	return s, files, l.diags.Diagnostics
}

// readStateStore reads the store of the block state, which may be nil.
func (l *loader) readStateStore(state *stateSyntax) (s StateStore) {
	if state == nil {
		return s
	}
	if v := l.diags.constant(state.Store, cty.String, nil); state.Store != nil && v.IsKnown() {
		s.URL = v.AsString()
		if _, err := location.Parse(s.URL); err != nil {
			l.diags.add(state.Store.Expr.Range(), "castle.hcl: unsuitable store", "%s.", err)
			l.hideCastleFile(err)
		}
	}
	s.Memory = l.readWorkingCopy(state)
	if state.Encryption == nil {
		return s
	}
	attr := state.Encryption.Recipients
	s.Recipients = l.publicKeys(attr, "recipient", func(text string) error {
		_, err := keys.Recipient(text)
		return err
	})
	if elements, diags := hcl.ExprList(attr.Expr); diags.HasErrors() || len(elements) == 0 {
		l.diags.add(attr.Expr.Range(), "castle.hcl: no recipients",
			`Write recipients = ["age1…"]: the public keys that age-keygen prints. Or remove the block.`)
	}
	s.Signers = l.publicKeys(state.Encryption.Signers, "signer", keys.CheckSigner)
	if len(s.Recipients) > 0 && len(s.Signers) == 0 {
		identities, _ := keys.FromEnviron(l.options.Environ) //nolint:errcheck // only for the text
		l.diags.add(attr.Range, "castle.hcl: no signers", "%s.", keys.MissingSigners(identities))
	}
	return s
}

// readWorkingCopy returns where castle.hcl keeps working copies in memory. That requires a store, or a
// restart loses the states, and recipients, or the store has the secrets in clear.
func (l *loader) readWorkingCopy(state *stateSyntax) string {
	attr := state.WorkingCopy
	v := l.diags.constant(attr, cty.String, nil)
	if !v.IsKnown() || v.AsString() == "disk" {
		return ""
	}
	at := attr.Expr.Range()
	switch {
	case v.AsString() != "memory":
		l.diags.add(at, "castle.hcl: unsuitable working_copy",
			`%q is none. Write "memory", or "disk", which is the default.`, v.AsString())
	case state.Encryption == nil:
		l.diags.add(at, "castle.hcl: working copy in memory without encryption", "The store would hold the "+
			"secrets in clear. Add the block encryption; castle state identity prints its lines.")
	case state.Store == nil && process.Getenv(l.options.Environ, "CASTLE_STATE_STORE") == "":
		l.diags.add(at, "castle.hcl: working copy in memory without a store", "The next restart of this "+
			"machine would lose the states. Add store = with the URL of a store.")
	default:
		return fmt.Sprintf("%s:%d", at.Filename, at.Start.Line)
	}
	return ""
}

// publicKeys reads a list of public keys, which may be nil.
func (l *loader) publicKeys(attr *hcl.Attribute, kind string, check func(string) error) (all []string) {
	if attr == nil {
		return nil
	}
	elements, _ := hcl.ExprList(attr.Expr)
	for _, e := range elements {
		v := l.diags.constant(&hcl.Attribute{Expr: e}, cty.String, nil)
		if !v.IsKnown() {
			continue
		}
		if err := check(v.AsString()); err != nil {
			l.diags.add(e.Range(), "castle.hcl: unsuitable "+kind, "%s.", err)
			l.hideCastleFile(err)
		}
		all = append(all, v.AsString())
	}
	return all
}

// hideCastleFile keeps diagnostics from quoting lines of castle.hcl if one of them holds a secret.
func (l *loader) hideCastleFile(err error) {
	if errors.As(err, new(*secret.ExposedError)) {
		delete(l.library.files, "castle.hcl")
	}
}
