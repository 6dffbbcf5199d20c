package terraform

import (
	"io/fs"
	"os"
	"path/filepath"
	"strings"

	"github.com/hashicorp/hcl/v2"
	"github.com/hashicorp/hcl/v2/hclparse"
)

// Provisioned lists the resources of the module and of those that it calls which have provisioners, as
// terraform_data.a. Terraform reports the files that cannot be read.
func (r *Root) Provisioned() (resources []string, err error) {
	blocks := func(typ string, labels ...string) *hcl.BodySchema {
		return &hcl.BodySchema{Blocks: []hcl.BlockHeaderSchema{{Type: typ, LabelNames: labels}}}
	}
	parser := hclparse.NewParser()
	err = fs.WalkDir(os.DirFS(r.Dir), ".", func(name string, d fs.DirEntry, err error) error {
		switch {
		case err == nil && name == ".terraform/providers":
			return fs.SkipDir
		case err != nil || d.IsDir() || !isTerraform(name):
			return err
		}
		parse := parser.ParseHCLFile
		if strings.HasSuffix(name, ".json") {
			parse = parser.ParseJSONFile
		}
		file, _ := parse(filepath.Join(r.Dir, name))
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
