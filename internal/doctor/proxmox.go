package doctor

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/zclconf/go-cty/cty"

	"github.com/ephemeral-castle/castle/internal/config"
	"github.com/ephemeral-castle/castle/internal/gate"
	"github.com/ephemeral-castle/castle/internal/proxmox"
	"github.com/ephemeral-castle/castle/internal/tfeval"
)

// datacenter is the Proxmox that a stage's preflight vm_ids asks, and what the
// stage wants there.
type datacenter struct {
	*examination
	stage  *config.Stage
	values gate.Values
	client *proxmox.Client
	nodes  []string
	images []tfeval.Block
	disks  string // the storage of the machines' disks
}

// proxmox has every Proxmox asked that a stage builds on.
func (x *examination) proxmox(heard spoken) (all []question) {
	for _, s := range x.Stages {
		for _, p := range s.Preflights {
			if p.Type.Name == proxmox.PreflightVMIDs {
				all = append(all, x.datacenter(s, p, heard)...)
			}
		}
	}
	return all
}

func (x *examination) datacenter(s *config.Stage, p *config.Preflight, heard spoken) []question {
	said := func(found []Finding) []question {
		return []question{{"proxmox", func(context.Context) []Finding { return found }}}
	}
	// What is not known yet is left out of values.
	values, _ := p.Values(s, config.Scope{Outputs: x.Outputs}) //nolint:errcheck // see above
	if !gate.Values(values).Has("api_token") {
		why := heard.unread
		if why == "" {
			why = "another stage says it, and none has"
		}
		return said(grey("the API token is not known: %s", why))
	}
	client, err := proxmox.ClientOf(values)
	if err == nil {
		err = proxmox.CheckToken(values.String("api_token"))
	}
	if err != nil {
		return said(red("correct it where it is given", "%v", err))
	}
	inputs := x.inputs(s)
	r := tfeval.Read(s, inputs)
	d := &datacenter{
		examination: x, stage: s, values: values, client: client,
		images: r.Known("resource", "proxmox_virtual_environment_download_file"), disks: known(inputs["proxmox_disk_datastore"]),
	}
	d.nodes = d.wantedNodes()
	ask := func(name string, what func(context.Context) []Finding) question {
		return question{"proxmox." + name, what}
	}
	all := []question{ask("api", d.api), ask("rights", d.rights), ask("nodes", d.onlineNodes), ask("storages", d.storages)}
	if len(d.images) > 0 {
		all = append(all, ask("image", d.image))
	}
	return append(all, ask("vm-ids", func(ctx context.Context) []Finding { return d.ids(ctx, p) }), clock("proxmox.clock", "Proxmox", client.Clock))
}

func known(v cty.Value) string {
	if v == cty.NilVal || !v.IsKnown() || v.IsNull() || v.Type() != cty.String {
		return ""
	}
	return v.AsString()
}

// wantedNodes are the names of the nodes that machines are to stand on.
func (d *datacenter) wantedNodes() []string {
	names := map[string]string{}
	if err := d.values.Decode("node_names", &names); err != nil {
		names = nil // a preflight's arguments are judged when they are read
	}
	all := slices.Collect(maps.Values(names))
	if node := d.values.String("node_name"); node != "" {
		all = append(all, node)
	}
	slices.Sort(all)
	return slices.Compact(all)
}

// api asks whether the datacenter answers, is trusted and lets the token in.
func (d *datacenter) api(ctx context.Context) []Finding {
	endpoint := d.values.String("endpoint")
	err := reason(ctx, d.client.Admitted(ctx))
	switch {
	case proxmox.KindOf(err) == proxmox.Unauthorized:
		return red("look at the token in Datacenter > Permissions > API Tokens, and at its name and secret where castle has them from",
			"%s answers and refuses the API token", endpoint)
	case mistrusted(err):
		return red("put the CA of the Proxmox API into a file that SSL_CERT_FILE names, together with the system's", "%s: its certificate is not trusted: %v", endpoint, err)
	case err != nil:
		return red("look at proxmox_endpoint, the network and the host", "%s: %v", endpoint, err)
	}
	if d.values.Bool("insecure") {
		return yellow("give castle its CA instead: proxmox_ca_file and SSL_CERT_FILE", "%s takes the API token; any certificate is accepted, so that anybody may be who answers", endpoint)
	}
	if d.values.Has("ca_file") {
		options, _, err := proxmox.Recorded(d.values)
		options.CA = ""
		if plain, e := proxmox.NewClient(options); err == nil && e == nil && mistrusted(plain.Admitted(ctx)) {
			return red("name the CA's file in SSL_CERT_FILE, together with the system's: Terraform's provider does not read proxmox_ca_file",
				"%s takes the API token, but only castle trusts its certificate", endpoint)
		}
	}
	return green("%s takes the API token", endpoint)
}

// unasked is what every further question says if the API is not there to be asked.
func (d *datacenter) unasked(ctx context.Context, err error) []Finding {
	return grey("%v", reason(ctx, err))
}

// rights compares what the token may with what the stage needs.
func (d *datacenter) rights(ctx context.Context) []Finding {
	_, ids, err := proxmox.Recorded(d.values)
	if err != nil {
		return d.unasked(ctx, err)
	}
	var disks, images []string
	if d.disks != "" {
		disks = []string{d.disks}
	}
	for _, image := range d.images {
		images = append(images, image.Text("datastore_id"))
	}
	slices.Sort(images)
	missing, err := proxmox.MissingRights(ctx, d.client, proxmox.WantedFor(ids, d.nodes, disks, slices.Compact(images), d.bridge()))
	if err != nil {
		return d.unasked(ctx, err)
	}
	if len(missing) > 0 {
		return red("give its role these privileges there, or the token a role that has them; a token with privilege separation needs them itself",
			"the API token lacks %s", strings.Join(missing, "; "))
	}
	excess, err := proxmox.ExcessRights(ctx, d.client)
	own := "make a user and a role for castle that have only what it needs, and a token of that user"
	switch {
	case err != nil:
		return d.unasked(ctx, err)
	case strings.HasPrefix(d.client.User(), "root@pam!"):
		return yellow(own, "the API token is one of root@pam")
	case len(excess) > 0:
		return yellow(own, "the API token may far more than it needs: on / %s", strings.Join(excess, ", "))
	}
	return green("the API token has what it needs, and no key to everything")
}

// bridge is where the machines' cards are plugged in; with its VLAN, if it has one.
func (d *datacenter) bridge() string {
	network := d.inputs(d.stage)["network"]
	if network == cty.NilVal || !network.IsWhollyKnown() || network.IsNull() || !network.Type().IsObjectType() || !network.Type().HasAttribute("bridge") {
		return ""
	}
	return known(network.GetAttr("bridge"))
}

func (d *datacenter) onlineNodes(ctx context.Context) []Finding {
	nodes, err := d.client.Nodes(ctx)
	if err != nil {
		return d.unasked(ctx, err)
	}
	var found []Finding
	var there []string
	for _, n := range nodes {
		there = append(there, n.Name)
	}
	for _, name := range d.nodes {
		i := slices.Index(there, name)
		switch {
		case i < 0:
			found = append(found, red("correct proxmox_node_name, or node_name of the machines", "there is no node %s, only %s", name, strings.Join(there, ", "))...)
		case nodes[i].Status != "online":
			found = append(found, red("bring it back, or give its machines another node", "node %s is %s", name, nodes[i].Status)...)
		}
	}
	if len(found) > 0 {
		return found
	}
	return green("online: %s", strings.Join(d.nodes, ", "))
}

// storages asks every node for the storages that the stage puts things on.
func (d *datacenter) storages(ctx context.Context) []Finding {
	type need struct{ node, storage, content string }
	var needs []need
	for _, node := range d.nodes {
		if d.disks != "" {
			needs = append(needs, need{node, d.disks, "images"})
		}
	}
	for _, image := range d.images {
		needs = append(needs, need{image.Text("node_name"), image.Text("datastore_id"), image.Text("content_type")})
	}
	var found []Finding
	var good []string
	for _, n := range needs {
		all, err := d.client.Storages(ctx, n.node)
		if err != nil {
			return d.unasked(ctx, err)
		}
		i := slices.IndexFunc(all, func(s proxmox.Storage) bool { return s.ID == n.storage })
		where := fmt.Sprintf("storage %s on node %s", n.storage, n.node)
		switch {
		case i < 0:
			found = append(found, red("name another storage, or give the token Datastore.Audit on /storage/"+n.storage, "%s is not there, or not for this token to see", where)...)
		case all[i].Active == 0:
			found = append(found, red("bring it back, or name another storage", "%s is not active", where)...)
		case !all[i].Holds(n.content):
			found = append(found, red(fmt.Sprintf("add it: pvesm set %s --content %s,%s", n.storage, all[i].Content, n.content), "%s may not hold %s, only %s", where, n.content, all[i].Content)...)
		default:
			good = append(good, fmt.Sprintf("%s for %s", n.storage, n.content))
		}
	}
	if len(found) > 0 {
		return found
	}
	slices.Sort(good)
	return green("%s", strings.Join(slices.Compact(good), ", "))
}

// image asks whether each image is there, or whether its node can fetch it.
func (d *datacenter) image(ctx context.Context) []Finding {
	var found []Finding
	for _, image := range d.images {
		node, storage, content, from := image.Text("node_name"), image.Text("datastore_id"), image.Text("content_type"), image.Text("url")
		volume := storage + ":" + content + "/" + image.Text("file_name")
		there, err := d.client.Volumes(ctx, node, storage, content, 0)
		if _, cached := there[volume]; err == nil && cached {
			found = append(found, green("%s is on node %s", volume, node)...)
			continue
		}
		err = d.client.Fetchable(ctx, node, from)
		switch {
		case err == nil:
			found = append(found, green("node %s can fetch it: %s", node, from)...)
		case slices.Contains([]proxmox.Kind{proxmox.Other, proxmox.Forbidden, proxmox.Unauthorized}, proxmox.KindOf(err)):
			found = append(found, d.unasked(ctx, err)...)
		default:
			found = append(found, red("look at the version and schematic in the address, and at the node's own way to it (DNS, gateway, proxy)",
				"node %s cannot fetch %s: %v", node, from, reason(ctx, err))...)
		}
	}
	return found
}

// ids asks the preflight itself.
func (d *datacenter) ids(ctx context.Context, p *config.Preflight) []Finding {
	saw, found := d.inspect(ctx, d.stage, p, d.values)
	if found != nil {
		return found
	}
	found = inTheWay(saw.Foreign)
	for _, own := range saw.Ours {
		if !d.Began(d.stage) {
			found = append(found, red("take it over as it is: castle create "+d.Name+"/"+d.Platform+" --adopt", "%s looks like the cluster's own, but no state here knows it", own.Import.What)...)
		}
	}
	if len(found) > 0 {
		return found
	}
	if len(saw.Present) > 0 {
		return green("nothing foreign; of this cluster: %s", strings.Join(saw.Present, ", "))
	}
	return green("free")
}
