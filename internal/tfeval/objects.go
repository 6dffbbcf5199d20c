package tfeval

import (
	"strings"

	"github.com/hashicorp/hcl/v2"
	"github.com/hashicorp/hcl/v2/hclsyntax"
	"github.com/zclconf/go-cty/cty"

	"github.com/ephemeral-castle/castle/internal/config"
)

// Object is an object in the cluster, or a Helm release, that a stage creates.
type Object struct {
	Group, Kind, Namespace, Name string
	Chart                        string            // of a release: its name, or a folder of the module
	Data                         map[string]string // of a ConfigMap, as far as it is known

	Stage *config.Stage
	At    hcl.Range
}

// Release is the Kind of a Helm release.
const Release = "release"

// Is reports whether two are one object.
func (o Object) Is(other Object) bool {
	return o.Group == other.Group && o.Kind == other.Kind && o.Namespace == other.Namespace && o.Name == other.Name
}

func (o Object) String() string {
	if o.Namespace == "" {
		return o.Kind + " " + o.Name
	}
	return o.Kind + " " + o.Namespace + "/" + o.Name
}

// Objects lists what the stage's resources create, as far as its name is known.
// Expressions, Outputs among them, know the objects from then on.
func (m *Module) Objects() []Object {
	var all []Object
	for range 2 { // a resource may name one that stands below it
		all = nil
		for _, b := range m.Known("resource", "") {
			all = append(all, m.objects(b)...)
		}
	}
	return all
}

func (m *Module) objects(b Block) []Object {
	o := Object{Stage: m.stage, At: b.Range()}
	var all []Object
	switch kind, is := kindOf(b.Type); {
	case b.Type == "helm_release":
		o.Kind, o.Namespace, o.Name, o.Chart = Release, b.Text("namespace"), b.Text("name"), b.Text("chart")
		if strings.HasPrefix(o.Chart, "./") {
			all = m.chartObjects(b, o)
		}
	case b.Type == "kubernetes_manifest":
		manifest, err := b.Value("manifest")
		if err != nil {
			return nil
		}
		metadata := Attribute(manifest, "metadata")
		o.Group = groupOf(Text(Attribute(manifest, "apiVersion")))
		o.Kind = Text(Attribute(manifest, "kind"))
		o.Name, o.Namespace = Text(Attribute(metadata, "name")), Text(Attribute(metadata, "namespace"))
	case is:
		o.Group, o.Kind = kind.group, kind.kind
		for _, inner := range b.block.Body.Blocks {
			if inner.Type == "metadata" {
				o.Name, o.Namespace = textIn(b, inner.Body, "name"), textIn(b, inner.Body, "namespace")
			}
		}
		data, err := b.Value("data")
		if err != nil || data == cty.NilVal {
			data = cty.DynamicVal
		}
		if kind.kind == "ConfigMap" && data.IsWhollyKnown() && Map(data) != nil {
			o.Data = map[string]string{}
			for key, v := range Map(data) {
				o.Data[key] = Text(v)
			}
		}
		m.note(b, o, data)
	}
	if o.Name != "" {
		all = append(all, o)
	}
	return all
}

func textIn(b Block, body *hclsyntax.Body, argument string) string {
	v, err := b.in(body, argument)
	if err != nil {
		return ""
	}
	return Text(v)
}

// note keeps what other expressions read of a single object: its names and its data.
func (m *Module) note(b Block, o Object, data cty.Value) {
	attributes := b.block.Body.Attributes
	if attributes["count"] != nil || attributes["for_each"] != nil || o.Name == "" {
		return
	}
	if m.resources[b.Type] == nil {
		m.resources[b.Type] = map[string]cty.Value{}
	}
	metadata := map[string]cty.Value{"name": cty.StringVal(o.Name), "namespace": cty.StringVal(o.Namespace)}
	m.resources[b.Type][b.Name] = cty.ObjectVal(map[string]cty.Value{
		"metadata": cty.TupleVal([]cty.Value{cty.ObjectVal(metadata)}), "data": data,
	})
}

// groupOf is the group of an apiVersion; "" for the core group.
func groupOf(version string) string {
	group, _, ok := strings.Cut(version, "/")
	if !ok {
		return ""
	}
	return group
}

// groupKind is a kind of object.
type groupKind struct{ group, kind string }

// kindOf is the kind that a resource such as kubernetes_secret_v1 creates.
func kindOf(resource string) (groupKind, bool) {
	name, is := strings.CutPrefix(resource, "kubernetes_")
	if i := strings.LastIndex(name, "_v"); i > 0 {
		name = name[:i]
	}
	kind, known := map[string]groupKind{
		"namespace":               {"", "Namespace"},
		"secret":                  {"", "Secret"},
		"config_map":              {"", "ConfigMap"},
		"service":                 {"", "Service"},
		"service_account":         {"", "ServiceAccount"},
		"persistent_volume":       {"", "PersistentVolume"},
		"persistent_volume_claim": {"", "PersistentVolumeClaim"},
		"deployment":              {"apps", "Deployment"},
		"daemonset":               {"apps", "DaemonSet"},
		"daemon_set":              {"apps", "DaemonSet"},
		"stateful_set":            {"apps", "StatefulSet"},
		"job":                     {"batch", "Job"},
		"cron_job":                {"batch", "CronJob"},
		"ingress":                 {"networking.k8s.io", "Ingress"},
		"network_policy":          {"networking.k8s.io", "NetworkPolicy"},
		"role":                    {"rbac.authorization.k8s.io", "Role"},
		"role_binding":            {"rbac.authorization.k8s.io", "RoleBinding"},
		"cluster_role":            {"rbac.authorization.k8s.io", "ClusterRole"},
		"cluster_role_binding":    {"rbac.authorization.k8s.io", "ClusterRoleBinding"},
		"storage_class":           {"storage.k8s.io", "StorageClass"},
		"priority_class":          {"scheduling.k8s.io", "PriorityClass"},
	}[name]
	return kind, is && known
}
