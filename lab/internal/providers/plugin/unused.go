package plugin

import (
	"context"
	"errors"

	"github.com/hashicorp/terraform-plugin-go/tfprotov6"
)

// errUnused answers the parts of the protocol that no stand-in announces, so
// that Terraform never calls them.
var errUnused = errors.New("stand-in providers have no functions, ephemeral resources, identities or moves")

func (s *server) GetResourceIdentitySchemas(context.Context,
	*tfprotov6.GetResourceIdentitySchemasRequest) (*tfprotov6.GetResourceIdentitySchemasResponse, error) {
	return &tfprotov6.GetResourceIdentitySchemasResponse{}, nil
}

func (s *server) GetFunctions(context.Context,
	*tfprotov6.GetFunctionsRequest) (*tfprotov6.GetFunctionsResponse, error) {
	return &tfprotov6.GetFunctionsResponse{}, nil
}

func (s *server) UpgradeResourceIdentity(context.Context,
	*tfprotov6.UpgradeResourceIdentityRequest) (*tfprotov6.UpgradeResourceIdentityResponse, error) {
	return nil, errUnused
}

func (s *server) MoveResourceState(context.Context,
	*tfprotov6.MoveResourceStateRequest) (*tfprotov6.MoveResourceStateResponse, error) {
	return nil, errUnused
}

func (s *server) GenerateResourceConfig(context.Context,
	*tfprotov6.GenerateResourceConfigRequest) (*tfprotov6.GenerateResourceConfigResponse, error) {
	return nil, errUnused
}

func (s *server) CallFunction(context.Context,
	*tfprotov6.CallFunctionRequest) (*tfprotov6.CallFunctionResponse, error) {
	return nil, errUnused
}

func (s *server) ValidateEphemeralResourceConfig(context.Context,
	*tfprotov6.ValidateEphemeralResourceConfigRequest) (*tfprotov6.ValidateEphemeralResourceConfigResponse,
	error) {
	return nil, errUnused
}

func (s *server) OpenEphemeralResource(context.Context,
	*tfprotov6.OpenEphemeralResourceRequest) (*tfprotov6.OpenEphemeralResourceResponse, error) {
	return nil, errUnused
}

func (s *server) RenewEphemeralResource(context.Context,
	*tfprotov6.RenewEphemeralResourceRequest) (*tfprotov6.RenewEphemeralResourceResponse, error) {
	return nil, errUnused
}

func (s *server) CloseEphemeralResource(context.Context,
	*tfprotov6.CloseEphemeralResourceRequest) (*tfprotov6.CloseEphemeralResourceResponse, error) {
	return nil, errUnused
}
