package scaffold

import (
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"net/netip"
	"regexp"
	"strings"

	"github.com/ephemeral-castle/castle/internal/check"
	"github.com/ephemeral-castle/castle/internal/config"
)

// NewCluster is a cluster to generate: a template and the answers so far.
type NewCluster struct {
	Name, Platform, Template string

	repository string
	templates  fs.FS
	parts      []part
	skeleton   *skeleton // of Flux's repository; nil without --gitops
	keys       []*Key
	answers    answers
	only       bool // no other platform has a cluster of this name
}

// ErrDependency reports that the form of an answer depends on another one that is missing or wrong.
var ErrDependency = errors.New("depends on an answer that is missing or wrong")

var clusterName = regexp.MustCompile(`^[a-z0-9]([a-z0-9-]*[a-z0-9])?$`)

// Begin reads a template and the repository's clusters. label is "green" or
// "green/proxmox"; the default platform is the template's first word.
func Begin(o config.Options, label, template string) (*NewCluster, error) {
	templates := config.Templates(o.Repository, o.Templates)
	parts, err := readTemplate(templates, template)
	if err != nil {
		return nil, err
	}
	name, platform, given := strings.Cut(label, "/")
	if !given {
		platform, _, _ = strings.Cut(template, "-")
	}
	if !clusterName.MatchString(name) || !clusterName.MatchString(platform) {
		return nil, fmt.Errorf("cluster %q: the name and the platform after a slash consist of lower-case "+
			"letters, digits "+
			"and inner hyphens: they become host names and a Proxmox tag", label)
	}
	if err := checkVacant(o.Repository, name, platform); err != nil {
		return nil, err
	}
	c := &NewCluster{
		Name: name, Platform: platform, Template: template, only: true,
		repository: o.Repository, templates: templates, parts: parts, keys: keysOf(parts),
		answers: answers{cluster: name, values: map[string]any{}},
	}
	labels, err := config.Clusters(o.Repository)
	if err != nil {
		return nil, err
	}
	for _, label := range labels {
		o.Cluster = label
		loaded, _ := config.Load(o) // castle check reports the problems of other clusters
		c.answers.others = append(c.answers.others, check.ReservationsOf(loaded))
		c.only = c.only && !strings.HasPrefix(label, name+"/")
	}
	return c, nil
}

// Label returns the cluster's full name: "green/proxmox".
func (c *NewCluster) Label() string { return c.Name + "/" + c.Platform }

// Keys returns the keys of the template, in the order in which they must be answered.
func (c *NewCluster) Keys() []*Key { return c.keys }

// Uses reports whether k is needed with the answers so far.
func (c *NewCluster) Uses(k *Key) bool {
	return k.Store == "" || c.answers.values["secrets"] == k.Store
}

// Answer sets an answer, or returns its problem. Earlier keys must be answered.
func (c *NewCluster) Answer(k *Key, text string) error {
	text = strings.TrimSpace(text)
	if text == "" {
		return fmt.Errorf("%s is empty", k.Name)
	}
	if strings.ContainsAny(text, "\"\\\n\r") || strings.Contains(text, "${") || strings.Contains(text, "%{") {
		return fmt.Errorf(`%s: an answer cannot contain ", \, ${ or %%{`, k.Name)
	}
	if !c.answers.has(k.needs...) {
		return ErrDependency
	}
	v, err := k.form(&c.answers, text)
	if err != nil {
		return fmt.Errorf("%s: %w", k.Name, err)
	}
	c.answers.values[k.Name] = v
	return nil
}

// Propose returns castle's proposal, "" if it has none.
func (c *NewCluster) Propose(k *Key) string {
	if k.proposal == nil || !c.answers.has(k.needs...) {
		return ""
	}
	return k.proposal(&c.answers)
}

// Requires reports whether the user must answer k, which has neither an answer nor a
// proposal. Otherwise a proposal follows from answers that are still missing.
func (c *NewCluster) Requires(k *Key) bool { return k.borrowed || c.answers.has(k.needs...) }

// nodes returns the cluster's machines, control planes first.
func (a *answers) nodes(addresses []netip.Addr) (nodes []Node) {
	for i, address := range addresses {
		n := Node{Name: fmt.Sprintf("cp-%02d", i+1), ControlPlane: true, ID: a.count("vmid_start") + i,
			Address: address}
		if w := i - a.count("control_planes"); w >= 0 {
			n.Name, n.ControlPlane = fmt.Sprintf("worker-%02d", w+1), false
		}
		nodes = append(nodes, n)
	}
	return nodes
}

// data returns the values that the template's files are rendered with.
func (c *NewCluster) data() map[string]any {
	data := map[string]any{"cluster": c.Name, "platform": c.Platform, "reference": c.Name}
	if !c.only {
		data["reference"] = c.Label()
	}
	a := &c.answers
	maps.Copy(data, a.values)
	data["replicas"] = min(a.count("workers"), 3)
	if addresses := a.nodeAddresses(); len(addresses) > 0 {
		data["nodes"] = a.nodes(addresses)
	}
	if a.count("vmid_start") > 0 {
		data["vm_ids"] = a.ids()
	}
	return data
}
