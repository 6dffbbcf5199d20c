package talos

import (
	"context"
	"errors"
	"fmt"
	"net/url"
	"strings"

	"github.com/siderolabs/talos/pkg/machinery/config"
	"github.com/siderolabs/talos/pkg/machinery/config/bundle"
	"github.com/siderolabs/talos/pkg/machinery/config/configpatcher"
	"github.com/siderolabs/talos/pkg/machinery/config/encoder"
	"github.com/siderolabs/talos/pkg/machinery/config/generate"
	"github.com/siderolabs/talos/pkg/machinery/config/machine"
	"github.com/siderolabs/talos/pkg/machinery/constants"
	"github.com/zclconf/go-cty/cty"

	"github.com/ephemeral-castle/castle/lab/internal/providers/plugin"
)

func machineConfiguration() plugin.DataSource {
	kind, version, flag := requiredText(), optionalText(), plugin.Attribute{Type: cty.Bool, Optional: true}
	kind.Valid, version.Valid = validMachineType, validVersion
	return plugin.DataSource{
		Schema: plugin.Block{Attributes: map[string]plugin.Attribute{
			"id":                    computedText(),
			"cluster_name":          requiredText(),
			"cluster_endpoint":      requiredText(),
			"machine_type":          kind,
			"machine_secrets":       machineSecretsAttribute(requiredText(), optionalText()),
			"config_patches":        {Type: cty.List(cty.String), Optional: true},
			"kubernetes_version":    optionalText(),
			"talos_version":         version,
			"docs":                  flag,
			"examples":              flag,
			"machine_configuration": secret(computedText()),
		}},
		Check: checkMachineConfiguration,
		Read:  readMachineConfiguration,
	}
}

func validMachineType(x cty.Value) error {
	if _, err := machineType(x.AsString()); err != nil {
		return &plugin.Problem{Summary: "Invalid Attribute Value Match",
			Detail: fmt.Sprintf(`Attribute machine_type value must be one of: ["controlplane" "worker"], `+
				`got: %q`, x.AsString())}
	}
	return nil
}

func machineType(name string) (machine.Type, error) {
	switch name {
	case "controlplane":
		return machine.TypeControlPlane, nil
	case "worker":
		return machine.TypeWorker, nil
	}
	return machine.TypeUnknown, fmt.Errorf("machine type %q is neither controlplane nor worker", name)
}

func checkMachineConfiguration(config plugin.Values) error {
	if endpoint := config.String("cluster_endpoint"); endpoint != "" {
		u, err := url.Parse(endpoint)
		switch {
		case err != nil:
			return problem("cluster_endpoint is invalid",
				fmt.Errorf("failed to parse the cluster endpoint URL: %w", err))
		case u.Scheme == "" || u.Host == "":
			return problem("cluster_endpoint is invalid",
				errors.New("no scheme specified for the cluster endpoint URL"))
		case u.Scheme != "https":
			return problem("cluster_endpoint is invalid",
				errors.New("the control plane endpoint URL should have scheme https://"))
		}
	}
	if _, err := configpatcher.LoadPatches(config.Strings("config_patches")); err != nil {
		return problem("config_patches are invalid", err)
	}
	return nil
}

func readMachineConfiguration(_ context.Context, v plugin.Values) (plugin.Values, error) {
	content, err := render(v)
	if err != nil {
		return nil, problem("failed to generate machine configuration", err)
	}
	return plugin.Values{
		"id": v["cluster_name"], "machine_configuration": cty.StringVal(string(content)),
		"talos_version":      cty.StringVal(or(v.String("talos_version"), defaultTalosVersion)),
		"kubernetes_version": cty.StringVal(or(v.String("kubernetes_version"), defaultKubernetesVersion)),
	}, nil
}

func or(s, otherwise string) string {
	if s == "" {
		return otherwise
	}
	return s
}

func render(v plugin.Values) ([]byte, error) {
	kind, err := machineType(v.String("machine_type"))
	if err != nil {
		return nil, err
	}
	secrets, err := bundleOf(v.Object("machine_secrets"))
	if err != nil {
		return nil, err
	}
	contract, err := config.ParseContractFromVersion(or(v.String("talos_version"), defaultTalosVersion))
	if err != nil {
		return nil, err
	}
	patches, err := configpatcher.LoadPatches(v.Strings("config_patches"))
	if err != nil {
		return nil, fmt.Errorf("error parsing config patch: %w", err)
	}
	patch := bundle.WithPatchWorker(patches)
	if kind == machine.TypeControlPlane {
		patch = bundle.WithPatchControlPlane(patches)
	}
	made, err := bundle.NewBundle(patch, bundle.WithVerbose(false),
		bundle.WithInputOptions(&bundle.InputOptions{
			ClusterName: v.String("cluster_name"),
			Endpoint:    v.String("cluster_endpoint"),
			KubeVersion: strings.TrimPrefix(or(v.String("kubernetes_version"), defaultKubernetesVersion),
				"v"),
			GenOptions: []generate.Option{
				generate.WithSecretsBundle(secrets),
				generate.WithVersionContract(contract),
				generate.WithInstallImage(installerImage),
				generate.WithInstallDisk("/dev/sda"),
				generate.WithDNSDomain(constants.DefaultDNSDomain),
				generate.WithClusterDiscovery(true),
			},
		}))
	if err != nil {
		return nil, err
	}
	comments := encoder.CommentsDisabled
	if v.Bool("docs") {
		comments |= encoder.CommentsDocs
	}
	if v.Bool("examples") {
		comments |= encoder.CommentsExamples
	}
	return made.Serialize(comments, kind)
}
