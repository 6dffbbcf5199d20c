package datacenter

import (
	"context"
	"crypto/tls"
	"testing"

	machineapi "github.com/siderolabs/talos/pkg/machinery/api/machine"
	talosapi "github.com/siderolabs/talos/pkg/machinery/client"

	"github.com/ephemeral-castle/castle/internal/emulator/proxmox"
	"github.com/ephemeral-castle/castle/internal/emulator/talos"
)

func TestTheFirstSnapshotIsTheLastSignOfTheControlPlanes(t *testing.T) {
	const address = "127.0.7.131"
	d, log := start(t, Config{Faults: Faults{ControlPlanesLost: true}})
	d.proxmox.AddVM(controlPlane(0, address))
	d.proxmox.AddVM(proxmox.VM{ID: 424, Name: "worker-01"})
	through := through(t, raise(t, d, "127.0.7.130", address), address)
	log.await(t, "kubernetes: answers at", 2)
	if err := complete(snapshotOf(t, through)); err != nil {
		t.Error(err)
	}
	log.await(t, "fault control-planes-lost: ends", 1)
	if vms := d.proxmox.VMs(); len(vms) != 1 || vms[0].ID != 424 {
		t.Errorf("VMs: %+v", vms)
	}
	if stage := d.fleet.Stage(address); stage != talos.Off {
		t.Errorf("the machine is %s", stage)
	}
	log.await(t, "kubernetes: blue is gone", 1)
}

func TestLostMachinesWithoutAHypervisorAreBlank(t *testing.T) {
	const address = "127.0.7.136"
	d, log := start(t, Config{Machines: []talos.Machine{{Address: address, Name: "cp-01"}},
		Faults: Faults{ControlPlanesLost: true, SnapshotCut: true}})
	config, talosconfig := generated(t, "127.0.7.135", address)
	call(t, func(ctx context.Context, c *talosapi.Client) error {
		_, err := c.ApplyConfiguration(ctx, &machineapi.ApplyConfigurationRequest{Data: config})
		return err
	}, talosapi.WithTLSConfig(&tls.Config{InsecureSkipVerify: true}), talosapi.WithEndpoints(address))
	through := through(t, talosconfig, address)
	call(t, func(ctx context.Context, c *talosapi.Client) error {
		return c.Bootstrap(ctx, &machineapi.BootstrapRequest{})
	}, through...)
	log.await(t, "kubernetes: answers at", 2)
	data := snapshotOf(t, through)
	if err := complete(data); err == nil || len(data) == 0 {
		t.Errorf("%d bytes: %v", len(data), err)
	}
	log.await(t, "fault control-planes-lost: ends", 1)
	if stage := d.fleet.Stage(address); stage != talos.Maintenance {
		t.Errorf("the machine is %s", stage)
	}
}
