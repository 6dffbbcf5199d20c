package proxmox

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"time"

	"github.com/ephemeral-castle/castle/internal/gate"
	"github.com/ephemeral-castle/castle/internal/platform"
	"github.com/ephemeral-castle/castle/internal/platform/proxmox/values"
	"github.com/ephemeral-castle/castle/internal/revision"
)

// lookTime bounds a look at the revisions. A create that needs the answer asks more patiently.
const lookTime = 10 * time.Second

// Revisions reads the revisions of a stage's machines and files. A machine's is a digest of its configuration
// with its node, and whether it is stopped; a file's is its size. The datacenter is the preflights'.
func Revisions() revision.System {
	const name = "proxmox"
	read := func(ctx context.Context, s revision.Stage, known []revision.Object) ([]revision.Object, error) {
		all := slices.Clone(known)
		if known == nil {
			all = revisable(s)
		}
		if len(all) == 0 {
			return nil, nil
		}
		values := s.Preflights[PreflightVMIDs]
		if values == nil {
			values = s.Preflights[PreflightStorage]
		}
		if values == nil && known == nil {
			return nil, nil // nobody says where to ask
		}
		client, err := ClientOf(values)
		if err != nil {
			return nil, err
		}
		ctx, stop := context.WithTimeout(ctx, lookTime)
		defer stop()
		for i := range all {
			all[i].System, all[i].Revision = name, ""
		}
		return all, readRevisions(ctx, client, all)
	}
	return revision.System{Name: name, Read: read}
}

const kindVM = "VM"

// revisable lists the machines and files of a stage.
func revisable(s revision.Stage) (all []revision.Object) {
	for _, r := range s.State.Managed() {
		known := []gate.Known{{Address: r.Address, Type: r.Type, Attributes: r.Attributes}}
		for _, o := range values.ObjectsOf(known) {
			one := revision.Object{Kind: o.Kind, Name: o.Volume, Ref: o.Node, Address: r.Address}
			if o.Kind == platform.Machine {
				one.Kind, one.Name, one.Ref = kindVM, fmt.Sprintf("%d %s", o.VM, o.Name), o.ID()
			}
			if o.Kind != platform.Disk && !r.Deposed {
				all = append(all, one)
			}
		}
	}
	return all
}

// readRevisions sets the revisions of the objects that exist: with one list of guests, one request for each
// machine, and one list of volumes for each node, storage and type of content.
func readRevisions(ctx context.Context, c *Client, all []revision.Object) error {
	lists := map[string][]*revision.Object{}
	for i := range all {
		o, list := &all[i], all[i].Kind
		if !slices.Contains([]string{kindVM, platform.HAResource, platform.HARule}, list) {
			list = o.Ref + " " + values.StorageOf(o.Name) + " " + values.ContentOf(o.Name)
		}
		lists[list] = append(lists[list], o)
	}
	errs := make(chan error, len(lists))
	for list, objects := range lists {
		read := readFiles
		switch list {
		case kindVM:
			read = readMachines
		case platform.HAResource, platform.HARule:
			read = readAvailability
		}
		go func() { errs <- read(ctx, c, objects) }()
	}
	var err error
	for range lists {
		err = errors.Join(err, <-errs)
	}
	return err
}

func readFiles(ctx context.Context, c *Client, files []*revision.Object) error {
	first := files[0]
	sizes, err := c.Volumes(ctx, first.Ref, values.StorageOf(first.Name), values.ContentOf(first.Name), 0)
	for _, o := range files {
		if size, exists := sizes[o.Name]; exists {
			o.Revision = strconv.FormatInt(size, 10)
		}
	}
	return err
}

func readMachines(ctx context.Context, c *Client, machines []*revision.Object) error {
	guests, err := c.Guests(ctx)
	if err != nil {
		return err
	}
	errs := make([]error, len(machines))
	together(len(machines), func(i int) {
		machines[i].Revision, errs[i] = machineRevision(ctx, c, guests, machines[i].Ref)
	})
	return errors.Join(errs...)
}

// machineRevision returns the revision of a machine; empty if there is none with the id. A machine that is
// not listed may be hidden from the token.
func machineRevision(ctx context.Context, c *Client, guests []Guest, id string) (string, error) {
	i := slices.IndexFunc(guests, func(g Guest) bool { return g.isVM() && strconv.Itoa(g.ID) == id })
	if i < 0 {
		number, err := strconv.Atoi(id)
		if err != nil {
			return "", err
		}
		taken, err := c.Taken(ctx, number)
		if taken && err == nil {
			err = fmt.Errorf("proxmox: VM %s is not listed, and its id is taken", id)
		}
		return "", err
	}
	g, err := c.configured(ctx, guests[i])
	if KindOf(err) == Missing {
		return "", nil
	}
	return g.Node + "/" + g.Config.Revision() + textIf(g.Status == "stopped", "/stopped"), err
}
