package terraform

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path"
	"path/filepath"
	"regexp"
	"runtime"
	"slices"
	"strings"

	"github.com/hashicorp/hcl/v2"
	"github.com/hashicorp/hcl/v2/gohcl"
	"github.com/hashicorp/hcl/v2/hclsyntax"
	"github.com/zclconf/go-cty/cty"

	"github.com/ephemeral-castle/castle/internal/providers"
)

// Origins are the places from which Terraform installs providers: provider_installation of TF_CLI_CONFIG_FILE
// or ~/.terraformrc, else the implied mirror folders and the registries.
type Origins struct {
	Folders []method `hcl:"filesystem_mirror,block"`
	Mirrors []method `hcl:"network_mirror,block"`
	OCI     []method `hcl:"oci_mirror,block"` // of OpenTofu
	Direct  []method `hcl:"direct,block"`
	Rest    hcl.Body `hcl:",remain"`
}

// Overridden reports whether there are dev_overrides: programs that Terraform uses instead of a version.
func (o Origins) Overridden() bool {
	if o.Rest == nil {
		return false
	}
	content, _, _ := o.Rest.PartialContent(&hcl.BodySchema{
		Blocks: []hcl.BlockHeaderSchema{{Type: "dev_overrides"}}}) // without blocks if it is damaged
	return content != nil && len(content.Blocks) > 0
}

// method is one block inside provider_installation.
type method struct {
	Path    string   `hcl:"path,optional"`
	URL     string   `hcl:"url,optional"`
	Include []string `hcl:"include,optional"`
	Exclude []string `hcl:"exclude,optional"`

	Repository hcl.Expression `hcl:"repository_template,optional"`
	Rest       hcl.Body       `hcl:",remain"`
}

// Origin is where one provider comes from.
type Origin struct {
	Local  string // the folder that holds it
	Mirror string // the address of the network mirror
	OCI    string // the address of the OCI repository's tags
	URL    string // an address by which to check whether it is available; empty: it is not
}

// quotedKey is a key in quotes, as those of dev_overrides. Terraform's own configuration is in HCL 1, which
// differs from HCL 2 in this.
var quotedKey = regexp.MustCompile(`"[^"\n]*"[ \t]*=`)

// ReadOrigins reads Terraform's own configuration in an environment.
func ReadOrigins(environ []string) (Origins, error) {
	env := filter(environ)
	file := cliConfig(env)
	text, err := os.ReadFile(file)
	if errors.Is(err, fs.ErrNotExist) {
		return implied(env["HOME"]), nil
	}
	if err != nil {
		return Origins{}, err
	}
	var config struct {
		Installation *Origins `hcl:"provider_installation,block"`
		Rest         hcl.Body `hcl:",remain"`
	}
	keys := 0
	text = quotedKey.ReplaceAllFunc(text, func([]byte) []byte {
		keys++
		return fmt.Appendf(nil, "quoted_%d =", keys)
	})
	f, diags := hclsyntax.ParseConfig(text, file, hcl.InitialPos)
	if !diags.HasErrors() {
		diags = gohcl.DecodeBody(f.Body, nil, &config)
	}
	if diags.HasErrors() { // without the text of the file: it may hold tokens for registries
		return Origins{}, fmt.Errorf("%s:%d: %s", file, diags[0].Subject.Start.Line, diags[0].Summary)
	}
	if config.Installation == nil {
		return implied(env["HOME"]), nil
	}
	return *config.Installation, nil
}

// implied returns the origins without provider_installation.
func implied(home string) Origins {
	o := Origins{Direct: []method{{}}}
	for _, dir := range []string{
		filepath.Join(home, ".terraform.d/plugins"), filepath.Join(home, ".local/share/terraform/plugins"),
		"/usr/local/share/terraform/plugins", "/usr/share/terraform/plugins",
	} {
		o.Folders = append(o.Folders, method{Path: dir})
	}
	return o
}

// Of returns the origin of a provider, by its source address.
func (o Origins) Of(source string) Origin {
	takes := func(m method) bool { return m.takes(source) }
	for _, m := range o.Folders {
		if takes(m) && Holds(m.Path, source) {
			return Origin{Local: m.Path}
		}
	}
	host, name, _ := strings.Cut(source, "/")
	if i := slices.IndexFunc(o.Mirrors, takes); i >= 0 {
		mirror := strings.TrimSuffix(o.Mirrors[i].URL, "/")
		return Origin{Mirror: o.Mirrors[i].URL, URL: mirror + "/" + source + "/index.json"}
	}
	if i := slices.IndexFunc(o.OCI, takes); i >= 0 {
		namespace, kind, _ := strings.Cut(name, "/")
		parts := map[string]cty.Value{"hostname": cty.StringVal(host), "namespace": cty.StringVal(namespace),
			"type": cty.StringVal(kind)}
		var at string // empty if it has errors, which OpenTofu reports
		_ = gohcl.DecodeExpression(o.OCI[i].Repository, &hcl.EvalContext{Variables: parts}, &at)
		registry, repository, _ := strings.Cut(at, "/")
		api := "https://" + registry + "/v2/"
		return Origin{OCI: api + repository + "/tags/list?n=10000", URL: api}
	}
	if slices.ContainsFunc(o.Direct, takes) {
		return Origin{URL: "https://" + host + "/.well-known/terraform.json"}
	}
	return Origin{}
}

func (m method) takes(source string) bool {
	match := func(pattern string) bool {
		ok, err := path.Match(completed(pattern), source)
		return err == nil && ok
	}
	included := len(m.Include) == 0 || slices.ContainsFunc(m.Include, match)
	return included && !slices.ContainsFunc(m.Exclude, match)
}

// completed completes a source address or a pattern: "hashicorp/*".
func completed(source string) string { return providers.Address(source, source) }

// Holds reports whether a mirror or a cache has any version of a provider for this machine, packed or not.
func Holds(dir, source string) bool {
	machine := runtime.GOOS + "_" + runtime.GOARCH
	patterns := []string{"*/" + machine, "terraform-provider-" + path.Base(source) + "_*_" + machine + ".zip"}
	return slices.ContainsFunc(patterns, func(pattern string) bool {
		found, err := fs.Glob(os.DirFS(dir), path.Join(source, pattern))
		return err == nil && len(found) > 0
	})
}
