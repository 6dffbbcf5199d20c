// Package doctor has doctor's checks of Proxmox.
package doctor

import (
	"cmp"
	"context"
	"crypto/sha256"
	"crypto/tls"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"sync"

	"github.com/zclconf/go-cty/cty"

	"github.com/ephemeral-castle/castle/internal/doctor/finding"
	"github.com/ephemeral-castle/castle/internal/platform"
	"github.com/ephemeral-castle/castle/internal/platform/proxmox"
	"github.com/ephemeral-castle/castle/internal/platform/proxmox/host"
	"github.com/ephemeral-castle/castle/internal/tfeval"
)

// examined is the Proxmox that a stage's preflight vm_ids uses, with the stage's requirements.
type examined struct {
	client    *proxmox.Client
	options   platform.Account
	cluster   string
	footprint proxmox.Footprint
	uses      []host.Use
	images    []download
	asking    sync.Once
	admitted  error // of the API: nil once it has accepted the token
}

// download is a file that a node downloads to a storage. The factory may not know its schematic yet.
type download struct {
	node, storage, content, file, url string
	madeFirst                         bool
}

// Checks checks the Proxmox of a stage's machines.
func Checks(s platform.Subject) []finding.Check {
	d, found := examine(s)
	if found != nil {
		unusable := func(context.Context) []finding.Finding { return found }
		return []finding.Check{{Name: "proxmox", Run: unusable}}
	}
	all := []finding.Check{{Name: "proxmox.api", Run: d.api}, {Name: "proxmox.rights", Run: d.rights},
		{Name: "proxmox.nodes", Run: d.onlineNodes}, {Name: "proxmox.storages", Run: d.storages}}
	if d.footprint.Pool != "" {
		all = append(all, finding.Check{Name: "proxmox.pool", Run: d.pool})
	}
	if len(d.images) > 0 {
		all = append(all, finding.Check{Name: "proxmox.image", Run: d.downloads})
	}
	machines := func(ctx context.Context) []finding.Finding { return d.machines(ctx, s) }
	ids := func(ctx context.Context) []finding.Finding { return s.Inspect(ctx, s.Machines, "free") }
	all = append(all, finding.Check{Name: "proxmox.vm-ids", Run: ids},
		finding.Check{Name: "proxmox.machines", Run: machines},
		finding.Clock("proxmox.clock", "Proxmox", d.client.Clock))
	for i, check := range all[1:] { // the first one reports a certificate
		all[i+1].Run = func(ctx context.Context) []finding.Finding {
			if isUntrusted(d.admit(ctx)) {
				return finding.Unchecked("the certificate of Proxmox is not trusted, see above")
			}
			return check.Run(ctx)
		}
	}
	return all
}

// admit asks once whether Proxmox accepts the token.
func (d *examined) admit(ctx context.Context) error {
	d.asking.Do(func() { d.admitted = finding.Reason(ctx, d.client.Admitted(ctx)) })
	return d.admitted
}

// machines checks that the machines of the state are as castle has left them.
func (d *examined) machines(ctx context.Context, s platform.Subject) (found []finding.Finding) {
	known, err := s.Known()
	if err != nil {
		return finding.Obstacle("", "%v", err)
	}
	facts, err := proxmox.Search{Client: d.client}.Facts(ctx, known)
	switch {
	case err != nil:
		return finding.Unchecked(finding.Reason(ctx, err))
	case len(facts) == 0:
		return nil // nothing is created
	}
	for _, f := range facts {
		for _, line := range f.Lines(s.Create) {
			text, fix, _ := strings.Cut(line, "; ")
			found = append(found, finding.Warning(cmp.Or(fix, "castle plan shows what a create would change"),
				"%s", text)...)
		}
	}
	return finding.OrGood(found, "%d are as castle has left them", len(facts))
}

func examine(s platform.Subject) (*examined, []finding.Finding) {
	p := s.Machines
	if !p.Values.Has("api_token") {
		return nil, finding.Unchecked("the API token is not known: " +
			cmp.Or(s.Unread, "it is an output of another stage, which has none yet"))
	}
	d := &examined{cluster: s.Cluster}
	var err error
	if d.options, d.footprint.Machines, err = proxmox.AccountOf(p.Values); err == nil {
		d.client, err = proxmox.NewClient(d.options)
	}
	if err = cmp.Or(err, proxmox.CheckToken(d.options.Token)); err != nil {
		return nil, finding.Obstacle("correct it where it is set", "%v", err)
	}
	d.footprint.Pool = p.Values.String("pool")
	uses, err := host.UsesOf(p.Values)
	if err != nil {
		return nil, finding.Obstacle("correct it where it is set", "%v", err)
	}
	for _, key := range slices.Sorted(maps.Keys(uses)) {
		d.uses = append(d.uses, uses[key])
	}
	d.footprint.Uses(d.uses)
	for _, q := range append(slices.Clone(s.Others), p) {
		module := tfeval.Read(q.Stage, q.Inputs)
		// Whether a storage is shared decides how often a file is fetched, and not who needs it.
		module.SetData(map[string]map[string]cty.Value{"proxmox_datastores": {"here": cty.ObjectVal(
			map[string]cty.Value{"datastores": cty.EmptyTupleVal})}})
		for _, b := range module.Known("resource", "proxmox_virtual_environment_download_file") {
			made := func(schematic tfeval.Block) bool {
				id := fmt.Sprintf("%x", sha256.Sum256([]byte(schematic.Text("schematic"))))
				return strings.Contains(b.Text("url"), "/"+id+"/")
			}
			d.images = append(d.images, download{b.Text("node_name"), b.Text("datastore_id"),
				b.Text("content_type"), b.Text("file_name"), b.Text("url"),
				slices.ContainsFunc(module.Known("resource", "talos_image_factory_schematic"), made)})
			d.footprint.Images = append(d.footprint.Images, b.Text("datastore_id"))
		}
	}
	slices.Sort(d.footprint.Images)
	d.footprint.Images = slices.Compact(d.footprint.Images)
	names := map[string]string{}
	_ = p.Values.Decode("node_names", &names) // the configuration's validation reports an error
	if node := p.Values.String("node_name"); node != "" {
		names[""] = node
	}
	d.footprint.Nodes = slices.Compact(slices.Sorted(maps.Values(names)))
	return d, nil
}

// api checks that Proxmox answers, has a trusted certificate and accepts the token.
func (d *examined) api(ctx context.Context) []finding.Finding {
	endpoint := d.options.Endpoint
	err := d.admit(ctx)
	switch {
	case proxmox.KindOf(err) == proxmox.Unauthorized:
		return finding.Obstacle(
			"check the token in Datacenter > Permissions > API Tokens, and its name and secret in "+
				"castle's configuration", "%s answers and refuses the API token", endpoint)
	case isUntrusted(err):
		return finding.Obstacle(
			"copy the CA /etc/pve/pve-root-ca.pem from a node, and set proxmox_ca_file to it; for "+
				"Terraform's provider, set SSL_CERT_FILE to a file with it and the system's CAs",
			"%s: its certificate is not trusted: %v", endpoint, err)
	case err != nil:
		return finding.Obstacle("check proxmox_endpoint, the network and the host", "%s: %v", endpoint, err)
	case d.options.Insecure:
		return finding.Warning("set proxmox_ca_file and SSL_CERT_FILE to its CA instead",
			"%s accepts the API token; castle accepts any certificate, so any host may answer", endpoint)
	}
	plain := d.options
	plain.CA = ""
	if c, err := proxmox.NewClient(plain); err == nil && plain != d.options && isUntrusted(c.Admitted(ctx)) {
		return finding.Obstacle(
			"set SSL_CERT_FILE to the CA's file, together with the system's: Terraform's provider "+
				"does not read proxmox_ca_file",
			"%s accepts the API token, but only castle trusts its certificate", endpoint)
	}
	return finding.Good("%s accepts the API token", endpoint)
}

// isUntrusted reports whether err is about a certificate that is not trusted, or not the host's.
func isUntrusted(err error) bool {
	return errors.As(err, new(*tls.CertificateVerificationError))
}

// rights compares the token's privileges with those that the stage needs, and with its pool.
func (d *examined) rights(ctx context.Context) []finding.Finding {
	missing, err := d.footprint.Missing(ctx, d.client)
	if err != nil {
		return finding.Unchecked(finding.Reason(ctx, err))
	}
	outside, err := d.footprint.Outside(ctx, d.client)
	if err != nil {
		return finding.Unchecked(finding.Reason(ctx, err))
	}
	excess, err := d.footprint.Excess(ctx, d.client)
	var found []finding.Finding
	if len(missing) > 0 {
		found = finding.Obstacle(
			"add these privileges to its role, or give the token a role that has them; a token with "+
				"privilege separation needs them itself", "the API token lacks %s", strings.Join(missing,
				"; "))
	}
	switch {
	case len(outside) > 0:
		limited, fix := d.footprint, ""
		if limited.Pool == "" {
			limited.Pool, fix = d.cluster, fmt.Sprintf("set proxmox_pool = %q, ", d.cluster)
		}
		fix += "use a token that is limited to the pool (docs/proxmox.md), from these commands on a node: " +
			strings.Join(limited.Commands("castle@pve!"+limited.Pool), "; ")
		return append(found, finding.Obstacle(fix,
			"the API token may change or delete machines outside of the cluster's pool: %s",
			strings.Join(outside, "; "))...)
	case err != nil:
		return append(found, finding.Unchecked(finding.Reason(ctx, err))...)
	case len(excess) > 0:
		return append(found, finding.Warning(
			"create a user and a role for castle with only the privileges that it "+
				"needs, and a token of that user", "the API token has more privileges than it needs: on / %s",
			strings.Join(excess, ", "))...)
	}
	return finding.OrGood(found,
		"the API token has the privileges that it needs, and none on machines outside of "+
			"the pool %s", d.footprint.Pool)
}

func (d *examined) onlineNodes(ctx context.Context) []finding.Finding {
	nodes, err := d.client.Nodes(ctx)
	if err != nil {
		return finding.Unchecked(finding.Reason(ctx, err))
	}
	var found []finding.Finding
	for _, name := range d.footprint.Nodes {
		status, exists := nodes[name]
		switch {
		case !exists:
			found = append(found, finding.Obstacle("correct proxmox_node_name, or node_name of the machines",
				"no node %s, only %s", name, strings.Join(slices.Sorted(maps.Keys(nodes)), ", "))...)
		case status != "online":
			found = append(found,
				finding.Obstacle("start it, or choose another node for its machines", "node %s is %s", name,
					status)...)
		}
	}
	return finding.OrGood(found, "online: %s", strings.Join(d.footprint.Nodes, ", "))
}

func (d *examined) pool(ctx context.Context) []finding.Finding {
	p, err := d.client.Hosts().PoolProblem(ctx, d.footprint.Pool)
	switch {
	case err != nil:
		return finding.Unchecked(finding.Reason(ctx, err))
	case p.What != "":
		return finding.Obstacle(p.Fix, "%s", p.What)
	}
	return finding.Good("pool %s exists", d.footprint.Pool)
}

// storages checks what the machines use of each node: the storages of disks and images, bridges, devices.
func (d *examined) storages(ctx context.Context) []finding.Finding {
	var found []finding.Finding
	var good []string
	for _, n := range d.images {
		p, _, err := d.client.Hosts().StorageProblem(ctx, n.node, n.storage, n.content)
		switch {
		case err != nil:
			return finding.Unchecked(finding.Reason(ctx, err))
		case p.What != "":
			found = append(found, finding.Obstacle(p.Fix, "%s", p.What)...)
		default:
			good = append(good, fmt.Sprintf("%s for %s", n.storage, n.content))
		}
	}
	problems, err := d.client.Hosts().Problems(ctx, d.uses)
	if err != nil {
		return finding.Unchecked(finding.Reason(ctx, err))
	}
	for _, p := range problems {
		found = append(found, finding.Obstacle(p.Fix, "%s", p.What)...)
	}
	for _, storage := range d.footprint.Disks {
		good = append(good, storage+" for images")
	}
	slices.Sort(good)
	return finding.OrGood(found, "%s", strings.Join(slices.Compact(good), ", "))
}

// downloads checks that each image exists, or that its node can download it.
func (d *examined) downloads(ctx context.Context) (found []finding.Finding) {
	for _, i := range d.images {
		volume := i.storage + ":" + i.content + "/" + i.file
		volumes, err := d.client.Volumes(ctx, i.node, i.storage, i.content, 0)
		if _, exists := volumes[volume]; err == nil && exists {
			found = append(found, finding.Good("%s is on node %s", volume, i.node)...)
			continue
		}
		err = d.client.Fetchable(ctx, i.node, i.url)
		kind := proxmox.KindOf(err)
		switch {
		case err == nil:
			found = append(found, finding.Good("node %s can download it: %s", i.node, i.url)...)
		case kind == proxmox.Other || kind == proxmox.Forbidden || kind == proxmox.Unauthorized:
			found = append(found, finding.Unchecked(finding.Reason(ctx, err))...)
		case i.madeFirst:
			found = append(found, finding.Unchecked("the image factory makes the schematic first: "+i.url)...)
		default:
			found = append(found, finding.Obstacle(
				"check the version and schematic in the address, and the node's "+
					"network (DNS, gateway, proxy)", "node %s cannot download %s: %v", i.node, i.url,
				finding.Reason(ctx, err))...)
		}
	}
	return found
}
