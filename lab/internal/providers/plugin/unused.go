package plugin

import (
	"context"
	"errors"

	"github.com/hashicorp/terraform-plugin-go/tfprotov6"
)

// errUnused answers the parts of the protocol that no stand-in announces, so
// that Terraform never calls them.
var errUnused = errors.New("stand-in providers have no functions, ephemeral resources, identities or moves")

type functions struct{}

type ephemeral struct{}

func (*server) GetResourceIdentitySchemas(context.Context,
	*tfprotov6.GetResourceIdentitySchemasRequest) (*tfprotov6.GetResourceIdentitySchemasResponse, error) {
	return &tfprotov6.GetResourceIdentitySchemasResponse{}, nil
}

func (functions) GetFunctions(context.Context,
	*tfprotov6.GetFunctionsRequest) (*tfprotov6.GetFunctionsResponse, error) {
	return &tfprotov6.GetFunctionsResponse{}, nil
}

func (*resources) UpgradeResourceIdentity(context.Context,
	*tfprotov6.UpgradeResourceIdentityRequest) (*tfprotov6.UpgradeResourceIdentityResponse, error) {
	return nil, errUnused
}

func (*resources) MoveResourceState(context.Context,
	*tfprotov6.MoveResourceStateRequest) (*tfprotov6.MoveResourceStateResponse, error) {
	return nil, errUnused
}

func (*resources) GenerateResourceConfig(context.Context,
	*tfprotov6.GenerateResourceConfigRequest) (*tfprotov6.GenerateResourceConfigResponse, error) {
	return nil, errUnused
}

func (functions) CallFunction(context.Context,
	*tfprotov6.CallFunctionRequest) (*tfprotov6.CallFunctionResponse, error) {
	return nil, errUnused
}

func (ephemeral) ValidateEphemeralResourceConfig(context.Context,
	*tfprotov6.ValidateEphemeralResourceConfigRequest) (*tfprotov6.ValidateEphemeralResourceConfigResponse,
	error) {
	return nil, errUnused
}

func (ephemeral) OpenEphemeralResource(context.Context,
	*tfprotov6.OpenEphemeralResourceRequest) (*tfprotov6.OpenEphemeralResourceResponse, error) {
	return nil, errUnused
}

func (ephemeral) RenewEphemeralResource(context.Context,
	*tfprotov6.RenewEphemeralResourceRequest) (*tfprotov6.RenewEphemeralResourceResponse, error) {
	return nil, errUnused
}

func (ephemeral) CloseEphemeralResource(context.Context,
	*tfprotov6.CloseEphemeralResourceRequest) (*tfprotov6.CloseEphemeralResourceResponse, error) {
	return nil, errUnused
}
