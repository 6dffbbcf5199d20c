package main

import (
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"reflect"
	"strings"
	"testing"

	"github.com/ephemeral-castle/castle/lab/internal/providers"
	"github.com/ephemeral-castle/castle/lab/internal/providers/plugin"
)

// facts are the recorded properties of a real provider's schemas.
type facts struct {
	Version   string
	Provider  schemaFacts
	Resources map[string]schemaFacts `json:"resource_schemas"`
	Data      map[string]schemaFacts `json:"data_source_schemas"`
}

type schemaFacts struct {
	Version int64
	Block   blockFacts
}

type blockFacts struct {
	Attributes map[string]attributeFacts
	BlockTypes map[string]struct {
		Block       blockFacts
		NestingMode string `json:"nesting_mode"`
		MinItems    int64  `json:"min_items"`
		MaxItems    int64  `json:"max_items"`
	} `json:"block_types"`
}

type attributeFacts struct {
	Type       any
	NestedType *struct {
		Attributes  map[string]attributeFacts
		NestingMode string `json:"nesting_mode"`
	} `json:"nested_type"`
	Required, Optional, Computed, Sensitive, Deprecated bool
	WriteOnly                                           bool `json:"write_only"`
}

// TestStandInsMatchTheRealSchemas compares the schemas of the stand-ins with those of the real
// providers. A stand-in may omit optional attributes. The facts are the output of "terraform providers
// schema -json" for the pinned versions, without descriptions and with the types that the stages use.
func TestStandInsMatchTheRealSchemas(t *testing.T) {
	folder := filepath.Join("..", "..", "schemas")
	for _, p := range providers.Providers() {
		t.Run(p.Type, func(t *testing.T) {
			content, err := os.ReadFile(filepath.Join(folder, strings.ReplaceAll(p.Source, "/", "-")+".json"))
			if err != nil {
				t.Fatal(err)
			}
			var real facts
			if err := json.Unmarshal(content, &real); err != nil {
				t.Fatal(err)
			}
			if real.Version != p.Version {
				t.Errorf("the stand-in calls itself %s, the facts are of %s", p.Version, real.Version)
			}
			own := implementations()[p.Type]()
			compareBlock(t, "provider", own.Schema, real.Provider.Block)
			if len(own.Resources)+len(own.Data) == 0 {
				t.Error("the stand-in has no types")
			}
			for name, r := range own.Resources {
				fact, ok := real.Resources[name]
				if !ok || fact.Version != r.Version {
					t.Errorf("resource %s: schema version %d, known %t, really %d", name, r.Version, ok,
						fact.Version)
				}
				compareBlock(t, name, r.Schema, fact.Block)
			}
			for name, d := range own.Data {
				fact, ok := real.Data[name]
				if !ok {
					t.Errorf("there is no data source %s", name)
				}
				compareBlock(t, "data."+name, d.Schema, fact.Block)
			}
		})
	}
}

func compareBlock(t *testing.T, at string, own plugin.Block, real blockFacts) {
	t.Helper()
	compareAttributes(t, at, own.Attributes, real.Attributes)
	for name, n := range own.Blocks {
		fact, ok := real.BlockTypes[name]
		if !ok {
			t.Errorf("%s.%s: there is no such block", at, name)
			continue
		}
		if mode(n.Mode) != fact.NestingMode || n.Min != fact.MinItems || n.Max != fact.MaxItems {
			t.Errorf("%s.%s: block %s %d..%d, really %s %d..%d", at, name, mode(n.Mode), n.Min, n.Max,
				fact.NestingMode, fact.MinItems, fact.MaxItems)
		}
		compareBlock(t, at+"."+name, n.Block, fact.Block)
	}
	for name, fact := range real.BlockTypes {
		if _, ok := own.Blocks[name]; !ok && fact.MinItems > 0 {
			t.Errorf("%s.%s: the required block is missing", at, name)
		}
	}
}

func compareAttributes(t *testing.T, at string, own map[string]plugin.Attribute,
	real map[string]attributeFacts) {
	t.Helper()
	for name, a := range own {
		fact, ok := real[name]
		if !ok {
			t.Errorf("%s.%s: there is no such attribute", at, name)
			continue
		}
		if is, really := flags(a), factFlags(fact); is != really {
			t.Errorf("%s.%s: %s, really %s", at, name, is, really)
		}
		if (a.Nested == nil) != (fact.NestedType == nil) {
			t.Errorf("%s.%s: nested %t, really %t", at, name, a.Nested != nil, fact.NestedType != nil)
			continue
		}
		if a.Nested != nil {
			if mode(a.Nested.Mode) != fact.NestedType.NestingMode {
				t.Errorf("%s.%s: nesting %s, really %s", at, name, mode(a.Nested.Mode),
					fact.NestedType.NestingMode)
			}
			compareAttributes(t, at+"."+name, a.Nested.Attributes, fact.NestedType.Attributes)
			continue
		}
		encoded, err := json.Marshal(a.Type)
		if err != nil {
			t.Fatal(err)
		}
		var is any
		if err := json.Unmarshal(encoded, &is); err != nil {
			t.Fatal(err)
		}
		if !reflect.DeepEqual(is, fact.Type) {
			t.Errorf("%s.%s: type %s, really %v", at, name, encoded, fact.Type)
		}
	}
	for name, fact := range real {
		if _, ok := own[name]; !ok && fact.Required {
			t.Errorf("%s.%s: the required attribute is missing", at, name)
		}
	}
}

func flags(a plugin.Attribute) string {
	return fmt.Sprintf("required=%t optional=%t computed=%t sensitive=%t write-only=%t deprecated=%t",
		a.Required, a.Optional, a.Computed, a.Sensitive, a.WriteOnly, a.Deprecated)
}

func factFlags(a attributeFacts) string {
	return fmt.Sprintf("required=%t optional=%t computed=%t sensitive=%t write-only=%t deprecated=%t",
		a.Required, a.Optional, a.Computed, a.Sensitive, a.WriteOnly, a.Deprecated)
}

func mode(m plugin.Mode) string {
	return map[plugin.Mode]string{plugin.Single: "single", plugin.List: "list", plugin.Set: "set",
		plugin.Map: "map"}[m]
}
