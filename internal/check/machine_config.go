package check

import (
	"bufio"
	"cmp"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"

	"github.com/hashicorp/go-version"
	"github.com/hashicorp/hcl/v2"
	"github.com/siderolabs/gen/xslices"
	"github.com/zclconf/go-cty/cty"
	"github.com/zclconf/go-cty/cty/convert"

	"github.com/ephemeral-castle/castle/internal/config"
	"github.com/ephemeral-castle/castle/internal/secret"
	"github.com/ephemeral-castle/castle/internal/syntax"
	"github.com/ephemeral-castle/castle/internal/talos"
	"github.com/ephemeral-castle/castle/internal/tfeval"
)

// patchVariable holds the user's patches of all machines; others are for a role, or for one by its name.
const (
	patchVariable    = "talos_config_patches"
	machinesVariable = "talos_machine_config_patches"
)

func patchVariables() []string {
	return []string{patchVariable, "talos_controlplane_config_patches", "talos_worker_config_patches"}
}

// rendered is the configuration of one machine, as the data source talos_machine_configuration returns it.
type rendered struct {
	machine string // "cp-01"
	role    string
	at      hcl.Range // of the data source
	config  *talos.MachineConfig
	stage   *config.Stage
	err     error // why there is no config; a *tfeval.UnknownError is no problem of the user's
}

// render renders the configuration of every machine, with stand-ins for unknown values, such as secrets.
func render(c *cluster) []rendered {
	var all []rendered
	for _, s := range c.config.Stages {
		values := s.KnownInputs(c.outputs(), nil)
		for name, v := range s.Variables {
			if _, has := values[name]; !has {
				values[name] = cty.UnknownVal(v.Type)
			}
			values[name] = tfeval.StandIn(values[name])
		}
		for _, b := range tfeval.Read(s, values).Instances("data", "talos_machine_configuration") {
			r := rendered{machine: cmp.Or(b.Key, s.Name), at: b.Range(), stage: s, err: b.Err}
			var m talos.Machine
			if r.err == nil {
				m, r.err = machineOf(b)
			}
			r.role = m.Type
			// A validation of the module reports another role.
			if r.err == nil && (r.role == "controlplane" || r.role == "worker") {
				r.config, r.err = talos.Render(m)
			}
			all = append(all, r)
		}
	}
	return all
}

// machineOf evaluates the arguments of the data source.
func machineOf(b tfeval.Block) (talos.Machine, error) {
	var failed error
	get := func(name string, want cty.Type) cty.Value {
		v, err := b.Value(name)
		if err == nil && v != cty.NilVal {
			v, err = convert.Convert(v, want)
		}
		failed = errors.Join(failed, err)
		return v
	}
	str := func(name string) string { return tfeval.Text(get(name, cty.String)) }
	m := talos.Machine{
		ClusterName: str("cluster_name"), Endpoint: str("cluster_endpoint"), Type: str("machine_type"),
		TalosVersion: str("talos_version"), KubernetesVersion: str("kubernetes_version"),
	}
	for _, v := range tfeval.Elements(get("config_patches", cty.List(cty.String))) {
		m.Patches = append(m.Patches, tfeval.Text(v))
	}
	return m, failed
}

// patch is one of the user's, and where it is written.
type patch struct {
	name       string // "talos_config_patches[0]"
	text       string
	at, within hcl.Range
}

func (c *cluster) patches() []patch {
	var all []patch
	add := func(variable, name string, list cty.Value, steps ...string) {
		written := c.variable(variable)
		for i, v := range tfeval.Elements(list) {
			at := append(slices.Clone(steps), strconv.Itoa(i))
			all = append(all, patch{fmt.Sprintf("%s[%d]", name, i), tfeval.Text(v), written.At(at...),
				written.Range(at...)})
		}
	}
	for _, variable := range patchVariables() {
		add(variable, variable, c.variable(variable).Value)
	}
	machines := tfeval.Map(c.variable(machinesVariable).Value)
	for _, name := range names(machines) {
		add(machinesVariable, fmt.Sprintf("%s[%q]", machinesVariable, name), machines[name], name)
	}
	return all
}

// origin is the line of the user's patches that has one of the words, or else another place.
func origin(c *cluster, otherwise hcl.Range, words ...string) hcl.Range {
	for _, w := range words {
		if at, found := inPatch(c, w); found {
			return at
		}
	}
	return otherwise
}

// inPatch finds the line of the user's patches that has a word.
func inPatch(c *cluster, word string) (hcl.Range, bool) {
	for _, p := range c.patches() {
		if !strings.Contains(p.text, word) {
			continue
		}
		at, within := p.at, p.within
		f := c.config.Files[at.Filename]
		if f == nil || !within.CanSliceBytes(f.Bytes) {
			return at, true
		}
		lines := hcl.NewRangeScannerFragment(f.Bytes[:within.End.Byte], within.Filename, within.Start,
			bufio.ScanLines)
		for lines.Scan() {
			if strings.Contains(string(lines.Bytes()), word) {
				return lines.Range(), true
			}
		}
		return at, true
	}
	return hcl.Range{}, false
}

func checkPatches(c *cluster, report reporter) {
	release := strings.TrimSpace("Talos " + c.text("talos_version"))
	for _, p := range c.patches() {
		if err := talos.ReadPatch(p.text); err != nil && p.text != "" {
			report("patch-unreadable", p.at, p.name+": not readable as a patch",
				"Talos reports: %s. Write it as in the reference of the machine configuration of %s.",
				oneLine(secret.HideLikely(err.Error())), release)
		}
	}
}

// checkMachineConfigs reports a problem of several machines once.
func checkMachineConfigs(c *cluster, report reporter) {
	patchFails := func(p patch) bool { return talos.ReadPatch(p.text) != nil }
	unreadable := slices.ContainsFunc(c.patches(), patchFails)
	problems := map[string][]rendered{}
	for _, r := range c.rendered {
		unknown, is := errors.AsType[*tfeval.UnknownError](r.err)
		switch {
		case !r.stage.Sound() || r.err != nil && len(c.invalid) > 0: // it follows from the value
		case is:
			report("machine-config-unknown", r.at, "machine configuration: not checked",
				"%s. Terraform and Talos check the configuration when it is applied.", unknown.Error())
		case r.err != nil && !unreadable:
			problems[r.err.Error()] = append(problems[r.err.Error()], r)
		case r.config != nil:
			for _, p := range r.config.Problems() {
				long := len(c.config.Name+"-"+r.machine) > longestLabel
				if !c.namesInvalid(p) && (!long || !strings.Contains(p, "invalid hostname")) {
					problems[p] = append(problems[p], r)
				}
			}
		}
	}
	if late, _ := tooNew(c); len(late) > 0 {
		return // talos-too-old reports it
	}
	for _, problem := range names(problems) {
		machines := xslices.Map(problems[problem], func(r rendered) string { return r.machine })
		noun, fix := "node", ""
		if len(machines) > 1 {
			noun = "nodes"
		}
		role := problems[problem][0].role
		if slices.ContainsFunc(c.rendered, func(r rendered) bool { return r.role != role }) &&
			!slices.ContainsFunc(problems[problem], func(r rendered) bool { return r.role != role }) {
			fix = fmt.Sprintf(" If a patch is not meant for a %s, move it to %s.", role, forOther(role))
		}
		report("machine-config", origin(c, problems[problem][0].at, fieldOf(problem)...),
			"machine configuration: refused by Talos", "%s %s: %s. Correct %s or the patches of the stage.%s",
			noun, strings.Join(machines, ", "), oneLine(secret.HideLikely(problem)), patchVariable, fix)
	}
}

// forOther is the variable with the patches of the machines of the other role.
func forOther(role string) string {
	if role == "worker" {
		return patchVariables()[1]
	}
	return patchVariables()[2]
}

// namesInvalid reports whether a problem names a key or a text in the value of a variable that is not valid.
func (c *cluster) namesInvalid(problem string) bool {
	for name := range c.invalid {
		v := c.variable(name).Value
		for _, text := range append(names(tfeval.Map(v)), tfeval.Strings(v)...) {
			if text != "" && strings.Contains(problem, text) {
				return true
			}
		}
	}
	return false
}

// fieldOf is the field that Talos names at the end of a problem, such as (.machine.ca).
func fieldOf(problem string) []string {
	_, after, ok := strings.Cut(problem, "(.")
	switch {
	case ok:
		field, _, _ := strings.Cut(after, ")")
		return []string{field[strings.LastIndexByte(field, '.')+1:] + ":"}
	case strings.Contains(problem, "virtual (shared) IP"):
		return []string{"vip:"}
	case strings.Contains(problem, "JSON6902"):
		return []string{"op:"}
	}
	return nil
}

func checkKernelModules(c *cluster, report reporter) {
	loadedBy := map[string]rendered{} // a machine for each module
	for _, r := range slices.Backward(c.rendered) {
		if r.config != nil {
			for _, module := range r.config.Machine().Kernel().Modules() {
				loadedBy[module.Name()] = r
			}
		}
	}
	for _, name := range names(loadedBy) {
		at := origin(c, loadedBy[name].at, name)
		canonical := strings.ReplaceAll(name, "-", "_")
		hint := syntax.DidYouMean(canonical, talos.KnownModules())
		if hint == "" {
			hint = ". If an extension of the schematic brings it, ignore this warning."
		}
		if instead, is := talos.AbsentModules()[name]; is {
			report("kernel-module", at, "kernel module "+name+": does not exist",
				"No kernel of Talos has it: %s. Remove it.", instead)
		} else if !slices.Contains(talos.KnownModules(), canonical) {
			report("kernel-module-unknown", at, "kernel module "+name+": not known",
				"castle knows it neither of Talos' kernel nor of an extension%s", hint)
		}
	}
}

// checkMachines checks single fields. A problem of all machines is reported once.
func checkMachines(c *cluster, report reporter) {
	release := c.text("talos_version")
	reported := map[Kind]bool{}
	once := func(kind Kind, at hcl.Range, summary, detail string, args ...any) {
		if !reported[kind] {
			report(kind, at, summary, detail, args...)
		}
		reported[kind] = true
	}
	for _, r := range c.rendered {
		if r.config == nil {
			continue
		}
		for _, vip := range r.config.NetworkVirtualIPConfigs() {
			if r.role == "worker" {
				report("vip-on-worker", origin(c, r.at, "Layer2VIPConfig", "HCloudVIPConfig"),
					"node "+r.machine+": a VIP on a worker",
					"The patch gives %s to every node, and only control planes may hold a VIP: it needs "+
						"etcd. The variable vip gives it to them; remove the document.", vip.VIP())
			}
		}
		kubernetes := r.config.Cluster().CertSANs()
		missing := slices.DeleteFunc(slices.Clone(r.config.Machine().Security().CertSANs()),
			func(name string) bool { return slices.Contains(kubernetes, name) })
		if len(missing) > 0 {
			once("machine-cert-sans", origin(c, r.at, "certSANs"),
				"machine.certSANs: names of Talos' own API",
				"%s would be in the certificates of apid and trustd and not in that of the Kubernetes API; "+
					"set on a running cluster, this has cut workers off. "+
					"If the Kubernetes API is meant, write cluster.apiServer.certSANs.",
				strings.Join(missing, ", "))
		}
		image := r.config.InstallImage()
		_, tag, tagged := strings.Cut(image[strings.LastIndexByte(image, '/')+1:], ":")
		if image == "" {
			once("install-image-missing", r.at, "machine.install.image: no patch sets it",
				"The provider would name the installer of its own Talos release, without the schematic's "+
					"extensions. Set machine.install.image in config_patches.")
		} else if release != "" && tagged && !strings.HasPrefix(tag, release) {
			once("install-image-version", origin(c, r.at, image),
				"machine.install.image: another Talos than talos_version",
				"The machines boot %s (%s) and would install %s. Remove machine.install.image from the "+
					"patch: the stage sets it from talos_version and talos_schematic_id.", release,
				syntax.Place(c.at("talos_version")), image)
		}
	}
}

func checkKubernetesVersion(c *cluster, report reporter) {
	release, kubernetes := c.text("talos_version"), c.text("kubernetes_version")
	oldest, newest := talos.SupportOf(release)
	if oldest != "" && kubernetes != "" && !talos.Suits(release, kubernetes) {
		report("kubernetes-unsupported", c.at("kubernetes_version"),
			fmt.Sprintf("kubernetes_version: %s does not go with Talos %s", kubernetes, release),
			"Talos %s (%s) runs Kubernetes %s to %s. Change one of the versions.",
			talos.Minor(release), syntax.Place(c.at("talos_version")), oldest, newest)
	}
}

func checkTalosVersion(c *cluster, report reporter) {
	release := c.text("talos_version")
	if _, err := version.NewVersion(release); err != nil {
		return // a validation of the module reports it
	}
	if _, newest := talos.SupportOf(release); newest == "" {
		report("talos-unknown", c.at("talos_version"), "talos_version: castle does not know "+release,
			"It knows Talos up to %s, checks the machine configuration as that release would, and does not "+
				"know which Kubernetes goes with yours.", talos.Newest())
	}
	if late, since := tooNew(c); len(late) > 0 {
		report("talos-too-old", c.at("talos_version"), "talos_version: "+release+" is too old for the stage",
			"The machine configuration has documents that it does not know: %s. Choose %s or later.",
			strings.Join(names(late), ", "), since)
	}
}

// tooNew returns the kinds of documents that the Talos of the cluster lacks, and the release that has all.
func tooNew(c *cluster) (late map[string]bool, newest string) {
	own, err := version.NewVersion(talos.Minor(c.text("talos_version")))
	if err != nil {
		return nil, ""
	}
	late = map[string]bool{}
	var last *version.Version
	for _, r := range c.rendered {
		if r.config == nil {
			continue
		}
		for _, document := range r.config.Documents() {
			since, err := version.NewVersion(talos.KindSince(document.Kind()))
			if err != nil || !own.LessThan(since) {
				continue
			}
			late[document.Kind()] = true
			if last == nil || last.LessThan(since) {
				last, newest = since, since.Original()
			}
		}
	}
	return late, newest
}

// checkChartVersions compares with the module's default: the gates follow that version (stages/README.md).
func checkChartVersions(c *cluster, report reporter) {
	for _, s := range c.config.Stages {
		for _, name := range names(s.Variables) {
			fallback, _ := s.Variables[name].Default()
			if !strings.HasSuffix(name, "_chart_version") {
				continue
			}
			written := s.Written(name)
			own, err := version.NewVersion(tfeval.Text(written.Value))
			known, otherErr := version.NewVersion(tfeval.Text(fallback))
			if err != nil || otherErr != nil || !own.LessThan(known) {
				continue
			}
			report("chart-old", written.At(), fmt.Sprintf("%s: %s is older than the gates", name, own),
				"The gates of %s were written for %s (%s) and may check objects that %s does not have. "+
					"Choose %s or later, or set the gates' arguments in stage %q of cluster.hcl.",
				s.Source, known, syntax.Place(s.Variables[name].Declared()), own, known, s.Name)
		}
	}
}
