package tfeval

import (
	"io/fs"
	"os"
	"path/filepath"
	"strings"

	"github.com/hashicorp/hcl/v2"
	"github.com/hashicorp/hcl/v2/hclparse"
)

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
