package infisical

import (
	"crypto/subtle"
	"encoding/json"
	"net/http"
	"slices"
	"strings"
)

const tokenSeconds = 2592000 // thirty days, the server's default for a machine identity

func (s *Server) login(r *http.Request) (any, error) {
	var credentials struct {
		ClientID     string `json:"clientId"`
		ClientSecret string `json:"clientSecret"`
	}
	if err := json.NewDecoder(r.Body).Decode(&credentials); err != nil {
		return nil, badRequest("Body is not valid JSON")
	}
	if !same(credentials.ClientID, s.config.ClientID) || !same(credentials.ClientSecret, s.config.ClientSecret) {
		return nil, failure{StatusCode: http.StatusUnauthorized, Message: "Invalid credentials", Name: "UnauthorizedError"}
	}
	token := "st." + uuid()
	s.tokens[token] = true
	return map[string]any{
		"accessToken": token, "expiresIn": tokenSeconds, "accessTokenMaxTTL": tokenSeconds, "tokenType": "Bearer",
	}, nil
}

func same(a, b string) bool { return b != "" && subtle.ConstantTimeCompare([]byte(a), []byte(b)) == 1 }

func (s *Server) authorised(handle func(*http.Request) (any, error)) func(*http.Request) (any, error) {
	return func(r *http.Request) (any, error) {
		token, ok := strings.CutPrefix(r.Header.Get("Authorization"), "Bearer ")
		if !ok {
			return nil, failure{StatusCode: http.StatusUnauthorized, Message: "Token missing", Name: "UnauthorizedError"}
		}
		if !s.tokens[token] {
			return nil, failure{StatusCode: http.StatusForbidden, Name: "TokenError",
				Message: "Your token is invalid. Please re-authenticate."}
		}
		return handle(r)
	}
}

// in returns the secrets of a folder that exists.
func (s *Server) in(f Folder) (map[string]*Secret, error) {
	if s.forbidden[f.Workspace] {
		return nil, failure{StatusCode: http.StatusForbidden, Name: "PermissionDenied",
			Message: "You do not have permission to access this project"}
	}
	if secrets := s.folders[f]; secrets != nil {
		return secrets, nil
	}
	for known := range s.folders {
		if known.Workspace == f.Workspace {
			return nil, notFound("Folder with path '%s' in environment with slug '%s' not found", f.Path, f.Environment)
		}
	}
	return nil, notFound("Project with ID '%s' not found", f.Workspace)
}

func (s *Server) find(f Folder, key string) (*Secret, error) {
	secrets, err := s.in(f)
	if err != nil {
		return nil, err
	}
	if secrets[key] == nil {
		return nil, notFound("Secret with name '%s' not found", key)
	}
	return secrets[key], nil
}

func asked(r *http.Request) Folder {
	q := r.URL.Query()
	return Folder{Workspace: q.Get("workspaceId"), Environment: q.Get("environment"), Path: q.Get("secretPath")}.clean()
}

func (s *Server) list(r *http.Request) (any, error) {
	secrets, err := s.in(asked(r))
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

func (s *Server) get(r *http.Request) (any, error) {
	secret, err := s.find(asked(r), r.PathValue("key"))
	if err != nil {
		return nil, err
	}
	return map[string]any{"secret": secret.raw()}, nil
}

func (s *Server) getByID(r *http.Request) (any, error) {
	for _, folder := range s.folders {
		for _, secret := range folder {
			if secret.ID == r.PathValue("id") {
				return map[string]any{"secret": secret.raw()}, nil
			}
		}
	}
	return nil, notFound("Secret with ID '%s' not found", r.PathValue("id"))
}

func (s *Server) create(r *http.Request) (any, error) {
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

func (s *Server) update(r *http.Request) (any, error) {
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

func (s *Server) remove(r *http.Request) (any, error) {
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
