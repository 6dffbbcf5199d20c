package tfeval

import (
	"cmp"
	"io/fs"
	"os"
	"path"
	"path/filepath"
	"regexp"
	"strings"

	"github.com/hashicorp/hcl/v2"
	"github.com/hashicorp/hcl/v2/hclparse"
	"github.com/hashicorp/hcl/v2/hclsyntax"
	"github.com/zclconf/go-cty/cty"

	"github.com/ephemeral-castle/castle/internal/config"
)

// Object is an object in the cluster, or a Helm release, that a stage creates.
type Object struct {
	Group, Kind, Namespace, Name string
	Chart                        string            // of a release: its name, or a folder of the module
	Data                         map[string]string // of a ConfigMap, as far as it is known

	Stage *config.Stage
	At    hcl.Range
}

// Release is the Kind of a Helm release.
const Release = "release"

// Is reports whether two are one object.
func (o Object) Is(other Object) bool {
	return o.Group == other.Group && o.Kind == other.Kind && o.Name == other.Name &&
		o.Namespace == other.Namespace
}

func (o Object) String() string {
	return o.Kind + " " + strings.TrimPrefix(o.Namespace+"/"+o.Name, "/")
}

// Objects lists the objects with known names that the stage's resources create. Later expressions know them.
func (m *Module) Objects() []Object {
	var all []Object
	for range 2 { // a resource may name one that stands below it
		all = nil
		for _, b := range m.Known("resource", "") {
			all = append(all, b.objects()...)
		}
	}
	return all
}

func (b Block) objects() []Object {
	o := Object{Stage: b.module.stage, At: b.Range()}
	var all []Object
	group, kind := kindOf(b.Type)
	switch {
	case b.Type == "helm_release":
		o.Kind, o.Namespace, o.Name, o.Chart = Release, b.Text("namespace"), b.Text("name"), b.Text("chart")
		if strings.HasPrefix(o.Chart, "./") {
			all = b.chartObjects(o)
		}
	case b.Type == "kubernetes_manifest":
		manifest, _ := b.Value("manifest") // unknown after an error
		metadata := Attribute(manifest, "metadata")
		o.Group = groupOf(Text(Attribute(manifest, "apiVersion")))
		o.Kind = Text(Attribute(manifest, "kind"))
		o.Name, o.Namespace = Text(Attribute(metadata, "name")), Text(Attribute(metadata, "namespace"))
	case kind != "":
		o.Group, o.Kind = group, kind
		for _, inner := range b.block.Body.Blocks {
			if inner.Type == "metadata" {
				o.Name, o.Namespace = b.textIn(inner.Body, "name"), b.textIn(inner.Body, "namespace")
			}
		}
		data, _ := b.Value("data") // unknown after an error
		if data == cty.NilVal {
			data = cty.DynamicVal
		}
		if kind == "ConfigMap" && Map(data) != nil {
			o.Data = map[string]string{}
			for key, v := range Map(data) {
				if o.Data[key] = Text(v); !known(v) {
					o.Data[key] = "${" + key + "}" // Flux substitutes it later
				}
			}
		}
		b.note(o, data)
	}
	if o.Name != "" {
		all = append(all, o)
	}
	return all
}

// note keeps the names and data of a single object for other expressions.
func (b Block) note(o Object, data cty.Value) {
	attributes := b.block.Body.Attributes
	if attributes["count"] != nil || attributes["for_each"] != nil || o.Name == "" {
		return
	}
	if b.module.resources[b.Type] == nil {
		b.module.resources[b.Type] = map[string]cty.Value{}
	}
	metadata := map[string]cty.Value{"name": cty.StringVal(o.Name), "namespace": cty.StringVal(o.Namespace)}
	b.module.resources[b.Type][b.Name] = cty.ObjectVal(map[string]cty.Value{
		"metadata": cty.TupleVal([]cty.Value{cty.ObjectVal(metadata)}), "data": data,
	})
}

// groupOf is the group of an apiVersion; "" for the core group.
func groupOf(version string) string { return version[:max(0, strings.Index(version, "/"))] }

// groups lists the kinds that the provider kubernetes makes, by API group.
var groups = map[string]string{
	"": "Namespace Secret ConfigMap Service ServiceAccount PersistentVolume PersistentVolumeClaim",

	"apps":                      "Deployment DaemonSet StatefulSet",
	"batch":                     "Job CronJob",
	"networking.k8s.io":         "Ingress NetworkPolicy",
	"rbac.authorization.k8s.io": "Role RoleBinding ClusterRole ClusterRoleBinding",
	"storage.k8s.io":            "StorageClass",
	"scheduling.k8s.io":         "PriorityClass",
}

var providerVersion = regexp.MustCompile(`_v\d\w*$`)

// kindOf is the group and kind that a resource such as kubernetes_secret_v1 creates; "" if none is known.
func kindOf(resource string) (string, string) {
	words := strings.ReplaceAll(providerVersion.ReplaceAllString(resource, ""), "_", "")
	for group, kinds := range groups {
		for kind := range strings.FieldsSeq(kinds) {
			if strings.EqualFold("kubernetes"+kind, words) {
				return group, kind
			}
		}
	}
	return "", ""
}

var (
	apiVersionLine = regexp.MustCompile(`(?m)^apiVersion: *(.+?) *$`)
	kindLine       = regexp.MustCompile(`(?m)^kind: *(.+?) *$`)
	nameLine       = regexp.MustCompile(`(?m)^metadata:\n(?:  .*\n)*?  name: *(.+?) *$`)
	namespaceLine  = regexp.MustCompile(`(?m)^metadata:\n(?:  .*\n)*?  namespace: *(.+?) *$`)

	insertion = regexp.MustCompile(`\{\{-? *\.((?:Release|Values)\.\w+) *(?:\| *quote *)?-?\}\}`)
)

// chartObjects returns the objects of a chart in the stage's own folder. It does not render the templates:
// the head of each document names kind and object.
func (b Block) chartObjects(release Object) []Object {
	values := b.chartValues()
	values["Release.Name"], values["Release.Namespace"] = release.Name, release.Namespace
	fill := func(s string) string { return cmp.Or(values[insertion.FindStringSubmatch(s)[1]], s) }
	// The pattern is well-formed.
	templates, _ := fs.Glob(b.module.stage.Module, path.Join(release.Chart, "templates", "*.yaml"))
	var all []Object
	for _, file := range templates {
		data, err := fs.ReadFile(b.module.stage.Module, file)
		if err != nil {
			continue // Terraform reports it
		}
		text := insertion.ReplaceAllStringFunc(string(data), fill)
		for document := range strings.SplitSeq(text, "\n---") {
			head := func(line *regexp.Regexp) string {
				return strings.Trim(append(line.FindStringSubmatch(document), "", "")[1], `"`)
			}
			o := Object{Stage: release.Stage, At: release.At, Group: groupOf(head(apiVersionLine)),
				Kind: head(kindLine), Name: head(nameLine), Namespace: head(namespaceLine)}
			known := !strings.Contains(o.Group+o.Kind+o.Name+o.Namespace, "{{")
			if known && o.Kind != "" && o.Name != "" {
				all = append(all, o)
			}
		}
	}
	return all
}

// chartValues are the strings in values = [yamlencode({ … })] of a release, as "Values.name".
func (b Block) chartValues() map[string]string {
	all := map[string]string{}
	attr := b.block.Body.Attributes["values"]
	if attr == nil {
		return all
	}
	lists, _ := hcl.ExprList(attr.Expr) // no other form can be read here
	for _, e := range lists {
		call, is := e.(*hclsyntax.FunctionCallExpr)
		if !is || call.Name != "yamlencode" || len(call.Args) != 1 {
			continue
		}
		pairs, _ := hcl.ExprMap(call.Args[0])
		for _, kv := range pairs {
			key, diags := kv.Key.Value(nil)
			v, err := b.module.Evaluate(kv.Value, b.each)
			if !diags.HasErrors() && err == nil && Text(v) != "" {
				all["Values."+Text(key)] = Text(v)
			}
		}
	}
	return all
}

// Provisioned lists the resources of the root module in a work directory, and of the modules that it calls,
// which have provisioners: terraform_data.a. Terraform reports the files that cannot be read.
func Provisioned(dir string) (resources []string, err error) {
	blocks := func(typ string, labels ...string) *hcl.BodySchema {
		return &hcl.BodySchema{Blocks: []hcl.BlockHeaderSchema{{Type: typ, LabelNames: labels}}}
	}
	parser := hclparse.NewParser()
	err = fs.WalkDir(os.DirFS(dir), ".", func(name string, d fs.DirEntry, err error) error {
		switch {
		case err == nil && name == ".terraform/providers":
			return fs.SkipDir
		case err != nil || d.IsDir() ||
			!strings.HasSuffix(name, ".tf") && !strings.HasSuffix(name, ".tf.json"):
			return err
		}
		parse := parser.ParseHCLFile
		if strings.HasSuffix(name, ".json") {
			parse = parser.ParseJSONFile
		}
		file, _ := parse(filepath.Join(dir, name))
		if file == nil || file.Body == nil {
			return nil
		}
		found, _, _ := file.Body.PartialContent(blocks("resource", "type", "name"))
		for _, resource := range found.Blocks {
			own, _, _ := resource.Body.PartialContent(blocks("provisioner", "type"))
			if len(own.Blocks) > 0 {
				resources = append(resources, strings.Join(resource.Labels, "."))
			}
		}
		return nil
	})
	return resources, err
}
