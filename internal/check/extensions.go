package check

import (
	"slices"
	"strconv"
	"strings"

	"github.com/hashicorp/hcl/v2"
	"github.com/siderolabs/gen/xslices"
	"github.com/zclconf/go-cty/cty"

	"github.com/ephemeral-castle/castle/internal/syntax"
	"github.com/ephemeral-castle/castle/internal/talos"
	"github.com/ephemeral-castle/castle/internal/tfeval"
)

// extensionsVariable lists the extensions of which the image factory makes a schematic.
const extensionsVariable = "talos_extensions"

// schematicsVariable has further extensions, or a schematic, of the machines of a role or of single machines.
const schematicsVariable = "talos_machine_schematics"

// longhornExtensions are those without which Longhorn attaches no volume on Talos.
var longhornExtensions = []string{"siderolabs/iscsi-tools", "siderolabs/util-linux-tools"}

// checkExtensions reports names that the image factory would refuse late, and what Longhorn needs.
func checkExtensions(c *cluster, report reporter) {
	written, own := c.variable(extensionsVariable), c.variable(schematicsVariable)
	of := extensionsOf(written.Value)
	checkNames(of, func(i string) hcl.Range { return written.At(i) }, report)
	given := tfeval.Map(own.Value)
	for _, key := range names(given) {
		checkNames(extensionsOf(tfeval.Attribute(given[key], "extensions")), func(i string) hcl.Range {
			return own.At(key, "extensions", i)
		}, report)
	}
	schematic := c.variable("talos_schematic_id")
	if d := c.declares["talos_schematic_id"]; d != nil && len(of) > 0 {
		fallback, _ := d.Variables["talos_schematic_id"].Default()
		if own := tfeval.Text(schematic.Value); own != "" && own != tfeval.Text(fallback) {
			report("schematic-twice", schematic.At(), "talos_schematic_id: there is talos_extensions, too",
				"A schematic says which extensions there are, and talos_extensions makes another one (%s). "+
					"Remove one of them.", syntax.Place(written.At()))
		}
	}
	checkLonghornExtensions(c, of, report)
}

// checkLonghornExtensions reports, once for each place, machines whose image Longhorn attaches no volume on.
func checkLonghornExtensions(c *cluster, all []string, report reporter) {
	longhorn, given := c.declares["longhorn_chart_version"], tfeval.Map(c.variable(schematicsVariable).Value)
	nodes := tfeval.Map(c.variable("nodes").Value)
	done := map[string]bool{}
	for _, name := range names(nodes) {
		role := tfeval.Text(tfeval.Attribute(nodes[name], "role"))
		extensions, at := slices.Clone(all), ""
		for _, key := range []string{role, name} {
			more := extensionsOf(tfeval.Attribute(given[key], "extensions"))
			if extensions = append(extensions, more...); len(more) > 0 {
				at = key
			}
		}
		missing := slices.DeleteFunc(slices.Clone(longhornExtensions), func(name string) bool {
			return slices.Contains(extensions, name)
		})
		takesVolumes := role == "worker" || c.hasStorage(nodes[name])
		if longhorn == nil || !takesVolumes || len(extensions) == 0 || len(missing) == 0 || done[at] {
			continue
		}
		written := c.variable(extensionsVariable)
		place, what := written.At(), extensionsVariable
		if at != "" {
			place, what = c.at(schematicsVariable, at), schematicsVariable+" of "+at
		}
		done[at] = true
		report("longhorn-extensions", place, what+": Longhorn needs more",
			"Stage %q attaches volumes with %s, which is not in the list. Add it.", longhorn.Name,
			strings.Join(missing, " and "))
	}
}

func extensionsOf(list cty.Value) []string { return xslices.Map(tfeval.Elements(list), tfeval.Text) }

// checkNames reports extensions that are probably misspelled, at their places in a list.
func checkNames(extensions []string, at func(i string) hcl.Range, report reporter) {
	for i, name := range extensions {
		near := syntax.Nearest(name, talos.KnownExtensions())
		if near != "" && near != name && !slices.Contains(talos.KnownExtensions(), name) {
			report("extension-unknown", at(strconv.Itoa(i)), "extension "+name+": not known",
				"castle knows no such extension; did you mean %q?", near)
		}
	}
}
