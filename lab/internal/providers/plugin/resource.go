package plugin

import (
	"context"
	"fmt"

	"github.com/hashicorp/terraform-plugin-go/tfprotov6"
	"github.com/zclconf/go-cty/cty"
	ctyjson "github.com/zclconf/go-cty/cty/json"
)

func (s *resources) ValidateResourceConfig(_ context.Context,
	r *tfprotov6.ValidateResourceConfigRequest) (*tfprotov6.ValidateResourceConfigResponse, error) {
	t, err := s.find(r.TypeName)
	if err != nil {
		return nil, err
	}
	return &tfprotov6.ValidateResourceConfigResponse{Diagnostics: validate(t.Schema, t.Check, r.Config)}, nil
}

func (s *resources) UpgradeResourceState(_ context.Context,
	r *tfprotov6.UpgradeResourceStateRequest) (*tfprotov6.UpgradeResourceStateResponse, error) {
	t, err := s.find(r.TypeName)
	if err != nil {
		return nil, err
	}
	response := &tfprotov6.UpgradeResourceStateResponse{}
	if r.Version != t.Version {
		response.Diagnostics = diagnostics(fmt.Errorf("%s: the state has schema version %d and the "+
			"stand-in knows %d only", r.TypeName, r.Version, t.Version))
		return response, nil
	}
	state, err := ctyjson.Unmarshal(r.RawState.JSON, t.Schema.Type())
	if err == nil {
		response.UpgradedState, err = encode(state, t.Schema.Type())
	}
	response.Diagnostics = diagnostics(err)
	return response, nil
}

func (s *resources) ReadResource(ctx context.Context,
	r *tfprotov6.ReadResourceRequest) (*tfprotov6.ReadResourceResponse, error) {
	t, err := s.find(r.TypeName)
	if err != nil {
		return nil, err
	}
	response := &tfprotov6.ReadResourceResponse{NewState: r.CurrentState, Private: r.Private}
	if t.Read == nil {
		return response, nil
	}
	state, err := decode(r.CurrentState, t.Schema.Type())
	if err == nil {
		var read Values
		switch read, err = t.Read(ctx, valuesOf(state)); {
		case err != nil:
		case read == nil:
			response.NewState, err = encode(cty.NullVal(t.Schema.Type()), t.Schema.Type())
		default:
			response.NewState, err = t.Schema.encode(over(valuesOf(state), read))
		}
	}
	response.Diagnostics = diagnostics(err)
	return response, nil
}

// change holds the values of a plan or an apply request.
type change struct{ prior, next, config cty.Value }

func (t Resource) change(prior, next, config *tfprotov6.DynamicValue) (c change, err error) {
	if c.prior, err = decode(prior, t.Schema.Type()); err != nil {
		return c, err
	}
	if c.next, err = decode(next, t.Schema.Type()); err != nil {
		return c, err
	}
	c.config, err = decode(config, t.Schema.Type())
	return c, err
}

func (c change) values() Change {
	return Change{Prior: valuesOf(c.prior), Planned: valuesOf(c.next), Config: valuesOf(c.config)}
}

func (s *resources) PlanResourceChange(ctx context.Context,
	r *tfprotov6.PlanResourceChangeRequest) (*tfprotov6.PlanResourceChangeResponse, error) {
	t, err := s.find(r.TypeName)
	if err != nil {
		return nil, err
	}
	response := &tfprotov6.PlanResourceChangeResponse{PlannedPrivate: r.PriorPrivate}
	//lint:ignore SA1019 the old SDK sets it too, and the stand-in does the same
	response.UnsafeToUseLegacyTypeSystem = t.Legacy
	c, err := t.change(r.PriorState, r.ProposedNewState, r.Config)
	if err == nil && !c.next.IsNull() {
		err = t.plan(ctx, &c, response)
	}
	if err == nil {
		response.PlannedState, err = encode(c.next, t.Schema.Type())
	}
	response.Diagnostics = diagnostics(err)
	return response, nil
}

func (t Resource) plan(ctx context.Context, c *change, response *tfprotov6.PlanResourceChangeResponse) error {
	var changed bool
	c.next, changed = t.Schema.plan(c.prior, c.next, c.config)
	if t.Plan != nil {
		p := &Plan{Change: c.values(), Changed: changed}
		if err := t.Plan(ctx, p); err != nil {
			return err
		}
		next, err := t.Schema.object(p.Change.Planned)
		if err != nil {
			return err
		}
		c.next = next
		for _, name := range p.Forced {
			response.RequiresReplace = append(response.RequiresReplace, wirePath(cty.GetAttrPath(name)))
		}
	}
	for _, path := range t.Schema.replaced(c.prior, c.next, nil) {
		response.RequiresReplace = append(response.RequiresReplace, wirePath(path))
	}
	return nil
}

func (s *resources) ApplyResourceChange(ctx context.Context,
	r *tfprotov6.ApplyResourceChangeRequest) (*tfprotov6.ApplyResourceChangeResponse, error) {
	t, err := s.find(r.TypeName)
	if err != nil {
		return nil, err
	}
	response := &tfprotov6.ApplyResourceChangeResponse{NewState: r.PriorState, Private: r.PlannedPrivate}
	//lint:ignore SA1019 the old SDK sets it too, and the stand-in does the same
	response.UnsafeToUseLegacyTypeSystem = t.Legacy
	c, err := t.change(r.PriorState, r.PlannedState, r.Config)
	if err != nil {
		response.Diagnostics = diagnostics(err)
		return response, nil
	}
	if c.next.IsNull() {
		if t.Delete != nil {
			err = t.Delete(ctx, valuesOf(c.prior))
		}
		if err == nil {
			response.NewState = r.PlannedState
		}
		response.Diagnostics = diagnostics(err)
		return response, nil
	}
	do := t.Update
	if c.prior.IsNull() {
		do = t.Create
	}
	made, err := do(ctx, c.values())
	response.Diagnostics = diagnostics(err)
	if err == nil || made != nil {
		state, err := t.Schema.encode(over(valuesOf(c.next), made))
		if err != nil {
			response.Diagnostics = append(response.Diagnostics, diagnostic(err))
			return response, nil
		}
		response.NewState = state
	}
	return response, nil
}

func (s *resources) ImportResourceState(ctx context.Context,
	r *tfprotov6.ImportResourceStateRequest) (*tfprotov6.ImportResourceStateResponse, error) {
	t, err := s.find(r.TypeName)
	if err != nil {
		return nil, err
	}
	response := &tfprotov6.ImportResourceStateResponse{}
	if t.Import == nil {
		err = &Problem{Summary: "Resource Import Not Implemented",
			Detail: "This resource does not support import. Please contact the provider developer for " +
				"additional information."}
	} else {
		var found Values
		if found, err = t.Import(ctx, r.ID); err == nil {
			imported := &tfprotov6.ImportedResource{TypeName: r.TypeName}
			imported.State, err = t.Schema.encode(found)
			response.ImportedResources = []*tfprotov6.ImportedResource{imported}
		}
	}
	response.Diagnostics = diagnostics(err)
	return response, nil
}
