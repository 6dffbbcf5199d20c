package stages_test

import (
	"io/fs"
	"maps"
	"path"
	"slices"
	"testing"

	"github.com/hashicorp/hcl/v2"
	"github.com/hashicorp/hcl/v2/hclsyntax"

	"github.com/ephemeral-castle/castle/stages"
)

// Terraform refuses two variables whose validations read each other. castle check finds them in the stages of
// a cluster alone.
func TestValidationsOfVariablesHaveNoCycle(t *testing.T) {
	for _, stage := range all(t) {
		reads := map[string][]string{}
		files, err := fs.Glob(stages.Library, stage+"/*.tf")
		if err != nil {
			t.Fatal(err)
		}
		for _, name := range files {
			maps.Copy(reads, validations(t, name))
		}
		for name := range reads {
			seen := map[string]bool{}
			var reach func(string)
			reach = func(from string) {
				for _, next := range reads[from] {
					if !seen[next] {
						seen[next] = true
						reach(next)
					}
				}
			}
			if reach(name); seen[name] {
				t.Errorf("%s: validations of %s read variables whose validations read it: %v", stage, name,
					slices.Sorted(maps.Keys(seen)))
			}
		}
	}
}

// validations lists which other variables the validations of a file's variables read.
func validations(t *testing.T, name string) map[string][]string {
	t.Helper()
	content, err := fs.ReadFile(stages.Library, name)
	if err != nil {
		t.Fatal(err)
	}
	file, problems := hclsyntax.ParseConfig(content, path.Base(name), hcl.InitialPos)
	if problems.HasErrors() {
		t.Fatal(problems)
	}
	reads := map[string][]string{}
	for _, v := range file.Body.(*hclsyntax.Body).Blocks {
		for _, b := range v.Body.Blocks {
			if v.Type != "variable" || b.Type != "validation" {
				continue
			}
			for _, expr := range b.Body.Attributes {
				for _, traversal := range expr.Expr.Variables() {
					if other, is := traversal[min(1, len(traversal)-1)].(hcl.TraverseAttr); is &&
						traversal.RootName() == "var" && other.Name != v.Labels[0] {
						reads[v.Labels[0]] = append(reads[v.Labels[0]], other.Name)
					}
				}
			}
		}
	}
	return reads
}
