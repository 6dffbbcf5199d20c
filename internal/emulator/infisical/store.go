package infisical

import (
	"encoding/json"
	"net/http"
	"path"
	"slices"
	"strings"
	"time"
)

// store holds folders and secrets and answers the calls about them, under the
// server's mutex.
type store struct {
	now       func() time.Time
	folders   map[Folder]map[string]*Secret
	forbidden map[string]bool // workspaces
}

// addFolder creates the folder and its parents.
func (s *store) addFolder(f Folder) Folder {
	f = f.clean()
	for at := f; ; at.Path = path.Dir(at.Path) {
		if s.folders[at] == nil {
			s.folders[at] = map[string]*Secret{}
		}
		if at.Path == "/" {
			return f
		}
	}
}

func (s *store) insert(secret *Secret) {
	secret.ID = uuid()
	s.touch(secret)
	s.folders[secret.Folder][secret.Key] = secret
}

func (s *store) touch(secret *Secret) {
	secret.Version++
	secret.Updated = s.now().UTC()
}

// in returns the secrets of an existing folder.
func (s *store) in(f Folder) (map[string]*Secret, error) {
	if s.forbidden[f.Workspace] {
		return nil, failure{StatusCode: http.StatusForbidden, Name: "PermissionDenied",
			Message: "You do not have permission to access this project"}
	}
	if secrets := s.folders[f]; secrets != nil {
		return secrets, nil
	}
	for known := range s.folders {
		if known.Workspace == f.Workspace {
			return nil, notFound("Folder with path '%s' in environment with slug '%s' not found", f.Path,
				f.Environment)
		}
	}
	return nil, notFound("Project with ID '%s' not found", f.Workspace)
}

func (s *store) find(f Folder, key string) (*Secret, error) {
	secrets, err := s.in(f)
	if err != nil {
		return nil, err
	}
	if secrets[key] == nil {
		return nil, notFound("Secret with name '%s' not found", key)
	}
	return secrets[key], nil
}

func folderOf(r *http.Request) Folder {
	q := r.URL.Query()
	f := Folder{Workspace: q.Get("workspaceId"), Environment: q.Get("environment"), Path: q.Get("secretPath")}
	return f.clean()
}

func (s *store) list(r *http.Request) (any, error) {
	secrets, err := s.in(folderOf(r))
	if err != nil {
		return nil, err
	}
	all := []rawSecret{}
	for _, secret := range secrets {
		all = append(all, secret.raw())
	}
	slices.SortFunc(all, func(a, b rawSecret) int { return strings.Compare(a.SecretKey, b.SecretKey) })
	return map[string]any{"secrets": all, "imports": []any{}}, nil
}

func (s *store) get(r *http.Request) (any, error) {
	secret, err := s.find(folderOf(r), r.PathValue("key"))
	if err != nil {
		return nil, err
	}
	return map[string]any{"secret": secret.raw()}, nil
}

func (s *store) getByID(r *http.Request) (any, error) {
	for _, folder := range s.folders {
		for _, secret := range folder {
			if secret.ID == r.PathValue("id") {
				return map[string]any{"secret": secret.raw()}, nil
			}
		}
	}
	return nil, notFound("Secret with ID '%s' not found", r.PathValue("id"))
}

func (s *store) create(r *http.Request) (any, error) {
	b, err := decode(r)
	if err != nil {
		return nil, err
	}
	secrets, err := s.in(b.folder())
	if err != nil {
		return nil, err
	}
	key := r.PathValue("key")
	if secrets[key] != nil {
		return nil, badRequest("Secret already exist")
	}
	secret := &Secret{Folder: b.folder(), Key: key}
	secret.set(b)
	s.insert(secret)
	return map[string]any{"secret": secret.raw()}, nil
}

func (s *store) update(r *http.Request) (any, error) {
	b, err := decode(r)
	if err != nil {
		return nil, err
	}
	secret, err := s.find(b.folder(), r.PathValue("key"))
	if err != nil {
		return nil, err
	}
	if name := b.NewSecretName; name != "" && name != secret.Key {
		if s.folders[secret.Folder][name] != nil {
			return nil, badRequest("Secret with the new name already exist")
		}
		delete(s.folders[secret.Folder], secret.Key)
		secret.Key = name
		s.folders[secret.Folder][name] = secret
	}
	secret.set(b)
	s.touch(secret)
	return map[string]any{"secret": secret.raw()}, nil
}

func (s *store) remove(r *http.Request) (any, error) {
	b, err := decode(r)
	if err != nil {
		return nil, err
	}
	secret, err := s.find(b.folder(), r.PathValue("key"))
	if err != nil {
		return nil, err
	}
	delete(s.folders[secret.Folder], secret.Key)
	return map[string]any{"secret": secret.raw()}, nil
}

func (s *Secret) set(b body) {
	if b.SecretValue != nil {
		s.Value = *b.SecretValue
	}
	if b.SecretComment != nil {
		s.Comment = *b.SecretComment
	}
	s.ReminderNote, s.ReminderDays = b.SecretReminderNote, b.SecretReminderRepeatDays
	s.Metadata, s.TagIDs = b.SecretMetadata, b.TagIDs
}

// body is the body of POST, PATCH and DELETE; each uses a part of it.
type body struct {
	WorkspaceID              string     `json:"workspaceId"`
	Environment              string     `json:"environment"`
	SecretPath               string     `json:"secretPath"`
	Type                     string     `json:"type"`
	NewSecretName            string     `json:"newSecretName"`
	SecretValue              *string    `json:"secretValue"`
	SecretComment            *string    `json:"secretComment"`
	SecretReminderNote       string     `json:"secretReminderNote"`
	SecretReminderRepeatDays int64      `json:"secretReminderRepeatDays"`
	SecretMetadata           []Metadata `json:"secretMetadata"`
	TagIDs                   []string   `json:"tagIds"`
}

func (b body) folder() Folder {
	return Folder{Workspace: b.WorkspaceID, Environment: b.Environment, Path: b.SecretPath}.clean()
}

func decode(r *http.Request) (body, error) {
	var b body
	if err := json.NewDecoder(r.Body).Decode(&b); err != nil {
		return b, badRequest("Body is not valid JSON")
	}
	return b, nil
}

type rawTag struct {
	ID string `json:"id"`
}

type rawSecret struct {
	ID                       string     `json:"id"`
	Version                  int        `json:"version"`
	Workspace                string     `json:"workspace"`
	Type                     string     `json:"type"`
	Environment              string     `json:"environment"`
	SecretPath               string     `json:"secretPath"`
	SecretKey                string     `json:"secretKey"`
	SecretValue              string     `json:"secretValue"`
	SecretComment            string     `json:"secretComment"`
	UpdatedAt                string     `json:"updatedAt"`
	SecretReminderNote       string     `json:"secretReminderNote"`
	SecretReminderRepeatDays int64      `json:"secretReminderRepeatDays"`
	SecretMetadata           []Metadata `json:"secretMetadata"`
	Tags                     []rawTag   `json:"tags"`
}

func (s *Secret) raw() rawSecret {
	r := rawSecret{
		ID: s.ID, Version: s.Version, Type: "shared", Workspace: s.Folder.Workspace,
		Environment: s.Folder.Environment, SecretPath: s.Folder.Path, SecretKey: s.Key, SecretValue: s.Value,
		SecretComment:      s.Comment,
		UpdatedAt:          s.Updated.Format("2006-01-02T15:04:05.000Z"),
		SecretReminderNote: s.ReminderNote, SecretReminderRepeatDays: s.ReminderDays,
		SecretMetadata: s.Metadata, Tags: []rawTag{},
	}
	for _, id := range s.TagIDs {
		r.Tags = append(r.Tags, rawTag{ID: id})
	}
	return r
}
