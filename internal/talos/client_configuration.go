package talos

import (
	"encoding/base64"
	"fmt"

	"github.com/siderolabs/crypto/x509"
	clientconfig "github.com/siderolabs/talos/pkg/machinery/client/config"
	"github.com/zclconf/go-cty/cty"

	"github.com/ephemeral-castle/castle/internal/gate"
)

func clientConfigurationAttribute() gate.Attribute {
	return gate.Attribute{
		Type:     cty.Object(map[string]cty.Type{"ca_certificate": cty.String, "client_certificate": cty.String, "client_key": cty.String}),
		Required: true, Help: "Certificate and key of Talos' administrator, as talos_machine_secrets has them.",
	}
}

// clientConfiguration reads the argument of that name.
func clientConfiguration(values gate.Values) (*clientconfig.Config, error) {
	var decoded [3][]byte
	for i, part := range []string{"ca_certificate", "client_certificate", "client_key"} {
		data, err := base64.StdEncoding.DecodeString(values["client_configuration"].GetAttr(part).AsString())
		if err != nil {
			return nil, fmt.Errorf("client_configuration: %s is no base64", part)
		}
		decoded[i] = data
	}
	return clientconfig.NewConfig("castle", nil, decoded[0], &x509.PEMEncodedCertificateAndKey{Crt: decoded[1], Key: decoded[2]}), nil
}
