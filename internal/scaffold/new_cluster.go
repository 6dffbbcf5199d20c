package scaffold

import (
	"cmp"
	"fmt"
	"io/fs"
	"regexp"
	"slices"
	"strings"

	"github.com/ephemeral-castle/castle/internal/check"
	"github.com/ephemeral-castle/castle/internal/config"
)

// Order is a cluster that is wanted: a template and the answers given so far.
type Order struct {
	Cluster, Platform, Template string

	repository string
	templates  fs.FS
	parts      []part
	skeleton   *skeleton // of Flux's repository; nil: none is wanted
	keys       []*Key
	values     map[string]any // by key, in the key's form
	proposed   map[string]bool
	others     []check.Reservations // of every cluster that the repository has
	alone      bool                 // no other platform has a cluster of this name
}

var plainName = regexp.MustCompile(`^[a-z0-9]([a-z0-9-]*[a-z0-9])?$`)

// Begin reads a template and the repository's clusters. wanted is "green" or
// "green/proxmox"; the platform is the template's first word, if it is not said.
// o.Cluster is left open.
func Begin(o config.Options, wanted, template string) (*Order, error) {
	templates := config.Templates(o.Repository, o.Templates)
	parts, err := readTemplate(templates, template)
	if err != nil {
		return nil, err
	}
	name, platform, said := strings.Cut(wanted, "/")
	if !said {
		platform, _, _ = strings.Cut(template, "-")
	}
	if !plainName.MatchString(name) || !plainName.MatchString(platform) {
		return nil, fmt.Errorf("cluster %q: a name consists of lower-case letters, digits and inner hyphens, and so does a platform behind a slash: "+
			"it becomes host names and a Proxmox tag", wanted)
	}
	if err := vacant(o.Repository, name, platform); err != nil {
		return nil, err
	}
	order := &Order{
		Cluster: name, Platform: platform, Template: template,
		repository: o.Repository, templates: templates, parts: parts, values: map[string]any{}, proposed: map[string]bool{}, alone: true,
	}
	order.keys = keysOf(parts)
	labels, err := config.Clusters(o.Repository)
	if err != nil {
		return nil, err
	}
	for _, label := range labels {
		o.Cluster = label
		loaded, _ := config.Load(o) // what is wrong with others is not said here
		order.others = append(order.others, check.ReservationsOf(loaded))
		order.alone = order.alone && !strings.HasPrefix(label, name+"/")
	}
	return order, nil
}

// Label is the cluster as castle names it: "green/proxmox".
func (o *Order) Label() string { return o.Cluster + "/" + o.Platform }

// Keys are what the template wants to know, in the order to ask in.
func (o *Order) Keys() []*Key { return o.keys }

// Wants reports whether the answers so far leave a key of any use.
func (o *Order) Wants(k *Key) bool { return k.Place == "" || o.values["secrets"] == k.Place }

// Answer takes an answer, and says what is wrong with it. The answers to the keys
// before must have been taken.
func (o *Order) Answer(k *Key, text string) error {
	text = strings.TrimSpace(text)
	if text == "" {
		return fmt.Errorf("%s is empty", k.Name)
	}
	if strings.ContainsAny(text, "\"\\\n\r") || strings.Contains(text, "${") || strings.Contains(text, "%{") {
		return fmt.Errorf(`%s: no answer has ", \, ${ or %%{ in it`, k.Name)
	}
	if !o.answered(k.from...) {
		return errUndecided
	}
	v, err := k.form(o, text)
	if err != nil {
		return fmt.Errorf("%s: %w", k.Name, err)
	}
	o.values[k.Name] = v
	return nil
}

// Propose returns what castle would answer, "" if it cannot know.
func (o *Order) Propose(k *Key) string {
	if k.proposal == nil || !o.answered(k.from...) {
		return ""
	}
	return k.proposal(o)
}

// Misses reports whether k, which was not answered and has no proposal, must be
// answered by the user. Otherwise a proposal will come with the answers that it
// depends on.
func (o *Order) Misses(k *Key) bool { return k.borrowed || o.answered(k.from...) }

func (o *Order) answered(names ...string) bool {
	return !slices.ContainsFunc(names, func(name string) bool { _, is := o.values[name]; return !is })
}

// fromOthers proposes what every other cluster says that says something.
func fromOthers(variable string) func(*Order) string {
	return func(o *Order) string {
		said := ""
		for _, c := range o.others {
			value := c.Text(variable)
			if value != "" && said != "" && value != said {
				return ""
			}
			said = cmp.Or(said, value)
		}
		return said
	}
}

// templatesIn names the templates of clusters that there are.
func templatesIn(all fs.FS) []string {
	entries, err := fs.ReadDir(all, ".")
	if err != nil {
		return nil // there are none
	}
	var names []string
	for _, e := range entries {
		if e.IsDir() && e.Name() != gitopsTemplate {
			names = append(names, e.Name())
		}
	}
	return names
}
