package doctor

import (
	"cmp"
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/ephemeral-castle/castle/internal/proxmox"
	"github.com/ephemeral-castle/castle/internal/tfeval"
)

// datacenter is the Proxmox that a stage's preflight vm_ids uses, with the stage's requirements.
type datacenter struct {
	client    *proxmox.Client
	options   proxmox.Options
	cluster   string
	footprint proxmox.Footprint
	images    []image
}

// image is a file that a node downloads to a storage.
type image struct{ node, storage, content, file, url string }

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
		if d.footprint.Pool != "" {
			all = append(all, check{"proxmox.pool", d.pool})
		}
		if len(d.images) > 0 {
			all = append(all, check{"proxmox.image", d.downloads})
		}
		ids := func(ctx context.Context) []Finding { return r.inspect(ctx, p, "free") }
		all = append(all, check{"proxmox.vm-ids", ids}, clock("proxmox.clock", "Proxmox", d.client.Clock))
	}
	return all
}

func newDatacenter(r *checkRun, p boundPreflight) (*datacenter, []Finding) {
	if !p.values.Has("api_token") {
		return nil, grey("the API token is not known: " +
			cmp.Or(r.secrets.unread, "it is an output of another stage, which has none yet"))
	}
	d := &datacenter{cluster: r.target.Name}
	var err error
	if d.options, d.footprint.Machines, err = proxmox.Recorded(p.values); err == nil {
		d.client, err = proxmox.NewClient(d.options)
	}
	if err = cmp.Or(err, proxmox.CheckToken(d.options.Token)); err != nil {
		return nil, red("correct it where it is set", "%v", err)
	}
	inputs := r.inputs(p.stage)
	d.footprint.Pool = p.values.String("pool")
	d.footprint.Disks = tfeval.Text(inputs["proxmox_disk_datastore"])
	d.footprint.Bridge = tfeval.Text(tfeval.Attribute(inputs["network"], "bridge"))
	for _, q := range append(r.preflights(proxmox.PreflightStorage), p) {
		module := tfeval.Read(q.stage, r.inputs(q.stage))
		for _, b := range module.Known("resource", "proxmox_virtual_environment_download_file") {
			d.images = append(d.images, image{b.Text("node_name"), b.Text("datastore_id"),
				b.Text("content_type"), b.Text("file_name"), b.Text("url")})
			d.footprint.Images = append(d.footprint.Images, b.Text("datastore_id"))
		}
	}
	slices.Sort(d.footprint.Images)
	d.footprint.Images = slices.Compact(d.footprint.Images)
	names := map[string]string{}
	_ = p.values.Decode("node_names", &names) // the configuration's validation reports an error
	if node := p.values.String("node_name"); node != "" {
		names[""] = node
	}
	d.footprint.Nodes = slices.Compact(slices.Sorted(maps.Values(names)))
	return d, nil
}

// api checks that Proxmox answers, has a trusted certificate and accepts the token.
func (d *datacenter) api(ctx context.Context) []Finding {
	endpoint := d.options.Endpoint
	err := reason(ctx, d.client.Admitted(ctx))
	switch {
	case proxmox.KindOf(err) == proxmox.Unauthorized:
		return red("check the token in Datacenter > Permissions > API Tokens, and its name and secret in "+
			"castle's configuration", "%s answers and refuses the API token", endpoint)
	case isUntrusted(err):
		return red("write the CA of the Proxmox API, together with the system's, to a file and set "+
			"SSL_CERT_FILE to it", "%s: its certificate is not trusted: %v", endpoint, err)
	case err != nil:
		return red("check proxmox_endpoint, the network and the host", "%s: %v", endpoint, err)
	case d.options.Insecure:
		return yellow("set proxmox_ca_file and SSL_CERT_FILE to its CA instead",
			"%s accepts the API token; castle accepts any certificate, so any host may answer", endpoint)
	}
	plain := d.options
	plain.CA = ""
	if c, err := proxmox.NewClient(plain); err == nil && plain != d.options && isUntrusted(c.Admitted(ctx)) {
		return red("set SSL_CERT_FILE to the CA's file, together with the system's: Terraform's provider "+
			"does not read proxmox_ca_file",
			"%s accepts the API token, but only castle trusts its certificate", endpoint)
	}
	return green("%s accepts the API token", endpoint)
}

// isUntrusted reports whether err is about a certificate that is not trusted, or not the host's.
func isUntrusted(err error) bool {
	return errors.As(err, new(*tls.CertificateVerificationError)) ||
		errors.As(err, new(x509.UnknownAuthorityError)) ||
		errors.As(err, new(x509.HostnameError)) || errors.As(err, new(x509.CertificateInvalidError))
}

// rights compares the token's privileges with those that the stage needs, and with its pool.
func (d *datacenter) rights(ctx context.Context) []Finding {
	missing, err := d.footprint.Missing(ctx, d.client)
	if err != nil {
		return grey(reason(ctx, err))
	}
	outside, err := d.footprint.Outside(ctx, d.client)
	if err != nil {
		return grey(reason(ctx, err))
	}
	excess, err := proxmox.ExcessRights(ctx, d.client)
	var found []Finding
	if len(missing) > 0 {
		found = red("add these privileges to its role, or give the token a role that has them; a token with "+
			"privilege separation needs them itself", "the API token lacks %s", strings.Join(missing, "; "))
	}
	switch {
	case len(outside) > 0:
		limited, fix := d.footprint, ""
		if limited.Pool == "" {
			limited.Pool, fix = d.cluster, fmt.Sprintf("set proxmox_pool = %q, ", d.cluster)
		}
		fix += "use a token that is limited to the pool (docs/proxmox.md), from these commands on a node: " +
			strings.Join(limited.Commands("castle@pve!"+limited.Pool), "; ")
		return append(found, red(fix,
			"the API token may change or delete machines outside of the cluster's pool: %s",
			strings.Join(outside, "; "))...)
	case err != nil:
		return append(found, grey(reason(ctx, err))...)
	case len(excess) > 0:
		return append(found, yellow("create a user and a role for castle with only the privileges that it "+
			"needs, and a token of that user", "the API token has more privileges than it needs: on / %s",
			strings.Join(excess, ", "))...)
	}
	return orGreen(found, "the API token has the privileges that it needs, and none on machines outside of "+
		"the pool %s", d.footprint.Pool)
}

func (d *datacenter) onlineNodes(ctx context.Context) []Finding {
	nodes, err := d.client.Nodes(ctx)
	if err != nil {
		return grey(reason(ctx, err))
	}
	var found []Finding
	for _, name := range d.footprint.Nodes {
		status, exists := nodes[name]
		switch {
		case !exists:
			found = append(found, red("correct proxmox_node_name, or node_name of the machines",
				"no node %s, only %s", name, strings.Join(slices.Sorted(maps.Keys(nodes)), ", "))...)
		case status != "online":
			found = append(found,
				red("start it, or choose another node for its machines", "node %s is %s", name, status)...)
		}
	}
	return orGreen(found, "online: %s", strings.Join(d.footprint.Nodes, ", "))
}

func (d *datacenter) pool(ctx context.Context) []Finding {
	what, fix, err := proxmox.PoolProblem(ctx, d.client, d.footprint.Pool)
	switch {
	case err != nil:
		return grey(reason(ctx, err))
	case what != "":
		return red(fix, "%s", what)
	}
	return green("pool %s exists", d.footprint.Pool)
}

// storages checks the storages for the stage's disks and images on every node.
func (d *datacenter) storages(ctx context.Context) []Finding {
	needs := slices.Clone(d.images)
	if d.footprint.Disks != "" {
		for _, node := range d.footprint.Nodes {
			needs = append(needs, image{node: node, storage: d.footprint.Disks, content: "images"})
		}
	}
	var found []Finding
	var good []string
	for _, n := range needs {
		what, fix, err := proxmox.StorageProblem(ctx, d.client, n.node, n.storage, n.content)
		switch {
		case err != nil:
			return grey(reason(ctx, err))
		case what != "":
			found = append(found, red(fix, "%s", what)...)
		default:
			good = append(good, fmt.Sprintf("%s for %s", n.storage, n.content))
		}
	}
	slices.Sort(good)
	return orGreen(found, "%s", strings.Join(slices.Compact(good), ", "))
}

// downloads checks that each image exists, or that its node can download it.
func (d *datacenter) downloads(ctx context.Context) (found []Finding) {
	for _, i := range d.images {
		volume := i.storage + ":" + i.content + "/" + i.file
		volumes, err := d.client.Volumes(ctx, i.node, i.storage, i.content, 0)
		if _, exists := volumes[volume]; err == nil && exists {
			found = append(found, green("%s is on node %s", volume, i.node)...)
			continue
		}
		err = d.client.Fetchable(ctx, i.node, i.url)
		kind := proxmox.KindOf(err)
		switch {
		case err == nil:
			found = append(found, green("node %s can download it: %s", i.node, i.url)...)
		case kind == proxmox.Other || kind == proxmox.Forbidden || kind == proxmox.Unauthorized:
			found = append(found, grey(reason(ctx, err))...)
		default:
			found = append(found, red("check the version and schematic in the address, and the node's "+
				"network (DNS, gateway, proxy)", "node %s cannot download %s: %v", i.node, i.url,
				reason(ctx, err))...)
		}
	}
	return found
}
