package syntax

import (
	"crypto/sha256"
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"unicode/utf8"

	"github.com/hashicorp/hcl/v2/ext/typeexpr"
	"github.com/zclconf/go-cty/cty"
	"github.com/zclconf/go-cty/cty/function"
	"github.com/zclconf/go-cty/cty/function/stdlib"
)

// Functions returns the functions of expressions. It leaves out those whose errors quote their argument, such
// as parseint and jsondecode: it may be a secret.
func Functions() map[string]function.Function { return functions() }

// Each expression needs them.
var functions = sync.OnceValue(func() map[string]function.Function {
	return map[string]function.Function{
		// numbers
		"abs": stdlib.AbsoluteFunc, "ceil": stdlib.CeilFunc, "floor": stdlib.FloorFunc,
		"max": stdlib.MaxFunc, "min": stdlib.MinFunc,
		// strings
		"chomp": stdlib.ChompFunc, "format": stdlib.FormatFunc, "formatlist": stdlib.FormatListFunc,
		"indent": stdlib.IndentFunc, "join": stdlib.JoinFunc, "lower": stdlib.LowerFunc,
		"replace": stdlib.ReplaceFunc, "split": stdlib.SplitFunc, "substr": stdlib.SubstrFunc,
		"title": stdlib.TitleFunc, "trim": stdlib.TrimFunc, "trimprefix": stdlib.TrimPrefixFunc,
		"trimspace": stdlib.TrimSpaceFunc, "trimsuffix": stdlib.TrimSuffixFunc, "upper": stdlib.UpperFunc,
		// collections
		"coalesce": stdlib.CoalesceFunc, "coalescelist": stdlib.CoalesceListFunc,
		"compact": stdlib.CompactFunc, "concat": stdlib.ConcatFunc, "contains": stdlib.ContainsFunc,
		"distinct": stdlib.DistinctFunc, "element": stdlib.ElementFunc, "flatten": stdlib.FlattenFunc,
		"keys": stdlib.KeysFunc, "length": stdlib.LengthFunc, "lookup": stdlib.LookupFunc,
		"merge": stdlib.MergeFunc, "range": stdlib.RangeFunc, "reverse": stdlib.ReverseListFunc,
		"setintersection": stdlib.SetIntersectionFunc, "setsubtract": stdlib.SetSubtractFunc,
		"setunion": stdlib.SetUnionFunc, "slice": stdlib.SliceFunc, "sort": stdlib.SortFunc,
		"values": stdlib.ValuesFunc, "zipmap": stdlib.ZipmapFunc,
		// hashes
		"sha256": function.New(&function.Spec{
			Params: []function.Parameter{{Name: "text", Type: cty.String}},
			Type:   function.StaticReturnType(cty.String),
			Impl: func(args []cty.Value, _ cty.Type) (cty.Value, error) {
				return cty.StringVal(fmt.Sprintf("%x", sha256.Sum256([]byte(args[0].AsString())))), nil
			},
		}),
		// conversions
		"jsonencode": stdlib.JSONEncodeFunc, "tolist": stdlib.MakeToFunc(cty.List(cty.DynamicPseudoType)),
		"tomap":    stdlib.MakeToFunc(cty.Map(cty.DynamicPseudoType)),
		"toset":    stdlib.MakeToFunc(cty.Set(cty.DynamicPseudoType)),
		"tostring": stdlib.MakeToFunc(cty.String),
	}
})

// FunctionsIn returns the functions with file, which reads a text in the repository. Its path is relative to
// the folder, and leads out of the repository neither by its elements nor by a link.
func FunctionsIn(repository, folder string) map[string]function.Function {
	all := maps.Clone(Functions())
	all["file"] = function.New(&function.Spec{
		Params: []function.Parameter{{Name: "path", Type: cty.String}},
		Type:   function.StaticReturnType(cty.String),
		Impl: func(args []cty.Value, _ cty.Type) (cty.Value, error) {
			text, err := readText(repository, folder, args[0].AsString())
			return cty.StringVal(text), err
		},
	})
	return all
}

// longestText bounds what file reads: a text of the configuration is a page, and a device has no end.
const longestText = 1 << 20

func readText(repository, folder, name string) (string, error) {
	inside, err := filepath.Rel(repository, filepath.Join(folder, name))
	if err != nil || filepath.IsAbs(name) || !filepath.IsLocal(inside) {
		return "", fmt.Errorf("%s leads out of the repository; the path is relative to the cluster's folder",
			name)
	}
	root, err := os.OpenRoot(repository)
	if err != nil {
		return "", err
	}
	defer root.Close()
	info, err := root.Stat(inside)
	if err != nil {
		return "", fmt.Errorf("%s: %w", inside, pathless(err))
	}
	if !info.Mode().IsRegular() || info.Size() > longestText {
		return "", fmt.Errorf("%s is not a file of at most %d bytes", inside, longestText)
	}
	text, err := root.ReadFile(inside)
	if err == nil && !utf8.Valid(text) {
		err = errors.New("not a text in UTF-8")
	}
	if err != nil {
		return "", fmt.Errorf("%s: %w", inside, pathless(err))
	}
	return string(text), nil
}

// pathless drops the call and its path from an error of a file.
func pathless(err error) error {
	if of, is := errors.AsType[*fs.PathError](err); is {
		return of.Err
	}
	return err
}

// TypeText writes a type as it stands in Terraform, optional attributes included.
func TypeText(t cty.Type) string {
	switch {
	case t.IsCollectionType():
		kind, _, _ := strings.Cut(t.FriendlyName(), " ") // list of string
		return kind + "(" + TypeText(t.ElementType()) + ")"
	case t.IsObjectType():
		attributes := t.AttributeTypes()
		var fields []string
		for _, name := range slices.Sorted(maps.Keys(attributes)) {
			field := TypeText(attributes[name])
			if t.AttributeOptional(name) {
				field = "optional(" + field + ")"
			}
			fields = append(fields, name+" = "+field)
		}
		return "object({ " + strings.Join(fields, ", ") + " })"
	}
	return typeexpr.TypeString(t)
}
