package scaffold

import (
	"fmt"
	"maps"
	"net/netip"
	"slices"
	"strings"

	"github.com/hashicorp/hcl/v2"
	"github.com/hashicorp/hcl/v2/hclwrite"
	"github.com/siderolabs/gen/xslices"
	"github.com/zclconf/go-cty/cty"
)

// Setting is a value of terraform.tfvars that another configuration fixes. A null one removes the template's.
type Setting struct {
	Name  string
	Value cty.Value
}

// Import takes the machines of another configuration instead of asking for them. endpoint is the virtual
// address of the API, or a name. Settings replace the template's values; castle check judges them.
func (c *NewCluster) Import(machines []Node, endpoint string, settings []Setting) {
	c.machines, c.settings = machines, settings
	a := &c.answers
	var addresses []netip.Addr
	workers := 0
	for _, m := range machines {
		addresses = append(addresses, m.Address)
		if !m.ControlPlane {
			workers++
		}
	}
	a.values["control_planes"], a.values["workers"] = len(machines)-workers, workers
	a.values["node_addresses"] = addresses
	a.values["vip"] = endpoint
	if vip, err := netip.ParseAddr(endpoint); err == nil {
		a.values["vip"] = vip
	}
	if !slices.ContainsFunc(machines, func(m Node) bool { return m.InstallDisk == "" }) {
		a.values["install_disk"] = machines[0].InstallDisk
	}
	c.fixed = maps.Clone(a.values)
	c.keys = slices.DeleteFunc(c.keys, func(k *key) bool { return a.has(k.name) })
	if i := slices.IndexFunc(c.keys, func(k *key) bool { return k.name == "network" }); i >= 0 {
		c.keys[i].proposal = nil // that of another cluster
		c.keys[i].example = always(netip.PrefixFrom(addresses[0], 24).Masked().String())
	}
}

// imported returns the imported machines with their VM ids.
func (c *NewCluster) imported() []Node {
	nodes := slices.Clone(c.machines)
	for i := range nodes {
		nodes[i].ID = c.answers.count("vmid_start") + i
	}
	return nodes
}

// set writes the settings into the text of a terraform.tfvars, whose comments stay.
func (c *NewCluster) set(text []byte) ([]byte, error) {
	if len(c.settings) == 0 {
		return text, nil
	}
	f, diags := hclwrite.ParseConfig(text, "terraform.tfvars", hcl.InitialPos)
	if diags.HasErrors() {
		return nil, diags
	}
	added := false
	for _, s := range c.settings {
		if s.Value.IsNull() {
			f.Body().RemoveAttribute(s.Name)
			continue
		}
		expr, diags := hclwrite.ParseConfig([]byte(s.Name+" = "+Literal(s.Value)+"\n"), s.Name,
			hcl.InitialPos)
		if diags.HasErrors() {
			return nil, fmt.Errorf("%s: %w", s.Name, diags)
		}
		if !added && f.Body().GetAttribute(s.Name) == nil {
			added = true
			f.Body().AppendNewline()
		}
		f.Body().SetAttributeRaw(s.Name, expr.Body().GetAttribute(s.Name).Expr().BuildTokens(nil))
	}
	return hclwrite.Format(f.Bytes()), nil
}

// Literal is a value in HCL, a text of several lines as a heredoc.
func Literal(v cty.Value) string {
	switch t := v.Type(); {
	case v.IsNull():
	case t == cty.String && heredoc(v.AsString()):
		text := strings.NewReplacer("${", "$${", "%{", "%%{").Replace(v.AsString())
		return "<<EOT\n" + strings.TrimSuffix(text, "\n") + "\nEOT\n"
	case t.IsObjectType():
		lines := "{\n"
		for it := v.ElementIterator(); it.Next(); {
			name, e := it.Element()
			key := string(hclwrite.TokensForValue(name).Bytes())
			lines += key + " = " + strings.TrimSuffix(Literal(e), "\n") + "\n"
		}
		return lines + "}"
	case t.IsTupleType():
		elements := xslices.Map(v.AsValueSlice(), Literal)
		if all := "[" + strings.Join(elements, ", ") + "]"; !strings.Contains(all, "\n") {
			return all
		}
		return "[\n" + strings.Join(elements, ",\n") + ",\n]"
	}
	return string(hclwrite.TokensForValue(v).Bytes())
}

// heredoc reports whether a text is easier to read as a heredoc, which holds it unchanged: if it ends with a
// line end, and has no line that would end the heredoc.
func heredoc(s string) bool {
	plain := !strings.ContainsFunc(s, func(r rune) bool { return r < ' ' && r != '\n' && r != '\t' })
	lines := xslices.Map(strings.Split(s, "\n"), strings.TrimSpace)
	return plain && strings.HasSuffix(s, "\n") && len(lines) > 2 && !slices.Contains(lines, "EOT")
}
