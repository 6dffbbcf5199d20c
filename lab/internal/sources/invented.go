package sources

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
)

// Invent writes a repository of the usual shape into a folder, for a cluster of whose repository no clone is
// at hand: in path, Kustomizations for operators, then for what configures them, then for what runs on them.
// Kind is that of their source.
func Invent(folder, path, kind string) error {
	var errs []error
	write := func(name, text string) {
		name = filepath.Join(folder, name)
		errs = append(errs, os.MkdirAll(filepath.Dir(name), 0o700), os.WriteFile(name, []byte(text), 0o600))
	}
	after := ""
	for _, name := range []string{"infrastructure-operators", "infrastructure-configs", "apps"} {
		write(filepath.Join(path, name+".yaml"), fmt.Sprintf(kustomization, name, name, after, kind))
		write(filepath.Join(name, "config-map.yaml"), fmt.Sprintf(configMap, name))
		after = "\n  dependsOn: [{ name: " + name + " }]"
	}
	return errors.Join(errs...)
}

const (
	kustomization = `apiVersion: kustomize.toolkit.fluxcd.io/v1
kind: Kustomization
metadata: { name: %s, namespace: flux-system }
spec:
  interval: 15m
  retryInterval: 1m
  prune: true
  wait: true
  path: ./%s%s
  sourceRef: { kind: %s, name: flux-system }
  postBuild:
    substituteFrom: [{ kind: ConfigMap, name: cluster-vars, optional: false }]
`
	configMap = `apiVersion: v1
kind: ConfigMap
metadata: { name: %s, namespace: flux-system }
data: { cluster: "${cluster_name}" }
`
)
