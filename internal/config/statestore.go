package config

import (
	"errors"
	"fmt"
	"net/url"
	"os"
	"slices"
	"strings"

	"filippo.io/age"
	"github.com/hashicorp/hcl/v2"
	"github.com/hashicorp/hcl/v2/gohcl"
	"github.com/zclconf/go-cty/cty"

	"github.com/ephemeral-castle/castle/internal/secret"
	"github.com/ephemeral-castle/castle/internal/syntax"
)

// StateStore is where castle.hcl keeps the states of all clusters.
type StateStore struct {
	URL        string   // empty: in the state directory alone
	Recipients []string // age1…; none: nothing is encrypted
}

// stateSyntax is the block state of castle.hcl.
type stateSyntax struct {
	Snapshots  *hcl.Attribute `hcl:"snapshots,optional" type:"number"`
	Store      *hcl.Attribute `hcl:"store,optional" type:"string"`
	Encryption *struct {
		Recipients *hcl.Attribute `hcl:"recipients" type:"list of strings"`
	} `hcl:"encryption,block"`
}

// ReadStateStore reads castle.hcl as far as it says where the states are, which commands that need no valid
// cluster need, too. files holds the sources that its diagnostics may quote.
func ReadStateStore(repository string) (s StateStore, files map[string]*hcl.File, _ hcl.Diagnostics) {
	files = make(map[string]*hcl.File)
	l := &loader{library: newLibrary(Options{Repository: repository}, files)}
	f, diags := l.library.read(os.DirFS(repository), "castle.hcl", "castle.hcl", true)
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
		if err := CheckStoreURL(s.URL); err != nil {
			l.diags.add(state.Store.Expr.Range(), "castle.hcl: unsuitable store", "%s.", err)
			l.hideCastleFile(err)
		}
	}
	if state.Encryption == nil {
		return s
	}
	attr := state.Encryption.Recipients
	elements, diags := hcl.ExprList(attr.Expr)
	if diags.HasErrors() || len(elements) == 0 {
		l.diags.add(attr.Expr.Range(), "castle.hcl: no recipients",
			`Write recipients = ["age1…"]: the public keys that age-keygen prints. Or remove the block.`)
	}
	for _, e := range elements {
		v := l.diags.constant(&hcl.Attribute{Expr: e}, cty.String, nil)
		if !v.IsKnown() {
			continue
		}
		if err := checkRecipient(v.AsString()); err != nil {
			l.diags.add(e.Range(), "castle.hcl: unsuitable recipient", "%s.", err)
			l.hideCastleFile(err)
		}
		s.Recipients = append(s.Recipients, v.AsString())
	}
	return s
}

// hideCastleFile keeps diagnostics from quoting lines of castle.hcl if one of them holds a secret.
func (l *loader) hideCastleFile(err error) {
	if errors.As(err, new(*secretInFileError)) {
		delete(l.library.files, "castle.hcl")
	}
}

// secretInFileError reports a secret where everybody can read it.
type secretInFileError struct{ message string }

func (e *secretInFileError) Error() string { return e.message }

// storeSchemes are the schemes of stores, with an example of each.
var storeSchemes = []struct{ name, example string }{
	{"s3", "s3://bucket/folder?region=eu-central-1"}, {"file", "file:///srv/castle"},
	{"postgres", "postgres://host/database"},
}

// CheckStoreURL returns why a URL cannot be that of a store. It contacts nothing.
func CheckStoreURL(text string) error {
	var names, examples []string
	for _, s := range storeSchemes {
		names, examples = append(names, s.name), append(examples, s.example)
	}
	all := "Write one of " + strings.Join(examples, ", ")
	u, err := url.Parse(text)
	if err != nil { // its text may quote a password
		return errors.New("this is no URL. " + all)
	}
	if _, has := u.User.Password(); has {
		return &secretInFileError{"a URL with a password is visible to everybody who can read it. Remove " +
			"the password; castle takes credentials from the usual environment of each system, such as " +
			"PGPASSWORD"}
	}
	for name := range u.Query() {
		if secret.LikelyName(name) {
			return &secretInFileError{fmt.Sprintf("a URL with %s is visible to everybody who can read it. "+
				"Remove that; castle takes credentials from the usual environment of each system", name)}
		}
	}
	i := slices.Index(names, u.Scheme)
	switch {
	case i < 0:
		return fmt.Errorf("%q has an unknown scheme. %s", text, all)
	case u.Scheme == "file" && (u.Host != "" || len(u.Path) < 2):
		return fmt.Errorf("%q names no folder. Write %s, with three slashes", text, examples[i])
	case u.Scheme != "file" && u.Scheme != "postgres" && u.Host == "": // PGHOST may name the host
		return fmt.Errorf("%q is not complete. Write %s", text, examples[i])
	}
	return nil
}

// checkRecipient returns why a text is no recipient of age.
func checkRecipient(text string) error {
	if strings.HasPrefix(strings.ToUpper(text), "AGE-SECRET-KEY-") {
		return &secretInFileError{"this is an identity, which is secret. Write its recipient, the public " +
			"key age1… that age-keygen -y prints, and make a new identity: everybody who could read the " +
			"file has it"}
	}
	if found, err := age.ParseRecipients(strings.NewReader(text)); err != nil || len(found) != 1 {
		return fmt.Errorf("%q is no public key of age. Write one that age-keygen prints: age1…", text)
	}
	return nil
}
