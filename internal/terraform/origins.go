package terraform

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path"
	"path/filepath"
	"runtime"
	"slices"
	"strings"

	"github.com/hashicorp/hcl/v2"
	"github.com/hashicorp/hcl/v2/gohcl"
	"github.com/hashicorp/hcl/v2/hclsyntax"
)

// Origins are the places from which Terraform installs providers: provider_installation
// of TF_CLI_CONFIG_FILE or ~/.terraformrc, else the implied mirror folders and the
// registries.
type Origins struct{ methods []method }

// method is one block inside provider_installation.
type method struct {
	kind             string // filesystem_mirror, network_mirror, direct
	place            string // path or url
	include, exclude []string
}

// Origin is where one provider comes from.
type Origin struct {
	Local string // the folder that holds it
	URL   string // an address by which to check whether it is available; empty: it is not
}

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
	f, diags := hclsyntax.ParseConfig(text, file, hcl.InitialPos)
	if diags.HasErrors() {
		return Origins{}, unreadable(file, diags)
	}
	for _, b := range f.Body.(*hclsyntax.Body).Blocks {
		if b.Type == "provider_installation" {
			return readOrigins(b.Body)
		}
	}
	return implied(env["HOME"]), nil
}

// unreadable leaves out the text of the file: it may hold tokens for registries.
func unreadable(file string, diags hcl.Diagnostics) error {
	return fmt.Errorf("%s:%d: %s", file, diags[0].Subject.Start.Line, diags[0].Summary)
}

func readOrigins(body *hclsyntax.Body) (Origins, error) {
	var o Origins
	for _, b := range body.Blocks {
		var is struct {
			Path    string   `hcl:"path,optional"`
			URL     string   `hcl:"url,optional"`
			Include []string `hcl:"include,optional"`
			Exclude []string `hcl:"exclude,optional"`
			Rest    hcl.Body `hcl:",remain"`
		}
		if diags := gohcl.DecodeBody(b.Body, nil, &is); diags.HasErrors() {
			return o, unreadable(b.Body.SrcRange.Filename, diags)
		}
		o.methods = append(o.methods, method{b.Type, is.Path + is.URL, is.Include, is.Exclude})
	}
	return o, nil
}

// implied returns the origins without provider_installation.
func implied(home string) Origins {
	var o Origins
	for _, dir := range []string{
		filepath.Join(home, ".terraform.d/plugins"), filepath.Join(home, ".local/share/terraform/plugins"),
		"/usr/local/share/terraform/plugins", "/usr/share/terraform/plugins",
	} {
		o.methods = append(o.methods, method{kind: "filesystem_mirror", place: dir})
	}
	o.methods = append(o.methods, method{kind: "direct"})
	return o
}

// Of returns the origin of a provider, by its source address.
func (o Origins) Of(source string) Origin {
	var url string
	for _, m := range o.methods {
		if !m.takes(source) {
			continue
		}
		host, rest, _ := strings.Cut(source, "/")
		switch m.kind {
		case "filesystem_mirror":
			if Holds(m.place, source) {
				return Origin{Local: m.place}
			}
		case "network_mirror":
			url = strings.TrimSuffix(m.place, "/") + "/" + host + "/" + rest + "/index.json"
		case "direct":
			if url == "" {
				url = "https://" + host + "/.well-known/terraform.json"
			}
		}
	}
	return Origin{URL: url}
}

func (m method) takes(source string) bool {
	match := func(pattern string) bool {
		ok, err := path.Match(completed(pattern), source)
		return err == nil && ok
	}
	included := len(m.include) == 0 || slices.ContainsFunc(m.include, match)
	return included && !slices.ContainsFunc(m.exclude, match)
}

// completed completes a source address or a pattern: "hashicorp/*".
func completed(source string) string {
	switch strings.Count(source, "/") {
	case 0:
		return "registry.terraform.io/hashicorp/" + source
	case 1:
		return "registry.terraform.io/" + source
	}
	return source
}

// Holds reports whether a mirror or a cache has any version of a provider for this
// machine, unpacked or packed.
func Holds(dir, source string) bool {
	machine := runtime.GOOS + "_" + runtime.GOARCH
	patterns := []string{"*/" + machine, "terraform-provider-" + path.Base(source) + "_*_" + machine + ".zip"}
	return slices.ContainsFunc(patterns, func(pattern string) bool {
		found, err := fs.Glob(os.DirFS(dir), path.Join(source, pattern))
		return err == nil && len(found) > 0
	})
}
