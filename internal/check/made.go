package check

import (
	"strings"

	"github.com/hashicorp/hcl/v2"
	"github.com/hashicorp/hcl/v2/hclsyntax"
	"github.com/zclconf/go-cty/cty"

	"github.com/ephemeral-castle/castle/internal/config"
)

// made is an object in the cluster, or a Helm release, that a stage's Terraform makes.
type made struct {
	group, kind, namespace, name string
	chart                        string            // of a release: its name, or a folder of the module
	data                         map[string]string // of a ConfigMap, as far as it is known

	stage *config.Stage
	at    hcl.Range
}

// is reports whether two are one object.
func (m made) is(o made) bool {
	return m.group == o.group && m.kind == o.kind && m.namespace == o.namespace && m.name == o.name
}

func (m made) String() string {
	if m.namespace == "" {
		return m.kind + " " + m.name
	}
	return m.kind + " " + m.namespace + "/" + m.name
}

// release is the kind of a Helm release here.
const release = "release"

// makes is what the enabled stages make, as far as its name is known before a run.
func (c *cluster) makes() []made {
	if c.made != nil {
		return c.made
	}
	c.outputs = map[string]map[string]cty.Value{}
	for _, s := range c.config.Stages { // lower layers first
		w := work(s, s.Foreseen(c.outputs))
		c.made = append(c.made, w.made...)
		if c.outputs[s.Layer] == nil {
			c.outputs[s.Layer] = map[string]cty.Value{}
		}
		for _, b := range w.module.blocks {
			if b.Type == "output" && len(b.Labels) == 1 && b.Body.Attributes["value"] != nil {
				if v, err := w.module.evaluate(b.Body.Attributes["value"].Expr, w.beside(nil)); err == nil && v.IsWhollyKnown() {
					c.outputs[s.Layer][b.Labels[0]] = v
				}
			}
		}
	}
	return c.made
}

// without is what a stage would make if a variable had its default.
func (c *cluster) without(s *config.Stage, variable string) []made {
	inputs := s.Foreseen(c.outputs)
	inputs[variable], _ = s.Variables[variable].Default()
	return work(s, inputs).made
}

// workshop reads what one stage makes.
type workshop struct {
	module    *module
	stage     *config.Stage
	resources map[string]map[string]cty.Value // type, name: what other expressions read of it
	made      []made
}

// work reads what a stage makes if its variables have these values.
func work(s *config.Stage, inputs map[string]cty.Value) *workshop {
	w := &workshop{module: readModule(s, inputs), stage: s, resources: map[string]map[string]cty.Value{}}
	for range 2 { // a resource may name one that stands below it
		w.made = nil
		w.read()
	}
	return w
}

// beside are the names that an expression may use beside the module's own.
func (w *workshop) beside(each map[string]cty.Value) map[string]cty.Value {
	all := map[string]cty.Value{"path": cty.ObjectVal(map[string]cty.Value{"module": cty.StringVal(".")})}
	for of, named := range w.resources {
		all[of] = cty.ObjectVal(named)
	}
	for name, v := range each {
		all[name] = v
	}
	return all
}

func (w *workshop) read() {
	for _, b := range w.module.blocks {
		if b.Type != "resource" || len(b.Labels) != 2 || w.absent(b) {
			continue
		}
		for _, each := range (&Reading{w.module}).instances(b) {
			w.resource(b, each)
		}
	}
}

// absent reports whether a resource has certainly no instance.
func (w *workshop) absent(b *hclsyntax.Block) bool {
	n, known := whole(w.value(b.Body, "count", nil))
	return known && n == 0
}

func (w *workshop) resource(b *hclsyntax.Block, each map[string]cty.Value) {
	get := func(name string) string { return text(w.value(b.Body, name, each)) }
	one := made{stage: w.stage, at: b.DefRange()}
	switch kind, is := kindOf(b.Labels[0]); {
	case b.Labels[0] == "helm_release":
		one.kind, one.namespace, one.name, one.chart = release, get("namespace"), get("name"), get("chart")
		if strings.HasPrefix(one.chart, "./") {
			w.made = append(w.made, w.chart(b, one, each)...)
		}
	case b.Labels[0] == "kubernetes_manifest":
		manifest := w.value(b.Body, "manifest", each)
		one.group, _, _ = strings.Cut(text(attribute(manifest, "apiVersion")), "/")
		if one.group == "v1" {
			one.group = ""
		}
		one.kind = text(attribute(manifest, "kind"))
		metadata := attribute(manifest, "metadata")
		one.name, one.namespace = text(attribute(metadata, "name")), text(attribute(metadata, "namespace"))
	case is:
		one.group, one.kind = kind.group, kind.kind
		for _, inner := range b.Body.Blocks {
			if inner.Type == "metadata" {
				one.name, one.namespace = text(w.value(inner.Body, "name", each)), text(w.value(inner.Body, "namespace", each))
			}
		}
		data := w.value(b.Body, "data", each)
		if kind.kind == "ConfigMap" && data.IsWhollyKnown() && !data.IsNull() && data.CanIterateElements() {
			one.data = map[string]string{}
			for key, v := range data.AsValueMap() {
				one.data[key] = text(v)
			}
		}
		w.note(b, one, data)
	default:
		return
	}
	if one.name != "" {
		w.made = append(w.made, one)
	}
}

// note keeps what other expressions read of an object: its names and its data.
func (w *workshop) note(b *hclsyntax.Block, one made, data cty.Value) {
	if b.Body.Attributes["count"] != nil || b.Body.Attributes["for_each"] != nil || one.name == "" {
		return
	}
	if w.resources[b.Labels[0]] == nil {
		w.resources[b.Labels[0]] = map[string]cty.Value{}
	}
	w.resources[b.Labels[0]][b.Labels[1]] = cty.ObjectVal(map[string]cty.Value{
		"metadata": cty.TupleVal([]cty.Value{cty.ObjectVal(map[string]cty.Value{"name": cty.StringVal(one.name), "namespace": cty.StringVal(one.namespace)})}),
		"data":     data,
	})
}

// value is an attribute as far as it is known.
func (w *workshop) value(body *hclsyntax.Body, name string, each map[string]cty.Value) cty.Value {
	attr, is := body.Attributes[name]
	if !is {
		return cty.DynamicVal
	}
	v, err := w.module.evaluate(attr.Expr, w.beside(each))
	if err != nil {
		return cty.DynamicVal
	}
	return v
}

// groupKind is a kind of object.
type groupKind struct{ group, kind string }

// kindOf is the kind that a resource of the provider kubernetes makes.
func kindOf(resource string) (groupKind, bool) {
	name, is := strings.CutPrefix(resource, "kubernetes_")
	if i := strings.LastIndex(name, "_v"); i > 0 { // kubernetes_secret_v1
		name = name[:i]
	}
	kind, known := map[string]groupKind{
		"namespace": {"", "Namespace"}, "secret": {"", "Secret"}, "config_map": {"", "ConfigMap"}, "service": {"", "Service"},
		"service_account": {"", "ServiceAccount"}, "persistent_volume": {"", "PersistentVolume"}, "persistent_volume_claim": {"", "PersistentVolumeClaim"},
		"deployment": {"apps", "Deployment"}, "daemonset": {"apps", "DaemonSet"}, "daemon_set": {"apps", "DaemonSet"}, "stateful_set": {"apps", "StatefulSet"},
		"job": {"batch", "Job"}, "cron_job": {"batch", "CronJob"}, "ingress": {"networking.k8s.io", "Ingress"}, "network_policy": {"networking.k8s.io", "NetworkPolicy"},
		"role": {"rbac.authorization.k8s.io", "Role"}, "role_binding": {"rbac.authorization.k8s.io", "RoleBinding"},
		"cluster_role": {"rbac.authorization.k8s.io", "ClusterRole"}, "cluster_role_binding": {"rbac.authorization.k8s.io", "ClusterRoleBinding"},
		"storage_class": {"storage.k8s.io", "StorageClass"}, "priority_class": {"scheduling.k8s.io", "PriorityClass"},
	}[name]
	return kind, is && known
}
