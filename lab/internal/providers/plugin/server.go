package plugin

import (
	"context"
	"fmt"

	"github.com/hashicorp/terraform-plugin-go/tfprotov6"
	"github.com/hashicorp/terraform-plugin-go/tfprotov6/tf6server"
	"github.com/zclconf/go-cty/cty"
)

// Serve serves the Terraform process that started this one, until Terraform stops it. source is the
// provider's address, such as hashicorp/random.
func Serve(source string, p Provider) error {
	return tf6server.Serve("registry.terraform.io/"+source, func() tfprotov6.ProviderServer {
		return NewServer(p)
	},
		tf6server.WithoutLogStderrOverride())
}

// NewServer returns p as a protocol server, for Serve and for tests.
func NewServer(p Provider) tfprotov6.ProviderServer {
	return &server{
		ResourceServer: &resources{p.Resources}, DataSourceServer: &dataSources{p.Data},
		FunctionServer: functions{}, EphemeralResourceServer: ephemeral{}, provider: p,
	}
}

// server is the protocol in its parts.
type server struct {
	tfprotov6.ResourceServer
	tfprotov6.DataSourceServer
	tfprotov6.FunctionServer
	tfprotov6.EphemeralResourceServer

	provider Provider
}

type resources struct{ byName map[string]Resource }

type dataSources struct{ byName map[string]DataSource }

func (s *server) GetMetadata(context.Context,
	*tfprotov6.GetMetadataRequest) (*tfprotov6.GetMetadataResponse, error) {
	response := &tfprotov6.GetMetadataResponse{ServerCapabilities: &tfprotov6.ServerCapabilities{}}
	for name := range s.provider.Resources {
		response.Resources = append(response.Resources, tfprotov6.ResourceMetadata{TypeName: name})
	}
	for name := range s.provider.Data {
		response.DataSources = append(response.DataSources, tfprotov6.DataSourceMetadata{TypeName: name})
	}
	return response, nil
}

func (s *server) GetProviderSchema(context.Context,
	*tfprotov6.GetProviderSchemaRequest) (*tfprotov6.GetProviderSchemaResponse, error) {
	response := &tfprotov6.GetProviderSchemaResponse{
		ServerCapabilities: &tfprotov6.ServerCapabilities{},
		Provider:           &tfprotov6.Schema{Block: s.provider.Schema.wire()},
		ResourceSchemas:    map[string]*tfprotov6.Schema{},
		DataSourceSchemas:  map[string]*tfprotov6.Schema{},
	}
	for name, r := range s.provider.Resources {
		response.ResourceSchemas[name] = &tfprotov6.Schema{Version: r.Version, Block: r.Schema.wire()}
	}
	for name, d := range s.provider.Data {
		response.DataSourceSchemas[name] = &tfprotov6.Schema{Block: d.Schema.wire()}
	}
	return response, nil
}

func (s *server) ValidateProviderConfig(_ context.Context,
	r *tfprotov6.ValidateProviderConfigRequest) (*tfprotov6.ValidateProviderConfigResponse, error) {
	return &tfprotov6.ValidateProviderConfigResponse{PreparedConfig: r.Config}, nil
}

func (s *server) ConfigureProvider(ctx context.Context,
	r *tfprotov6.ConfigureProviderRequest) (*tfprotov6.ConfigureProviderResponse, error) {
	response := &tfprotov6.ConfigureProviderResponse{}
	config, err := decode(r.Config, s.provider.Schema.Type())
	if err == nil && s.provider.Configure != nil {
		err = s.provider.Configure(ctx, valuesOf(config))
	}
	response.Diagnostics = diagnostics(err)
	return response, nil
}

func (s *server) StopProvider(context.Context,
	*tfprotov6.StopProviderRequest) (*tfprotov6.StopProviderResponse, error) {
	return &tfprotov6.StopProviderResponse{}, nil // tf6server cancels the contexts of what is under way
}

func (s *resources) find(name string) (Resource, error) {
	r, ok := s.byName[name]
	if !ok {
		return r, fmt.Errorf("this stand-in has no resource type %s", name)
	}
	return r, nil
}

func (s *dataSources) find(name string) (DataSource, error) {
	d, ok := s.byName[name]
	if !ok {
		return d, fmt.Errorf("this stand-in has no data source %s", name)
	}
	return d, nil
}

func (s *dataSources) ValidateDataResourceConfig(_ context.Context,
	r *tfprotov6.ValidateDataResourceConfigRequest) (*tfprotov6.ValidateDataResourceConfigResponse, error) {
	d, err := s.find(r.TypeName)
	if err != nil {
		return nil, err
	}
	return &tfprotov6.ValidateDataResourceConfigResponse{Diagnostics: validate(d.Schema, d.Check, r.Config)},
		nil
}

func (s *dataSources) ReadDataSource(ctx context.Context,
	r *tfprotov6.ReadDataSourceRequest) (*tfprotov6.ReadDataSourceResponse, error) {
	d, err := s.find(r.TypeName)
	if err != nil {
		return nil, err
	}
	response := &tfprotov6.ReadDataSourceResponse{}
	config, err := decode(r.Config, d.Schema.Type())
	if err == nil {
		var read Values
		if read, err = d.Read(ctx, valuesOf(config)); err == nil {
			response.State, err = d.Schema.encode(over(valuesOf(config), read))
		}
	}
	response.Diagnostics = diagnostics(err)
	return response, nil
}

func (b Block) encode(v Values) (*tfprotov6.DynamicValue, error) {
	object, err := b.object(v)
	if err != nil {
		return nil, err
	}
	return encode(object, b.Type())
}

// over merges the computed values over the planned or configured ones. Values that are still
// unknown become null.
func over(base, computed Values) Values {
	all := Values{}
	for name, x := range base {
		all[name] = x
	}
	for name, x := range computed {
		all[name] = x
	}
	for name, x := range all {
		all[name], _ = cty.Transform(x, func(_ cty.Path, x cty.Value) (cty.Value, error) {
			if !x.IsKnown() {
				return cty.NullVal(x.Type()), nil
			}
			return x, nil
		})
	}
	return all
}

func validate(b Block, check func(Values) error, from *tfprotov6.DynamicValue) []*tfprotov6.Diagnostic {
	config, err := decode(from, b.Type())
	if err != nil {
		return diagnostics(err)
	}
	var all []*tfprotov6.Diagnostic
	for name, x := range valuesOf(config) {
		if a := b.Attributes[name]; a.Valid != nil && !x.IsNull() && x.IsWhollyKnown() {
			if err := a.Valid(x); err != nil {
				d := diagnostic(err)
				d.Attribute = wirePath(cty.GetAttrPath(name))
				all = append(all, d)
			}
		}
	}
	if check != nil && len(all) == 0 {
		all = diagnostics(check(valuesOf(config)))
	}
	return all
}
