package event_test

import (
	"cmp"
	"encoding/json"
	"go/ast"
	"go/parser"
	"go/token"
	"os"
	"reflect"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/ephemeral-castle/castle/internal/cluster"
	"github.com/ephemeral-castle/castle/internal/event"
	"github.com/ephemeral-castle/castle/internal/operation/plan"
	"github.com/ephemeral-castle/castle/internal/operation/rollout"
	"github.com/ephemeral-castle/castle/internal/run/review"
	"github.com/ephemeral-castle/castle/internal/run/unrecorded"
)

// The published schemas. CASTLE_UPDATE_SCRIPTS=1 writes them.
const (
	schemaPath     = "../../docs/events.schema.json"
	planSchemaPath = "../../docs/plan.schema.json"
)

// The version of a schema rises when a kind, a field or a value is removed or changes its meaning, and only
// then.
const (
	schemaVersion     = 1
	planSchemaVersion = 1
)

// kindFields are the fields of each kind: those that it always has, and after a bar those that it may have.
// Each event has time and kind, and each event of a run its id.
var kindFields = map[event.Kind]string{
	event.RunStarted:         "text by command",
	event.Reviewed:           "text reviewed",
	event.StagesSelected:     "selection",
	event.StageDrifted:       "layer stage text",
	event.StageStarted:       "layer stage",
	event.StepStarted:        "layer stage step | total",
	event.StepEnded:          "layer stage step seconds | text",
	event.ResourceStarted:    "layer stage address action | total",
	event.Resource:           "layer stage address action text | seconds",
	event.Retry:              "layer stage text seconds | step",
	event.GateClosed:         "layer stage gate text | timeout_seconds cause",
	event.ReconcileTriggered: "layer stage gate text",
	event.GateOpen:           "layer stage gate | seconds",
	event.GateFailed:         "layer stage gate text",
	event.FluxConverged:      "layer stage gate flux",
	event.StageReady:         "layer stage seconds",
	event.StageUpToDate:      "layer stage seconds",
	event.StageGone:          "layer stage | text",
	event.StageFailed:        "layer stage text",
	event.StageStopped:       "layer stage",
	event.Diagnosed:          "layer stage diagnosis | gate",
	event.StageSkipped:       "layer stage text",
	event.MachineStarted:     "layer machine action text total",
	event.MachineProgress:    "layer machine action text | step",
	event.MachineReady:       "layer machine action seconds",
	event.MachineFailed:      "layer machine action text seconds",
	event.Notice:             "text",
	event.Receipted:          "text receipt",
	event.Interrupted:        "text interruption",
	event.Waiting:            "text interruption",
	event.RunEnded:           "text seconds ending",
	event.ConfigError:        "text | file line",
	event.WaveApproved:       "wave by digest",
	event.WaveStarted:        "wave text",
	event.ClusterStarted:     "wave cluster",
	event.ClusterEnded:       "wave cluster seconds ending | text digest",
	event.ClusterSkipped:     "wave cluster text",
	event.WaveEnded:          "wave text",
}

func TestTheSchemasAreThoseOfTheTypes(t *testing.T) {
	for path, one := range map[string]object{schemaPath: schema(t), planSchemaPath: planSchema(t)} {
		text, err := json.MarshalIndent(one, "", "  ")
		if err != nil {
			t.Fatal(err)
		}
		text = append(text, '\n')
		if os.Getenv("CASTLE_UPDATE_SCRIPTS") != "" {
			if err := os.WriteFile(path, text, 0o644); err != nil {
				t.Fatal(err)
			}
		}
		published, err := os.ReadFile(path)
		if err != nil || string(published) != string(text) {
			t.Errorf("%s differs from the types (%v): "+
				"CASTLE_UPDATE_SCRIPTS=1 go test ./internal/event writes it", path, err)
		}
	}
}

// planSchema is the JSON Schema of the document that `castle plan -o json` prints.
func planSchema(t *testing.T) object {
	d := newDescriptions(t, map[string]string{"RunOK": event.RunOK}, []reflect.Type{
		reflect.TypeFor[plan.Plan](), reflect.TypeFor[plan.Stage](), reflect.TypeFor[plan.Total](),
		reflect.TypeFor[plan.CodeChange](), reflect.TypeFor[plan.SavedPlan](),
		reflect.TypeFor[review.Change](), reflect.TypeFor[review.Drift](),
		reflect.TypeFor[unrecorded.Found](), reflect.TypeFor[cluster.Unlisted](),
		reflect.TypeFor[rollout.List](), reflect.TypeFor[rollout.Step]()},
		"../operation/plan/plan.go", "../run/review/changes.go", "../run/unrecorded/unrecorded.go",
		"../cluster/recorded.go", "../operation/rollout/step.go",
		"../operation/rollout/rollout.go")
	definitions := object{}
	all := d.structure(reflect.TypeFor[plan.Plan](), definitions)
	all["$schema"] = "https://json-schema.org/draft/2020-12/schema"
	all["$id"] = "urn:castle:plan:" + strconv.Itoa(planSchemaVersion)
	all["version"] = planSchemaVersion
	all["title"] = "A plan of castle"
	all["$comment"] = "Within a version, fields and values are added, and none is changed or removed. " +
		"Programs ignore those that they do not know. See plans.md."
	all["$defs"] = definitions
	return all
}

// object is a JSON object.
type object = map[string]any

// schema is the JSON Schema of an event.
func schema(t *testing.T) object {
	d := newDescriptions(t, map[string]string{"RunOK": event.RunOK},
		[]reflect.Type{reflect.TypeFor[event.Event]()}, "event.go")
	definitions := object{}
	all := d.structure(reflect.TypeFor[event.Event](), definitions)
	var kinds []object
	for _, kind := range d.values["Kind"] {
		fields, known := kindFields[event.Kind(kind.value)]
		if !known {
			t.Errorf("the kind %s is not in the table of its fields", kind.value)
		}
		always, optional, _ := strings.Cut(fields, "|")
		required := strings.Fields(always)
		if kind.value != string(event.ConfigError) {
			required = slices.Insert(required, 0, "run")
		}
		properties := object{"time": true, "kind": true, "wave": true, "cluster": true} // see events.md
		for _, name := range slices.Concat(required, strings.Fields(optional)) {
			if _, exists := all["properties"].(object)[name]; !exists {
				t.Errorf("%s: an event has no field %s", kind.value, name)
			}
			properties[name] = true
		}
		then := object{"properties": properties, "required": required}
		is := object{"properties": object{"kind": object{"const": kind.value}}}
		one := object{"if": is, "then": then}
		if kind.comment != "" {
			one["description"] = d.inJSON(kind.comment)
		}
		kinds = append(kinds, one)
	}
	if len(kinds) != len(kindFields) {
		t.Errorf("%d kinds, and %d have fields", len(kinds), len(kindFields))
	}
	all["$schema"] = "https://json-schema.org/draft/2020-12/schema"
	all["$id"] = "urn:castle:events:" + strconv.Itoa(schemaVersion)
	all["version"] = schemaVersion
	all["title"] = "An event of castle"
	all["$comment"] = "Within a version, kinds, fields and values are added, and none is changed or " +
		"removed. Programs ignore those that they do not know. See events.md."
	all["$defs"], all["allOf"] = definitions, kinds
	return all
}

// structure is the schema of a struct type. It adds those of other structs to definitions.
func (d *descriptions) structure(of reflect.Type, definitions object) object {
	properties, required := object{}, []string{}
	for i := range of.NumField() {
		f := of.Field(i)
		name, options, _ := strings.Cut(f.Tag.Get("json"), ",")
		if !f.IsExported() || name == "-" {
			continue
		}
		if options != "omitempty" {
			required = append(required, name)
		}
		property := d.typed(f.Type, definitions)
		if kind, simple := property["type"]; simple && f.Type.Kind() == reflect.Pointer && options == "" {
			property["type"] = []any{kind, "null"}
		}
		if comment := d.comments[of.Name()+"."+f.Name]; comment != "" {
			property["description"] = d.inJSON(comment)
		}
		properties[name] = property
	}
	s := object{"type": "object", "properties": properties, "required": required}
	if comment := d.comments[of.Name()]; comment != "" {
		s["description"] = comment
	}
	return s
}

// typed is the schema of a value of a type.
func (d *descriptions) typed(of reflect.Type, definitions object) object {
	if of == reflect.TypeFor[time.Time]() {
		return object{"type": "string", "format": "date-time"}
	}
	switch of.Kind() {
	case reflect.Pointer:
		return d.typed(of.Elem(), definitions)
	case reflect.Struct:
		if definitions[of.Name()] == nil {
			definitions[of.Name()] = d.structure(of, definitions)
		}
		return object{"$ref": "#/$defs/" + of.Name()}
	case reflect.Slice:
		return object{"type": "array", "items": d.typed(of.Elem(), definitions)}
	case reflect.Map:
		return object{"type": "object", "propertyNames": d.typed(of.Key(), definitions),
			"additionalProperties": d.typed(of.Elem(), definitions)}
	case reflect.Int, reflect.Int64:
		return object{"type": "integer"}
	case reflect.Float64:
		return object{"type": "number"}
	case reflect.Bool:
		return object{"type": "boolean"}
	case reflect.String:
		var values []string
		for _, v := range d.values[of.Name()] {
			values = append(values, v.value)
		}
		if values == nil {
			return object{"type": "string"}
		}
		return object{"type": "string", "enum": values}
	}
	panic("an event cannot hold a " + of.String())
}

// descriptions are what the source says of the package's types.
type descriptions struct {
	comments map[string]string     // by the name of a type, or of a type and its field
	names    map[string]string     // what JSON calls an event's field, or a constant
	values   map[string][]constant // the constants of a type, in their order
}

type constant struct{ value, comment string }

// newDescriptions reads the comments in files. Those name constants, and fields of types, as Go does.
func newDescriptions(t *testing.T, constants map[string]string, types []reflect.Type,
	files ...string) *descriptions {
	t.Helper()
	d := &descriptions{comments: map[string]string{}, values: map[string][]constant{}, names: constants}
	for _, of := range types {
		for i := range of.NumField() {
			f := of.Field(i)
			d.names[f.Name], _, _ = strings.Cut(f.Tag.Get("json"), ",")
		}
	}
	for _, name := range files {
		file, err := parser.ParseFile(token.NewFileSet(), name, nil, parser.ParseComments)
		if err != nil {
			t.Fatal(err)
		}
		for _, decl := range file.Decls {
			general, is := decl.(*ast.GenDecl)
			if !is {
				continue
			}
			for _, spec := range general.Specs {
				switch s := spec.(type) {
				case *ast.TypeSpec:
					d.addType(s, general.Doc)
				case *ast.ValueSpec:
					d.addConstant(t, s)
				}
			}
		}
	}
	return d
}

func (d *descriptions) addType(s *ast.TypeSpec, doc *ast.CommentGroup) {
	d.comments[s.Name.Name] = sentence(doc, s.Doc)
	body, is := s.Type.(*ast.StructType)
	if !is {
		return
	}
	for _, f := range body.Fields.List {
		for _, name := range f.Names {
			d.comments[s.Name.Name+"."+name.Name] = sentence(f.Doc, f.Comment)
		}
	}
}

func (d *descriptions) addConstant(t *testing.T, s *ast.ValueSpec) {
	of, typed := s.Type.(*ast.Ident)
	if !typed {
		return
	}
	value, err := strconv.Unquote(s.Values[0].(*ast.BasicLit).Value)
	if err != nil {
		t.Fatal(err)
	}
	d.names[s.Names[0].Name] = value
	d.values[of.Name] = append(d.values[of.Name], constant{value, sentence(s.Doc, s.Comment)})
}

// word is a name of Go in a comment.
var word = regexp.MustCompile(`\b[A-Z][A-Za-z]+\b`)

// inJSON is a comment with the names that JSON has.
func (d *descriptions) inJSON(comment string) string {
	return word.ReplaceAllStringFunc(comment, func(name string) string { return cmp.Or(d.names[name], name) })
}

// sentence is the first comment of these that there is, in one line.
func sentence(comments ...*ast.CommentGroup) string {
	for _, c := range comments {
		if text := strings.Join(strings.Fields(c.Text()), " "); text != "" {
			return text
		}
	}
	return ""
}
