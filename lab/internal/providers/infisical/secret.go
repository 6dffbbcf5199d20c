package infisical

import (
	"context"
	"errors"
	"regexp"
	"strings"

	"github.com/zclconf/go-cty/cty"

	"github.com/ephemeral-castle/castle/lab/internal/providers/plugin"
)

func (p *provider) secret() plugin.Resource {
	return plugin.Resource{
		Schema: plugin.Block{Attributes: map[string]plugin.Attribute{
			"folder_path":      {Type: cty.String, Required: true, Replace: true},
			"env_slug":         {Type: cty.String, Required: true, Replace: true},
			"name":             {Type: cty.String, Required: true},
			"value":            {Type: cty.String, Optional: true, Sensitive: true},
			"value_wo":         {Type: cty.String, Optional: true, WriteOnly: true},
			"value_wo_version": {Type: cty.Number, Optional: true},
			"workspace_id":     {Type: cty.String, Optional: true, Computed: true, Keep: true, Replace: true},
			"last_updated":     {Type: cty.String, Computed: true},
			"tag_ids":          {Type: cty.Set(cty.String), Optional: true},
			"metadata":         {Type: cty.Map(cty.String), Optional: true},
			"secret_reminder": {Optional: true,
				Nested: &plugin.Nested{Mode: plugin.Single, Attributes: map[string]plugin.Attribute{
					"note":        {Type: cty.String, Optional: true},
					"repeat_days": {Type: cty.Number, Required: true},
				}}},
			"id": {Type: cty.String, Computed: true, Keep: true},
		}},
		Check:  checkSecret,
		Create: p.createSecret,
		Read:   p.readSecret,
		Update: p.updateSecret,
		Delete: p.deleteSecret,
		Import: p.importSecret,
	}
}

func checkSecret(config plugin.Values) error {
	given := func(name string) bool { return !config[name].IsNull() }
	switch {
	case given("value") && (given("value_wo") || given("value_wo_version")):
		return &plugin.Problem{Summary: "Invalid Attribute Combination",
			Detail: `Attribute "value_wo" cannot be specified when "value" is specified`}
	case given("value_wo") != given("value_wo_version"):
		return &plugin.Problem{Summary: "Invalid Attribute Combination",
			Detail: `Attribute "value_wo_version" must be specified when "value_wo" is specified`}
	}
	return nil
}

// ask returns the request for a change, with the value if the change sets it.
func ask(c plugin.Change) (request, error) {
	w := folder(c.Planned)
	r := request{WorkspaceID: w.workspace, Type: "shared", Environment: w.environment, SecretPath: w.path,
		TagIDs: []string{}}
	reminder := c.Planned.Object("secret_reminder")
	r.SecretReminderNote, r.SecretReminderRepeatDays = reminder.String("note"), reminder.Int("repeat_days")
	for _, id := range c.Planned.Strings("tag_ids") {
		r.TagIDs = append(r.TagIDs, strings.ToLower(id))
	}
	for key, value := range c.Planned.Map("metadata") {
		r.SecretMetadata = append(r.SecretMetadata, pair{Key: key, Value: value})
	}
	switch {
	case c.Planned.Known("value"):
		value := c.Planned.String("value")
		r.SecretValue = &value
	case !c.Config.Known("value_wo"):
		return r, errors.New("no secret value provided")
	case c.Prior == nil || c.Prior.Int("value_wo_version") != c.Planned.Int("value_wo_version"):
		value := c.Config.String("value_wo")
		r.SecretValue = &value
	}
	return r, nil
}

func (p *provider) createSecret(ctx context.Context, c plugin.Change) (plugin.Values, error) {
	r, err := ask(c)
	if err != nil {
		return nil, &plugin.Problem{Summary: "Error creating secret",
			Detail: "Could not get secret value, unexpected error: " + err.Error()}
	}
	made, err := p.client.create(ctx, c.Planned.String("name"), r)
	if err != nil {
		return nil, &plugin.Problem{Summary: "Error creating secret",
			Detail: "Couldn't save encrypted secrets to Infisical, unexpected error: " + err.Error()}
	}
	return plugin.Values{"id": cty.StringVal(made.ID), "last_updated": plugin.Text(made.UpdatedAt),
		"workspace_id": cty.StringVal(r.WorkspaceID)}, nil
}

func (p *provider) readSecret(ctx context.Context, state plugin.Values) (plugin.Values, error) {
	found, err := p.client.byID(ctx, state.String("id"))
	if errors.Is(err, errNotFound) {
		return nil, nil
	}
	if err != nil {
		return nil, &plugin.Problem{Summary: "Error Reading Infisical secret",
			Detail: "Could not read Infisical secret with ID " + state.String("id") + ": " + err.Error()}
	}
	v := plugin.Values{
		"name": cty.StringVal(found.SecretKey), "folder_path": cty.StringVal(found.SecretPath),
		"env_slug":     cty.StringVal(found.Environment),
		"last_updated": plugin.Text(found.UpdatedAt), "metadata": metadata(found),
	}
	if state.Known("value") { // a write-only value stays out of the state
		v["value"] = cty.StringVal(found.SecretValue)
	}
	if len(found.Tags) > 0 || state.Known("tag_ids") {
		v["tag_ids"] = tags(found)
	}
	return v, nil
}

func (p *provider) updateSecret(ctx context.Context, c plugin.Change) (plugin.Values, error) {
	r, err := ask(c)
	if err != nil {
		return nil, &plugin.Problem{Summary: "Error updating secret",
			Detail: "Could not get secret value, unexpected error: " + err.Error()}
	}
	before := c.Prior.String("name")
	if name := c.Planned.String("name"); name != before {
		r.NewSecretName = name
	}
	changed, err := p.client.update(ctx, before, r)
	if err != nil {
		return nil, &plugin.Problem{Summary: "Error updating secret",
			Detail: "Couldn't save encrypted secrets to Infisical, unexpected error: " + err.Error()}
	}
	return plugin.Values{"last_updated": plugin.Text(changed.UpdatedAt)}, nil
}

func (p *provider) deleteSecret(ctx context.Context, state plugin.Values) error {
	w := folder(state)
	err := p.client.delete(ctx, state.String("name"), request{WorkspaceID: w.workspace, Type: "shared",
		Environment: w.environment, SecretPath: w.path})
	if err != nil {
		return &plugin.Problem{Summary: "Error Deleting Infisical secret",
			Detail: "Could not delete secret, unexpected error: " + err.Error()}
	}
	return nil
}

func (p *provider) importSecret(ctx context.Context, id string) (plugin.Values, error) {
	id, writeOnly := strings.CutPrefix(id, "write-only:")
	found, err := p.lookUp(ctx, id)
	if err != nil {
		return nil, err
	}
	v := plugin.Values{
		"id": cty.StringVal(found.ID), "workspace_id": cty.StringVal(found.Workspace),
		"env_slug":    cty.StringVal(found.Environment),
		"folder_path": cty.StringVal(found.SecretPath), "name": cty.StringVal(found.SecretKey),
		"last_updated": plugin.Text(found.UpdatedAt), "metadata": metadata(found),
		// The real provider imports a reminder even where there is none, so the
		// first plan after an import is an update in place.
		"secret_reminder": cty.ObjectVal(map[string]cty.Value{
			"note":        cty.StringVal(found.SecretReminderNote),
			"repeat_days": cty.NumberIntVal(found.SecretReminderRepeatDays)}),
	}
	if len(found.Tags) > 0 {
		v["tag_ids"] = tags(found)
	}
	if writeOnly {
		v["value_wo_version"] = cty.NumberIntVal(1)
	} else {
		v["value"] = cty.StringVal(found.SecretValue)
	}
	return v, nil
}

var uuid = regexp.MustCompile(`^[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}$`)

func (p *provider) lookUp(ctx context.Context, id string) (found secret, err error) {
	if uuid.MatchString(id) {
		found, err = p.client.byID(ctx, id)
	} else {
		parts := strings.SplitN(id, ":", 4)
		if len(parts) != 4 {
			return found, &plugin.Problem{Summary: "Invalid ID Format",
				Detail: "The secret ID must be a uuid or in the format of " +
					"'<workspace>:<env>:<secret-path>:<secret-name>'"}
		}
		found, err = p.client.byName(ctx, where{parts[0], parts[1], parts[2]}, parts[3])
	}
	switch {
	case errors.Is(err, errNotFound):
		err = &plugin.Problem{Summary: "Secret not found",
			Detail: "The secret with the given ID was not found"}
	case err != nil:
		err = &plugin.Problem{Summary: "Error fetching secret",
			Detail: "Couldn't fetch secret from Infisical, unexpected error: " + err.Error()}
	}
	return found, err
}

func metadata(s secret) cty.Value {
	if len(s.SecretMetadata) == 0 {
		return cty.NullVal(cty.Map(cty.String))
	}
	all := map[string]string{}
	for _, p := range s.SecretMetadata {
		all[p.Key] = p.Value
	}
	return plugin.StringMap(all)
}

func tags(s secret) cty.Value {
	var all []cty.Value
	for _, t := range s.Tags {
		all = append(all, cty.StringVal(t.ID))
	}
	if len(all) == 0 {
		return cty.SetValEmpty(cty.String)
	}
	return cty.SetVal(all)
}
