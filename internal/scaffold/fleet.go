package scaffold

import (
	"fmt"
	"maps"
	"path"
	"slices"
	"strconv"
	"strings"

	"github.com/siderolabs/gen/xslices"

	"github.com/ephemeral-castle/castle/internal/fleet"
)

// Fleet describes the pipeline of many clusters.
type Fleet struct {
	Parts []fleet.Part
	// Since is the reference where a change began: GitLab's file is then that of its clusters alone.
	Since   string
	Touched []fleet.Cluster // by that change
	Child   string          // the command that writes this file, without --since and --file
}

// Leg is one cluster in a matrix of GitHub.
type Leg struct {
	Cluster string `json:"cluster"` // blue/proxmox
	ID      string `json:"id"`      // blue-proxmox: its environment
	Prefix  string `json:"prefix"`  // BLUE_: of secrets for this cluster alone
	Runner  string `json:"runner"`  // the label of its runners
}

// Legs returns the matrix of clusters. Of a name that is on two platforms, the prefix has the platform.
func Legs(clusters []fleet.Cluster, all []string) []Leg {
	return append([]Leg{}, xslices.Map(clusters, func(c fleet.Cluster) Leg {
		p := PipelineCluster{Name: c.Name, Reference: Reference(c.Name, all)}
		return Leg{Cluster: c.Name, ID: p.ID(), Prefix: p.Prefix(), Runner: c.Runner("self-hosted")}
	})...)
}

// Reference is the shortest name of a cluster among all: blue, or blue/proxmox.
func Reference(name string, all []string) string {
	short := path.Dir(name)
	others := func(other string) bool { return other != name && path.Dir(other) == short }
	if slices.ContainsFunc(all, others) {
		return name
	}
	return short
}

// renderFleet renders fleet-github.yml or fleet-gitlab.yml.
func renderFleet(s PipelineSystem, v *pipelineValues) ([]byte, error) {
	f := v.Pipeline.Fleet
	files := slices.ContainsFunc(v.Clusters, func(c PipelineCluster) bool { return c.SecretsFile })
	legs := func(all []fleet.Cluster) []map[string]any {
		return append([]map[string]any{}, xslices.Map(all, func(c fleet.Cluster) map[string]any {
			return map[string]any{"name": c.Name, "runner": c.Runner(v.Pipeline.Runner)}
		})...)
	}
	parts, before, stages := []map[string]any{}, "", ""
	for _, p := range f.Parts {
		if f.Since != "" && len(p.Clusters) == 0 {
			continue // the file is that of one change
		}
		pause, approval := int(p.Wave.Pause.Seconds()), p.Wave.Approval
		if !p.First {
			pause, approval = 0, false // the canary has had them
		}
		one := map[string]any{"name": p.Name, "wave": p.Wave.Name, "clusters": legs(p.Clusters),
			"approval": approval, "pause": pause, "pause_minutes": pause/60 + 15,
			"begin":    approval || pause > 0,
			"parallel": p.Wave.Parallel, "soak": int(p.Wave.Soak.Seconds()),
			"interval": min(15, int(p.Wave.Soak.Seconds())),
			"minutes":  180 + int(p.Wave.Soak.Minutes()), "before": before, "needs": before}
		if approval || pause > 0 {
			one["needs"] = before + ", begin-" + p.Name
		}
		before += ", wave-" + p.Name
		for _, suffix := range []string{"-approve", "-pause", ""} {
			stages += ", " + p.Name + suffix
		}
		parts = append(parts, one)
	}
	data := v.data("parts", parts)
	runner := []string{"self-hosted", "${{ matrix.runner }}"}
	if v.Pipeline.Runner != "" {
		runner = append(runner, v.Pipeline.Runner)
	}
	maps.Copy(data, map[string]any{"all": before, "stages": stages, "since": f.Since, "child": f.Child,
		"touched": legs(f.Touched), "matrix_labels": yamlList(runner),
		"remove": strconv.Quote(`rm -f "$CI_PROJECT_DIR"/` + word(path.Join(v.Folder, "clusters")) +
			`/"$CLUSTER"/secrets.tfvars`)})
	for name, each := range map[string]bool{"none": false, "each": true} {
		jobs, err := v.fleetJobs(data, each, each && files)
		if err != nil {
			return nil, err
		}
		data[name] = jobs
	}
	return fillPipeline("fleet-"+s.Name+".yml", data)
}

// fleetJobs returns the parts of GitHub's jobs: of each cluster of a matrix, or of none.
func (v *pipelineValues) fleetJobs(data map[string]any, each, files bool) (map[string]any, error) {
	var env strings.Builder
	env.WriteString("    env:\n")
	add := func(name, value string) { fmt.Fprintf(&env, "      %s: ${{ %s }}\n", name, value) }
	if v.Pipeline.StoreVariable {
		add("CASTLE_STATE_STORE", "vars.CASTLE_STATE_STORE")
	}
	if each {
		add("CLUSTER", "matrix.cluster")
		add("CASTLE_STATE_AT_LEAST", "vars[format('{0}CASTLE_STATE_AT_LEAST', matrix.prefix)]")
	}
	for _, name := range v.AllSecrets {
		switch store := slices.Concat([]string{"CASTLE_AGE_IDENTITY"}, slices.Concat(
			slices.Collect(maps.Values(storeSecrets))...)); {
		case each:
			add(name, fmt.Sprintf("secrets[format('{0}%s', matrix.prefix)] || secrets.%[1]s", name))
		case slices.Contains(store, name):
			add(name, "secrets."+name)
		}
	}
	jobs := map[string]any{"env": env.String(), "clean": ""}
	values := maps.Clone(data)
	values["cluster"] = map[string]any{"secrets_file": files, "history": !each,
		"secrets_path": `"clusters/$CLUSTER/secrets.tfvars"`}
	for _, name := range []string{"prepare", "clean"} {
		text, err := fillPipeline("github-"+name+".yml", values)
		if err != nil {
			return nil, err
		}
		jobs[name] = string(text)
	}
	return jobs, nil
}
