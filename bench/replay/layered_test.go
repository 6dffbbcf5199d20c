package main

import (
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/ephemeral-castle/castle/internal/operation/topology"
)

// graphOf makes a graph of lines such as "networking/pool 3 metallb | 2 sync": duration and needs, then those
// of the late gate.
func graphOf(lines string) *topology.Graph {
	g := &topology.Graph{}
	for line := range strings.Lines(lines) {
		own, late, gated := strings.Cut(line, "|")
		fields := strings.Fields(own)
		s := topology.Stage{}
		s.Layer, s.Name, _ = strings.Cut(fields[0], "/")
		read := func(fields []string, gate string) *float64 {
			for _, from := range fields[1:] {
				g.Edges = append(g.Edges, topology.Edge{From: from, To: s.Name, Late: gate})
			}
			seconds, err := strconv.ParseFloat(fields[0], 64)
			if err != nil {
				return nil
			}
			return &seconds
		}
		s.Seconds = read(fields[1:], "")
		if gated {
			s.Gates = []topology.Gate{{Name: "flux.converged", Late: true}}
			s.GateSeconds = read(strings.Fields(late), "flux.converged")
		}
		g.Stages = append(g.Stages, s)
	}
	return g
}

func TestLayerByLayerTakesAsLongAsTheScript(t *testing.T) {
	for name, c := range map[string]struct {
		stages        string
		path, layered time.Duration
	}{
		"nothing": {},
		"what could run at once runs one after the other": {
			`secrets/vault 2
			secrets/vault-jwt 5
			platform/machines 30 vault
			engine/secret-engine 4 vault`, 32, 41,
		},
		"the last three layers run at once, a chain each": {
			`platform/machines 30
			networking/metallb 10 machines
			networking/pool 5 metallb
			storage/longhorn 20 machines
			gitops/flux 4 machines
			gitops/other 7 machines`, 50, 50,
		},
		"inside a chain a stage waits for one that it does not need": {
			`platform/machines 30
			networking/metallb 10 machines
			networking/ingress 15 machines
			storage/longhorn 20 machines`, 50, 55,
		},
		"no chain begins before the engine is ready, needed or not": {
			`platform/machines 30
			engine/operator 8 machines
			storage/longhorn 20 machines`, 50, 58,
		},
		"chains that need each other wait for each other": {
			`platform/machines 30
			storage/longhorn 20 machines
			networking/metallb 10 machines
			networking/backup-address 5 longhorn
			gitops/flux 4 machines
			gitops/sync 6 flux backup-address`, 61, 61,
		},
		"whatever the order in which they are listed": {
			`networking/pool 5 metallb
			networking/metallb 10 machines
			engine/store 3 operator
			engine/operator 8 machines
			platform/machines 30`, 45, 56,
		},
		"a late gate is waited for by what comes after its stage": {
			`platform/machines 30
			networking/metallb 10 machines
			storage/longhorn 20 machines
			gitops/sync 3 machines | 6 metallb longhorn
			gitops/notices 9 machines`, 56, 65,
		},
		"a late gate of an earlier layer holds the next one back": {
			`platform/machines 30
			engine/operator 2 machines | 7 machines
			networking/metallb 10 machines`, 40, 49,
		},
		"a late gate may wait for a later stage of its own layer": {
			`gitops/notices 3 | 2 sync
			gitops/sync 4`, 6, 9,
		},
	} {
		t.Run(name, func(t *testing.T) {
			d, err := durationsOf(graphOf(c.stages))
			if err != nil {
				t.Fatal(err)
			}
			if layered, err := d.layerByLayer(); err != nil || layered != c.layered*time.Second {
				t.Errorf("layer by layer: %s, %v; want %ds", layered, err, c.layered)
			}
			path, err := d.longest(func(n node) []node { return d.needs[n] })
			if err != nil || path != c.path*time.Second {
				t.Errorf("critical path: %s, %v; want %ds", path, err, c.path)
			}
		})
	}
}

func TestWhatCastleHasNotMeasuredHasNoTimeInTheScript(t *testing.T) {
	for _, stages := range []string{"platform/machines -", "gitops/sync 3 | -"} {
		if _, err := durationsOf(graphOf(stages)); err == nil {
			t.Errorf("%s: no error", stages)
		}
	}
}
