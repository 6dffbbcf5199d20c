package infisical

import (
	"cmp"
	"context"
	"fmt"
	"maps"
	"slices"

	"github.com/ephemeral-castle/castle/internal/process"
	"github.com/ephemeral-castle/castle/internal/revision"
)

// Revisions reads the revisions of the secrets that a stage writes or reads, without their values.
func Revisions() revision.System {
	const name = "infisical"
	read := func(ctx context.Context, s revision.Stage, _ []revision.Object) (
		all []revision.Object, err error) {
		listed := map[Folder]map[string]entry{}
		for _, r := range s.State.Resources {
			reads := r.Type == "infisical_secrets"
			if r.Provider != provider || !reads && r.Type != "infisical_secret" {
				continue
			}
			text := func(attribute string) string { t, _ := r.Attributes[attribute].(string); return t }
			f := Folder{
				Host: cmp.Or(s.Argument("infisical", "host"),
					process.Getenv(s.Target.Environ, "INFISICAL_HOST"), Cloud),
				Project: text("workspace_id"), Environment: text("env_slug"), Path: text("folder_path"),
			}
			if listed[f] == nil {
				c := newClient(f.Host, s.Target.Environ)
				if listed[f], err = f.list(ctx, c, false); err != nil {
					return nil, c.explain(f.String(), err)
				}
			}
			names := []string{text("name")}
			if reads {
				names = s.Secrets()
			}
			if len(names) == 0 {
				names = slices.Sorted(maps.Keys(listed[f]))
			}
			for _, secret := range names {
				o := revision.Object{System: name, Kind: secretKind, Name: f.name(secret), Address: r.Address}
				found, exists := listed[f][secret]
				if exists {
					o.Revision = fmt.Sprintf("%s/%d", found.ID, found.Version)
				}
				if exists || !reads { // a secret that is read may be optional
					all = append(all, o)
				}
			}
		}
		return all, nil
	}
	return revision.System{Name: name, Read: read}
}
