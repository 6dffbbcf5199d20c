package scaffold

import (
	"cmp"
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"net/netip"
	"regexp"
	"slices"
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
	keys       []*key
	answers    answers
	only       bool // no other platform has a cluster of this name
}

// errDependency reports that the form of an answer depends on another one that is missing or wrong.
var errDependency = errors.New("depends on an answer that is missing or wrong")

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
			"letters, digits and inner hyphens: they become host names and a Proxmox tag", label)
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

// Ask asks the user a question and returns the answer, one line.
type Ask func(question string) (string, error)

// Fill answers every key: from given, from ask or with castle's proposal. It returns the proposals that it
// took. If ask is nil, the error joins all missing and invalid answers.
func (c *NewCluster) Fill(given map[string]string, ask Ask) (chosen []string, err error) {
	var names, missing []string
	for _, k := range c.keys {
		names = append(names, k.name)
	}
	var wrong []error
	for _, name := range slices.Sorted(maps.Keys(given)) {
		if !slices.Contains(names, name) {
			wrong = append(wrong, fmt.Errorf("%s: template %s has no such key%s", name, c.Template,
				config.DidYouMean(name, names)))
		}
	}
	for _, k := range c.keys {
		if ask != nil && len(wrong) > 0 { // not after a dozen questions
			break
		}
		text, isGiven := given[k.name]
		proposal := c.propose(k)
		switch {
		case !c.uses(k):
			if isGiven {
				wrong = append(wrong, fmt.Errorf("%s: only used with secrets = %s", k.name, k.store))
			}
			continue
		case isGiven:
		case ask != nil && !k.quiet:
			if err := c.ask(k, proposal, ask); err != nil {
				return nil, err
			}
			continue
		case proposal == "":
			if k.borrowed || c.answers.has(k.needs...) { // else a proposal follows from missing answers
				missing = append(missing, fmt.Sprintf("\n  %-22s  %s", k.name, k.question))
			}
			continue
		default:
			text = proposal
			if !k.quiet {
				chosen = append(chosen, k.name+" = "+text)
			}
		}
		if err := c.answer(k, text); err != nil && !errors.Is(err, errDependency) {
			wrong = append(wrong, err)
		}
	}
	if len(missing) > 0 {
		wrong = append(wrong, fmt.Errorf("%s requires answers:%s\n  give each with --set KEY=VALUE, all in "+
			"a file with --answers FILE, or on a terminal", c.Label(), strings.Join(missing, "")))
	}
	return chosen, errors.Join(wrong...)
}

// ask asks for one answer until it is valid. An empty one takes the proposal.
func (c *NewCluster) ask(k *key, proposal string, ask Ask) error {
	question := k.question + ": "
	if proposal != "" {
		question = fmt.Sprintf("%s [%s]: ", k.question, proposal)
	}
	for problem := ""; ; {
		typed, err := ask(problem + question)
		if err != nil {
			return err
		}
		if err = c.answer(k, cmp.Or(typed, proposal)); err == nil {
			return nil
		}
		problem = fmt.Sprintf("  %s\n", err)
	}
}

// uses reports whether k is needed with the answers so far.
func (c *NewCluster) uses(k *key) bool {
	return k.store == "" || c.answers.values["secrets"] == k.store
}

// answer sets an answer, or returns its problem. Earlier keys must be answered.
func (c *NewCluster) answer(k *key, text string) error {
	text = strings.TrimSpace(text)
	if text == "" {
		return fmt.Errorf("%s is empty", k.name)
	}
	if strings.ContainsAny(text, "\"\\\n\r") || strings.Contains(text, "${") || strings.Contains(text, "%{") {
		return fmt.Errorf(`%s: an answer cannot contain ", \, ${ or %%{`, k.name)
	}
	if !c.answers.has(k.needs...) {
		return errDependency
	}
	v, err := k.form(&c.answers, text)
	if err != nil {
		return fmt.Errorf("%s: %w", k.name, err)
	}
	c.answers.values[k.name] = v
	return nil
}

// propose returns castle's proposal, "" if it has none.
func (c *NewCluster) propose(k *key) string {
	if k.proposal == nil || !c.answers.has(k.needs...) {
		return ""
	}
	return k.proposal(&c.answers)
}

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
