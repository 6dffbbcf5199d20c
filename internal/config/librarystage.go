package config

import (
	"encoding/json"
	"io/fs"
	"maps"
	"path"
	"slices"
	"strings"

	"github.com/hashicorp/hcl/v2"
	"github.com/siderolabs/gen/xslices"
	ctyjson "github.com/zclconf/go-cty/cty/json"

	"github.com/ephemeral-castle/castle/internal/module"
	"github.com/ephemeral-castle/castle/internal/providers"
	"github.com/ephemeral-castle/castle/internal/syntax"
)

// LibraryStage is a stage as its folder describes it. `castle stage` prints it as JSON.
type LibraryStage struct {
	Source  string `json:"source"` // networking/metallb
	Layer   string `json:"layer"`
	Summary string `json:"summary"`
	// Origin is "embedded", or the repository's folder; Shadows: it replaces an embedded stage.
	Origin      string `json:"origin"`
	Shadows     bool   `json:"shadows"`
	EndsCluster bool   `json:"ends_cluster"`
	Persistent  bool   `json:"persistent"`
	Volatile    bool   `json:"volatile"`

	Needs      []string          `json:"needs"` // layers
	Inputs     []LibraryInput    `json:"inputs"`
	Outputs    []module.Output   `json:"outputs"`
	Providers  []LibraryProvider `json:"providers"`
	Preflights []LibraryCheck    `json:"preflights"`
	Adopts     []LibraryAdopt    `json:"adopts"`
	Replaces   []LibraryReplace  `json:"replaces"`
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
	Why       string            `json:"reason"` // the comment above it in stage.hcl
	Needs     []string          `json:"needs"`  // layers: castle waits for it only after them
	Arguments map[string]string `json:"arguments"`
}

// LibraryAdopt is an object that a stage takes over if it exists.
type LibraryAdopt struct {
	Address string `json:"address"`
	ID      string `json:"id"`
}

// LibraryReplace is a resource whose instances castle replaces with what they configure.
type LibraryReplace struct {
	Address  string `json:"address"`
	Instance string `json:"instance"` // the expression of what changes with that, by key
}

// ReadLibrary describes every stage there is, by layer and inside a layer by
// name: those of o.Library, and those of o.Repository, which may be empty.
func ReadLibrary(o Options) []*LibraryStage {
	l := newLibrary(o, map[string]*hcl.File{})
	proves := make(map[string]string)
	for _, t := range o.Gates {
		proves["gate "+t.Name] = t.Summary
	}
	for _, t := range o.Preflights {
		proves["preflight "+t.Name] = t.Summary
	}
	all := xslices.Map(l.sources(), func(source string) *LibraryStage {
		return l.describe(l.definition(source), proves)
	})
	byLayer := func(a, b *LibraryStage) int { return layerIndex(a.Layer) - layerIndex(b.Layer) }
	slices.SortStableFunc(all, byLayer)
	return all
}

// describe needs the summaries of the types of gates and preflights.
func (l *library) describe(d *definition, proves map[string]string) *LibraryStage {
	of := &d.stage
	s := &LibraryStage{
		Source: of.Source, Layer: of.Layer, Summary: of.Summary, Origin: of.Origin,
		EndsCluster: of.EndsCluster, Persistent: of.Persistent, Volatile: of.Volatile,
		Needs: layerNames(d.settings.needs), Inputs: []LibraryInput{}, Outputs: []module.Output{},
		Providers: []LibraryProvider{}, Adopts: []LibraryAdopt{}, Replaces: []LibraryReplace{},
		Files:      []string{},
		Preflights: l.checks(d, d.preflights, proves), Gates: l.checks(d, d.gates, proves),
		Folder: of.Module, Problems: syntax.InOrder(syntax.Distinct(d.diags.Diagnostics)),
	}
	_, err := fs.Stat(l.embedded, of.Source)
	s.Shadows = err == nil && of.Origin != "embedded"
	for _, name := range slices.Sorted(maps.Keys(of.Variables)) {
		s.Inputs = append(s.Inputs, l.input(d, of.Variables[name]))
	}
	for _, name := range slices.Sorted(maps.Keys(of.Outputs)) {
		s.Outputs = append(s.Outputs, of.Outputs[name])
	}
	for _, name := range slices.Sorted(maps.Keys(of.Providers)) {
		source := of.Providers[name]
		s.Providers = append(s.Providers, LibraryProvider{providers.Short(source), d.versions[name],
			slices.Contains(of.InCluster, source)})
	}
	for _, b := range d.adopts {
		s.Adopts = append(s.Adopts, LibraryAdopt{b.labels[0], l.arguments(d, b)["id"]})
	}
	for _, b := range d.replaces {
		s.Replaces = append(s.Replaces, LibraryReplace{b.labels[0], l.arguments(d, b)["instance"]})
	}
	// unreadable files are among the problems
	_ = fs.WalkDir(of.Module, ".", func(name string, e fs.DirEntry, err error) error {
		if err == nil && !e.IsDir() {
			s.Files = append(s.Files, name)
		}
		return nil
	})
	return s
}

func (l *library) input(d *definition, v module.Variable) LibraryInput {
	in := LibraryInput{
		Name: v.Name, Type: syntax.TypeText(v.Constraint()), Description: v.Description,
		Sensitive: v.Sensitive, Required: v.Required, From: []string{},
	}
	if fallback, has := v.Default(); has && !v.Sensitive && fallback.IsWhollyKnown() {
		if data, err := json.Marshal(ctyjson.SimpleJSONValue{Value: fallback}); err == nil {
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
			if source != d.stage.Source && !slices.Contains(in.From, source) {
				in.From = append(in.From, source)
			}
		}
	}
	return in
}

// checks describes gates or preflights.
func (l *library) checks(d *definition, blocks []*block, proves map[string]string) []LibraryCheck {
	checks := []LibraryCheck{}
	for _, b := range blocks {
		checks = append(checks, LibraryCheck{Name: b.key(), Proves: proves[b.kind+" "+b.labels[0]],
			Why: l.comment(d, b.at), Needs: layerNames(b.needs), Arguments: l.arguments(d, b)})
	}
	return checks
}

// arguments are those of a block, as they stand in stage.hcl.
func (l *library) arguments(d *definition, b *block) map[string]string {
	all := map[string]string{}
	for name, arg := range b.args {
		if arg != nil {
			all[name] = l.text(d, arg.Expr)
		}
	}
	return all
}

// text is an expression as it stands in stage.hcl.
func (l *library) text(d *definition, expr hcl.Expression) string {
	return string(expr.Range().SliceBytes(l.files[d.file].Bytes))
}

// comment returns the author's comment in the lines right above a block.
func (l *library) comment(d *definition, at hcl.Range) string {
	var found []string
	lines := strings.Split(string(l.files[d.file].Bytes), "\n")
	for _, line := range slices.Backward(lines[:at.Start.Line-1]) {
		text, ok := strings.CutPrefix(strings.TrimSpace(line), "#")
		if !ok {
			break
		}
		found = append(found, strings.TrimSpace(text))
	}
	slices.Reverse(found)
	return strings.Join(found, " ")
}

func layerNames(needs []layerName) []string {
	return append([]string{}, xslices.Map(needs, func(n layerName) string { return n.name })...)
}

// Name is the stage's name without its layer.
func (s *LibraryStage) Name() string { return path.Base(s.Source) }
