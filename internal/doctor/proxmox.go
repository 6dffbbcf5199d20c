package doctor

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/zclconf/go-cty/cty"

	"github.com/ephemeral-castle/castle/internal/proxmox"
	"github.com/ephemeral-castle/castle/internal/tfeval"
)

// datacenter is the Proxmox that a stage's preflight vm_ids uses, with the stage's requirements.
type datacenter struct {
	run       *checkRun
	preflight boundPreflight
	client    *proxmox.Client
	nodes     []string
	images    []tfeval.Block
	disks     string // the storage of the machines' disks
	bridge    string // of the machines' network cards
}

// proxmoxChecks checks every Proxmox that a stage uses.
func proxmoxChecks(r *checkRun) (all []check) {
	for _, p := range r.preflights(proxmox.PreflightVMIDs) {
		d, found := newDatacenter(r, p)
		if found != nil {
			all = append(all, check{"proxmox", func(context.Context) []Finding { return found }})
			continue
		}
		all = append(all, check{"proxmox.api", d.api}, check{"proxmox.rights", d.rights},
			check{"proxmox.nodes", d.onlineNodes}, check{"proxmox.storages", d.storages})
		if len(d.images) > 0 {
			all = append(all, check{"proxmox.image", d.image})
		}
		all = append(all, check{"proxmox.vm-ids", d.ids}, clock("proxmox.clock", "Proxmox", d.client.Clock))
	}
	return all
}

func newDatacenter(r *checkRun, p boundPreflight) (*datacenter, []Finding) {
	if !p.values.Has("api_token") {
		why := r.secrets.unread
		if why == "" {
			why = "it is an output of another stage, which has none yet"
		}
		return nil, grey("the API token is not known: %s", why)
	}
	client, err := proxmox.ClientOf(p.values)
	if err == nil {
		err = proxmox.CheckToken(p.values.String("api_token"))
	}
	if err != nil {
		return nil, red("correct it where it is set", "%v", err)
	}
	inputs := r.inputs(p.stage)
	d := &datacenter{
		run: r, preflight: p, client: client, disks: known(inputs["proxmox_disk_datastore"]),
		images: tfeval.Read(p.stage, inputs).Known("resource", "proxmox_virtual_environment_download_file"),
	}
	if network := inputs["network"]; network != cty.NilVal && network.IsWhollyKnown() && !network.IsNull() &&
		network.Type().IsObjectType() && network.Type().HasAttribute("bridge") {
		d.bridge = known(network.GetAttr("bridge"))
	}
	names := map[string]string{}
	// else the configuration's validation reports it
	if err := p.values.Decode("node_names", &names); err == nil {
		d.nodes = slices.Collect(maps.Values(names))
	}
	if node := p.values.String("node_name"); node != "" {
		d.nodes = append(d.nodes, node)
	}
	slices.Sort(d.nodes)
	d.nodes = slices.Compact(d.nodes)
	return d, nil
}

// api checks that Proxmox answers, has a trusted certificate and accepts the token.
func (d *datacenter) api(ctx context.Context) []Finding {
	values := d.preflight.values
	endpoint := values.String("endpoint")
	err := reason(ctx, d.client.Admitted(ctx))
	switch {
	case proxmox.KindOf(err) == proxmox.Unauthorized:
		return red("check the token in Datacenter > Permissions > API Tokens, and its name and secret in "+
			"castle's configuration",
			"%s answers and refuses the API token", endpoint)
	case isUntrusted(err):
		return red("write the CA of the Proxmox API, together with the system's, to a file and set "+
			"SSL_CERT_FILE to it",
			"%s: its certificate is not trusted: %v", endpoint, err)
	case err != nil:
		return red("check proxmox_endpoint, the network and the host", "%s: %v", endpoint, err)
	}
	if values.Bool("insecure") {
		return yellow("set proxmox_ca_file and SSL_CERT_FILE to its CA instead",
			"%s accepts the API token; castle accepts any certificate, so any host may answer", endpoint)
	}
	if values.Has("ca_file") {
		options, _, err := proxmox.Recorded(values)
		options.CA = ""
		if plain, e := proxmox.NewClient(options); err == nil && e == nil &&
			isUntrusted(plain.Admitted(ctx)) {
			return red("set SSL_CERT_FILE to the CA's file, together with the system's: Terraform's "+
				"provider does not read proxmox_ca_file",
				"%s accepts the API token, but only castle trusts its certificate", endpoint)
		}
	}
	return green("%s accepts the API token", endpoint)
}

// isUntrusted reports whether err is about a certificate that is not trusted, or not the host's.
func isUntrusted(err error) bool {
	return errors.As(err, new(*tls.CertificateVerificationError)) ||
		errors.As(err, new(x509.UnknownAuthorityError)) ||
		errors.As(err, new(x509.HostnameError)) || errors.As(err, new(x509.CertificateInvalidError))
}

// rights compares the token's privileges with those that the stage needs.
func (d *datacenter) rights(ctx context.Context) []Finding {
	_, ids, err := proxmox.Recorded(d.preflight.values)
	if err != nil {
		return grey("%v", reason(ctx, err))
	}
	var disks, images []string
	if d.disks != "" {
		disks = []string{d.disks}
	}
	for _, image := range d.images {
		images = append(images, image.Text("datastore_id"))
	}
	slices.Sort(images)
	images = slices.Compact(images)
	missing, err := proxmox.MissingRights(ctx, d.client, ids, d.nodes, disks, images, d.bridge)
	if err != nil {
		return grey("%v", reason(ctx, err))
	}
	if len(missing) > 0 {
		return red("add these privileges to its role, or give the token a role that has them; a token with "+
			"privilege separation needs them itself",
			"the API token lacks %s", strings.Join(missing, "; "))
	}
	excess, err := proxmox.ExcessRights(ctx, d.client)
	const fix = "create a user and a role for castle with only these privileges, and a token of that user"
	switch {
	case err != nil:
		return grey("%v", reason(ctx, err))
	case strings.HasPrefix(d.client.User, "root@pam!"):
		return yellow(fix, "the API token is one of root@pam")
	case len(excess) > 0:
		return yellow(fix, "the API token has more privileges than it needs: on / %s",
			strings.Join(excess, ", "))
	}
	return green("the API token has the privileges that it needs, and no others on /")
}

func (d *datacenter) onlineNodes(ctx context.Context) []Finding {
	nodes, err := d.client.Nodes(ctx)
	if err != nil {
		return grey("%v", reason(ctx, err))
	}
	var found []Finding
	var names []string
	for _, n := range nodes {
		names = append(names, n.Name)
	}
	for _, name := range d.nodes {
		i := slices.Index(names, name)
		switch {
		case i < 0:
			found = append(found, red("correct proxmox_node_name, or node_name of the machines",
				"no node %s, only %s", name, strings.Join(names, ", "))...)
		case nodes[i].Status != "online":
			found = append(found, red("start it, or choose another node for its machines", "node %s is %s",
				name, nodes[i].Status)...)
		}
	}
	return orGreen(found, "online: %s", strings.Join(d.nodes, ", "))
}

// storages checks the storages for the stage's disks and images on every node.
func (d *datacenter) storages(ctx context.Context) []Finding {
	type need struct{ node, storage, content string }
	var needs []need
	for _, node := range d.nodes {
		if d.disks != "" {
			needs = append(needs, need{node, d.disks, "images"})
		}
	}
	for _, image := range d.images {
		needs = append(needs, need{image.Text("node_name"), image.Text("datastore_id"),
			image.Text("content_type")})
	}
	var found []Finding
	var good []string
	for _, n := range needs {
		all, err := d.client.Storages(ctx, n.node)
		if err != nil {
			return grey("%v", reason(ctx, err))
		}
		i := slices.IndexFunc(all, func(s proxmox.Storage) bool { return s.ID == n.storage })
		where := fmt.Sprintf("storage %s on node %s", n.storage, n.node)
		switch {
		case i < 0:
			found = append(found, red("choose another storage, or give the token Datastore.Audit on "+
				"/storage/"+n.storage,
				"%s does not exist, or this token may not see it", where)...)
		case all[i].Active == 0:
			found = append(found, red("activate it, or choose another storage", "%s is not active", where)...)
		case !all[i].Holds(n.content):
			found = append(found, red(fmt.Sprintf("add it: pvesm set %s --content %s,%s", n.storage,
				all[i].Content, n.content),
				"%s does not allow the content %s, only %s", where, n.content, all[i].Content)...)
		default:
			good = append(good, fmt.Sprintf("%s for %s", n.storage, n.content))
		}
	}
	slices.Sort(good)
	return orGreen(found, "%s", strings.Join(slices.Compact(good), ", "))
}

// image checks that each image exists, or that its node can download it.
func (d *datacenter) image(ctx context.Context) []Finding {
	var found []Finding
	for _, image := range d.images {
		node, storage := image.Text("node_name"), image.Text("datastore_id")
		content, from := image.Text("content_type"), image.Text("url")
		volume := storage + ":" + content + "/" + image.Text("file_name")
		volumes, err := d.client.Volumes(ctx, node, storage, content, 0)
		if _, exists := volumes[volume]; err == nil && exists {
			found = append(found, green("%s is on node %s", volume, node)...)
			continue
		}
		err = d.client.Fetchable(ctx, node, from)
		switch {
		case err == nil:
			found = append(found, green("node %s can download it: %s", node, from)...)
		case slices.Contains([]proxmox.Kind{proxmox.Other, proxmox.Forbidden, proxmox.Unauthorized},
			proxmox.KindOf(err)):
			found = append(found, grey("%v", reason(ctx, err))...)
		default:
			found = append(found, red("check the version and schematic in the address, and the node's "+
				"network (DNS, gateway, proxy)",
				"node %s cannot download %s: %v", node, from, reason(ctx, err))...)
		}
	}
	return found
}

// ids runs the preflight itself.
func (d *datacenter) ids(ctx context.Context) []Finding {
	saw, found := d.run.inspect(ctx, d.preflight)
	if found != nil {
		return found
	}
	found = obstacles(saw.Foreign...)
	t := d.run.target
	for _, own := range saw.Ours {
		if !t.Started(d.preflight.stage) {
			found = append(found, red("import it: castle create "+t.Name+"/"+t.Platform+" --adopt",
				"%s looks like the cluster's own, but no state here has it", own.Import.What)...)
		}
	}
	if len(saw.Present) > 0 {
		return orGreen(found, "nothing foreign; of this cluster: %s", strings.Join(saw.Present, ", "))
	}
	return orGreen(found, "free")
}
