package config

import (
	"encoding/json"
	"io/fs"
	"maps"
	"path"
	"slices"
	"strings"

	"github.com/hashicorp/hcl/v2"
	"github.com/hashicorp/hcl/v2/ext/typeexpr"
	"github.com/zclconf/go-cty/cty"
	ctyjson "github.com/zclconf/go-cty/cty/json"

	"github.com/ephemeral-castle/castle/internal/gate"
)

// LibraryStage is a stage as its folder describes it. `castle stage` prints it as JSON.
type LibraryStage struct {
	Source  string `json:"source"` // networking/metallb
	Layer   string `json:"layer"`
	Summary string `json:"summary"`
	// Origin is "embedded", or the repository's folder; Shadows reports whether this replaces an embedded
	// stage of the same name.
	Origin      string `json:"origin"`
	Shadows     bool   `json:"shadows"`
	EndsCluster bool   `json:"ends_cluster"`
	Persistent  bool   `json:"persistent"`
	Volatile    bool   `json:"volatile"`

	Needs      []string          `json:"needs"` // layers
	Inputs     []LibraryInput    `json:"inputs"`
	Outputs    []LibraryOutput   `json:"outputs"`
	Providers  []LibraryProvider `json:"providers"`
	Preflights []LibraryCheck    `json:"preflights"`
	Adopts     []LibraryAdopt    `json:"adopts"`
	Gates      []LibraryCheck    `json:"gates"`
	Files      []string          `json:"files"` // paths below its folder

	Folder   fs.FS           `json:"-"` // holds Files
	Problems hcl.Diagnostics `json:"-"`
}

// LibraryInput is a variable of a stage and where its value comes from.
type LibraryInput struct {
	Name        string          `json:"name"`
	Type        string          `json:"type"`
	Description string          `json:"description"`
	Sensitive   bool            `json:"sensitive"`
	Required    bool            `json:"required"`          // it has no default
	Default     json.RawMessage `json:"default,omitempty"` // left out if sensitive
	// Wired is the expression of stage.hcl that sets it; empty: the user does.
	Wired string   `json:"wired,omitempty"`
	From  []string `json:"from"` // the stages that have the outputs which Wired reads
}

// LibraryOutput is an output of a stage.
type LibraryOutput struct {
	Name        string `json:"name"`
	Description string `json:"description"`
	Sensitive   bool   `json:"sensitive"`
}

// LibraryProvider is a provider that a stage requires.
type LibraryProvider struct {
	Source   string `json:"source"`
	Versions string `json:"versions"`
	Wired    bool   `json:"wired"` // castle configures it for the cluster
}

// LibraryCheck is a gate or preflight of a stage.
type LibraryCheck struct {
	Name      string            `json:"name"`   // workload.speaker
	Proves    string            `json:"proves"` // what is true when it is open
	Why       string            `json:"why"`    // the comment above it in stage.hcl
	Needs     []string          `json:"needs"`  // layers: castle waits for it only after them
	Arguments map[string]string `json:"arguments"`
}

// LibraryAdopt is an object that a stage takes over if it exists.
type LibraryAdopt struct {
	Address string `json:"address"`
	ID      string `json:"id"`
}

// ReadLibrary describes every stage there is, by layer and inside a layer by
// name: those of o.Library, and those of o.Repository, which may be empty.
func ReadLibrary(o Options) []*LibraryStage {
	l := newLibrary(o, map[string]*hcl.File{})
	var all []*LibraryStage
	for _, source := range l.sources() {
		all = append(all, l.describe(l.definition(source), o))
	}
	byLayer := func(a, b *LibraryStage) int { return layerIndex(a.Layer) - layerIndex(b.Layer) }
	slices.SortStableFunc(all, byLayer)
	return all
}

func (l *library) describe(d *definition, o Options) *LibraryStage {
	s := &LibraryStage{
		Source: d.source, Layer: d.layer, Summary: d.stage.Summary, Origin: d.origin,
		Shadows:     d.origin != "embedded" && l.embeds(d.source),
		EndsCluster: d.stage.EndsCluster, Persistent: d.stage.Persistent, Volatile: d.stage.Volatile,
		Needs: layerNames(d.settings.needs), Inputs: []LibraryInput{}, Outputs: []LibraryOutput{},
		Providers:  []LibraryProvider{},
		Preflights: []LibraryCheck{}, Adopts: []LibraryAdopt{}, Gates: []LibraryCheck{}, Files: []string{},
		Folder: d.module, Problems: inOrder(distinct(d.diags)),
	}
	for _, name := range slices.Sorted(maps.Keys(d.variables)) {
		s.Inputs = append(s.Inputs, l.input(d, d.variables[name]))
	}
	for _, name := range slices.Sorted(maps.Keys(d.outputs)) {
		o := d.outputs[name]
		s.Outputs = append(s.Outputs, LibraryOutput{name, o.Description, o.Sensitive})
	}
	for _, name := range slices.Sorted(maps.Keys(d.providers)) {
		source := strings.TrimPrefix(d.providers[name], "registry.terraform.io/")
		wired := slices.Contains(d.inCluster, d.providers[name])
		s.Providers = append(s.Providers, LibraryProvider{source, d.versions[name], wired})
	}
	for _, b := range d.gates {
		i := slices.IndexFunc(o.Gates, func(t gate.Type) bool { return t.Name == b.labels[0] })
		s.Gates = append(s.Gates, l.check(d, b))
		if i >= 0 {
			s.Gates[len(s.Gates)-1].Proves = o.Gates[i].Summary
		}
	}
	for _, b := range d.preflights {
		i := slices.IndexFunc(o.Preflights, func(t gate.PreflightType) bool { return t.Name == b.labels[0] })
		s.Preflights = append(s.Preflights, l.check(d, b))
		if i >= 0 {
			s.Preflights[len(s.Preflights)-1].Proves = o.Preflights[i].Summary
		}
	}
	for _, b := range d.adopts {
		s.Adopts = append(s.Adopts, LibraryAdopt{b.labels[0], l.text(d, b.args["id"])})
	}
	// unreadable files are among the problems
	_ = fs.WalkDir(d.module, ".", func(name string, e fs.DirEntry, err error) error {
		if err == nil && !e.IsDir() {
			s.Files = append(s.Files, name)
		}
		return nil
	})
	return s
}

// embeds reports whether the binary has a stage of this name.
func (l *library) embeds(source string) bool {
	if l.embedded == nil {
		return false
	}
	_, err := fs.Stat(l.embedded, source)
	return err == nil
}

func (l *library) input(d *definition, v Variable) LibraryInput {
	in := LibraryInput{
		Name: v.Name, Type: typeText(v.constraint.ty), Description: v.Description, Sensitive: v.Sensitive,
		Required: v.Required, From: []string{},
	}
	if !v.Required && !v.Sensitive && v.fallback.IsWhollyKnown() {
		if data, err := json.Marshal(ctyjson.SimpleJSONValue{Value: v.fallback}); err == nil {
			in.Default = data
		}
	}
	wired, ok := d.settings.inputs[v.Name]
	if !ok {
		return in
	}
	in.Wired = l.text(d, wired.expr)
	for _, r := range references(wired.expr) {
		for _, source := range l.provides(r.root, r.name) {
			if source != d.source && !slices.Contains(in.From, source) {
				in.From = append(in.From, source)
			}
		}
	}
	return in
}

func (l *library) check(d *definition, b *block) LibraryCheck {
	c := LibraryCheck{Name: b.key(), Why: l.comment(d, b.at), Needs: layerNames(b.needs),
		Arguments: map[string]string{}}
	for name, expr := range b.args {
		c.Arguments[name] = l.text(d, expr)
	}
	return c
}

// text is an expression as it stands in stage.hcl.
func (l *library) text(d *definition, expr hcl.Expression) string {
	f := l.files[d.file]
	if f == nil || expr == nil {
		return ""
	}
	return string(expr.Range().SliceBytes(f.Bytes))
}

// comment returns the author's comment in the lines right above a block.
func (l *library) comment(d *definition, at hcl.Range) string {
	f := l.files[d.file]
	if f == nil {
		return ""
	}
	lines := strings.Split(string(f.Bytes), "\n")
	var found []string
	for i := at.Start.Line - 2; i >= 0; i-- {
		text, ok := strings.CutPrefix(strings.TrimSpace(lines[i]), "#")
		if !ok {
			break
		}
		found = append([]string{strings.TrimSpace(text)}, found...)
	}
	return strings.Join(found, " ")
}

// typeText writes a type as it stands in Terraform, optional attributes included.
func typeText(t cty.Type) string {
	switch {
	case t.IsListType():
		return "list(" + typeText(t.ElementType()) + ")"
	case t.IsSetType():
		return "set(" + typeText(t.ElementType()) + ")"
	case t.IsMapType():
		return "map(" + typeText(t.ElementType()) + ")"
	case t.IsTupleType():
		var elements []string
		for _, e := range t.TupleElementTypes() {
			elements = append(elements, typeText(e))
		}
		return "tuple([" + strings.Join(elements, ", ") + "])"
	case t.IsObjectType():
		attributes := t.AttributeTypes()
		var fields []string
		for _, name := range slices.Sorted(maps.Keys(attributes)) {
			field := typeText(attributes[name])
			if t.AttributeOptional(name) {
				field = "optional(" + field + ")"
			}
			fields = append(fields, name+" = "+field)
		}
		return "object({ " + strings.Join(fields, ", ") + " })"
	}
	return typeexpr.TypeString(t)
}

func layerNames(needs []layerName) []string {
	names := []string{}
	for _, n := range needs {
		names = append(names, n.name)
	}
	return names
}

// Name is the stage's name without its layer.
func (s *LibraryStage) Name() string { return path.Base(s.Source) }
